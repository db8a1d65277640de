//! Keys as text, without losing a byte and without control characters.

/// Writes bytes as text: control and format characters and what is not UTF-8 as `\xNN`, a backslash as `\\`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                _ if is_harmless(letter) => text.push(letter),
                _ => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push_str(&hex(byte))),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&hex(*byte)));
    }
    text
}

/// Whether a terminal only shows this character. Clients choose keys, so a key must not move the cursor, and must not
/// reverse or hide what follows.
fn is_harmless(letter: char) -> bool {
    let is_format = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !letter.is_control() && !is_format
}

fn hex(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

/// The bytes that [`escape`] has written as `text`; `None` if a backslash is not followed by `\` or `xNN`.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn every_key_is_read_back() {
        for (key, text) in [
            (&b"user:7"[..], "user:7"),
            ("Zoë/日本 +".as_bytes(), "Zoë/日本 +"),
            (b"a\\x41", "a\\\\x41"),
            (b"\x1b[2J\n\0", "\\x1b[2J\\x0a\\x00"),
            (b"\xff\xc3", "\\xff\\xc3"),
            ("a\u{202e}b".as_bytes(), "a\\xe2\\x80\\xaeb"),
        ] {
            assert_eq!(escape(key), text);
            assert_eq!(unescape(text).as_deref(), Some(key));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), Some(all));
        for wrong in ["\\", "\\x4", "\\xzz", "\\n"] {
            assert_eq!(unescape(wrong), None, "{wrong}");
        }
    }
}
