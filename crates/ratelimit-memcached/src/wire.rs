//! Encodes commands of the meta protocol.

/// A command. Keys are visible ASCII and have at most 250 bytes; see [`keys`](crate::keys).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// Adds to a counter, creating it if it does not exist; returns the new count.
    Add { key: &'a str, units: u64, lifetime: u64 },
    /// Takes from a counter if it exists; stops at zero.
    Deduction { key: &'a str, units: u64 },
    /// Reads a counter, and marks it as used.
    ReadCounter { key: &'a str },
    /// Reads a value and its unique number.
    Read { key: &'a str },
    /// Writes a value if the item still has this unique number; without a number, if the item does not exist.
    Write { key: &'a str, value: &'a [u8], unique: Option<u64>, lifetime: u64 },
    /// Replaces an existing counter by a reset's mark. After that nothing can be added to it or taken from it.
    Reset { key: &'a str, mark: &'a str, lifetime: u64 },
    /// Deletes an item.
    Delete { key: &'a str },
}

impl Command<'_> {
    /// Appends the command with a stamp, which its reply carries.
    pub(crate) fn encode(&self, stamp: u64, bytes: &mut Vec<u8>) {
        let mut line = CommandLine(bytes);
        match *self {
            // A new counter starts with J, and D is not added to it.
            Self::Add { key, units, lifetime } => {
                line.text("ma ").text(key).flag("N", lifetime).flag("J", units).flag("D", units).text(" v");
            }
            Self::Deduction { key, units } => _ = line.text("ma ").text(key).text(" MD").flag("D", units),
            Self::ReadCounter { key } => _ = line.text("mg ").text(key).text(" v"),
            Self::Read { key } => _ = line.text("mg ").text(key).text(" v c"),
            Self::Write { key, value, unique, lifetime } => {
                line.text("ms ").text(key).flag("", value.len() as u64).flag("T", lifetime);
                match unique {
                    Some(unique) => line.flag("C", unique),
                    None => line.text(" ME"),
                };
            }
            Self::Reset { key, mark, lifetime } => {
                line.text("ms ").text(key).flag("", mark.len() as u64 + 1).text(" MR").flag("T", lifetime);
            }
            Self::Delete { key } => _ = line.text("md ").text(key),
        }
        line.stamp(stamp).text("\r\n");
        match *self {
            Self::Write { value, .. } => {
                bytes.extend_from_slice(value);
                bytes.extend_from_slice(b"\r\n");
            }
            Self::Reset { mark, .. } => _ = CommandLine(bytes).text("@").text(mark).text("\r\n"),
            _ => {}
        }
    }
}

/// Appends a command's line to a buffer.
struct CommandLine<'a>(&'a mut Vec<u8>);

impl CommandLine<'_> {
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn flag(&mut self, letter: &str, number: u64) -> &mut Self {
        self.text(" ").text(letter).text(itoa::Buffer::new().format(number))
    }

    /// The stamp in hexadecimal.
    fn stamp(&mut self, stamp: u64) -> &mut Self {
        self.text(" O");
        let digits = (64 - (stamp | 1).leading_zeros()).div_ceil(4);
        for nth in (0..digits).rev() {
            let digit = (stamp >> (4 * nth)) & 15;
            self.0.push(b"0123456789abcdef"[digit as usize]);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_protocol() {
        let text = |command: Command<'_>| {
            let mut bytes = Vec::new();
            command.encode(0x1f, &mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        let key = "k";
        assert_eq!(text(Command::Add { key, units: 3, lifetime: 60 }), "ma k N60 J3 D3 v O1f\r\n");
        assert_eq!(text(Command::Deduction { key, units: 3 }), "ma k MD D3 O1f\r\n");
        let write = |unique| text(Command::Write { key, value: b"abc", unique, lifetime: 60 });
        assert_eq!(write(Some(9)), "ms k 3 T60 C9 O1f\r\nabc\r\n");
        assert_eq!(write(None), "ms k 3 T60 ME O1f\r\nabc\r\n");
        assert_eq!(text(Command::Read { key }), "mg k v c O1f\r\n");
        assert_eq!(text(Command::ReadCounter { key }), "mg k v O1f\r\n");
        assert_eq!(text(Command::Reset { key, mark: "0f", lifetime: 60 }), "ms k 3 MR T60 O1f\r\n@0f\r\n");
        assert_eq!(text(Command::Delete { key }), "md k O1f\r\n");
        for stamp in [0, 1, 0xf, 0x10, 0x00a0_0000, u64::MAX] {
            let mut bytes = Vec::new();
            Command::Delete { key }.encode(stamp, &mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), format!("md k O{stamp:x}\r\n"));
        }
    }
}
