//! Encodes commands of the meta protocol.

/// What a command does to the item under its key.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Adds to a counter, creating it if it does not exist; returns the new count.
    Add { units: u64, lifetime: u64 },
    /// Takes from a counter if it exists; stops at zero.
    Deduction { units: u64 },
    /// Reads a counter, and marks it as used.
    ReadCounter,
    /// Reads a value, its unique number and its remaining lifetime.
    Read,
    /// Writes a value if the item still has this unique number; without a number, if the item does not exist.
    Write { value: Vec<u8>, unique: Option<u64>, lifetime: u64 },
    /// Replaces an existing counter by a reset's mark. After that nothing can be added to it or taken from it.
    Reset { mark: String, lifetime: u64 },
    /// Deletes an item.
    Delete,
}

impl Command {
    /// Appends the command with a stamp, which its reply carries. The key is visible ASCII and has at most 250 bytes; see
    /// [`keys`](crate::wire::keys).
    pub(crate) fn encode(&self, key: &str, stamp: u64, bytes: &mut Vec<u8>) {
        let mut line = CommandLine(bytes);
        match self {
            // A new counter starts with J, and D is not added to it.
            Self::Add { units, lifetime } => {
                line.text("ma ")
                    .text(key)
                    .flag("N", *lifetime)
                    .flag("J", *units)
                    .flag("D", *units)
                    .text(" v");
            }
            Self::Deduction { units } => _ = line.text("ma ").text(key).text(" MD").flag("D", *units),
            Self::ReadCounter => _ = line.text("mg ").text(key).text(" v"),
            Self::Read => _ = line.text("mg ").text(key).text(" v c t"),
            Self::Write { value, unique, lifetime } => {
                line.text("ms ").text(key).flag("", value.len() as u64).flag("T", *lifetime);
                match unique {
                    Some(unique) => line.flag("C", *unique),
                    None => line.text(" ME"),
                };
            }
            Self::Reset { mark, lifetime } => {
                line.text("ms ").text(key).flag("", mark.len() as u64 + 1).text(" MR").flag("T", *lifetime);
            }
            Self::Delete => _ = line.text("md ").text(key),
        }
        line.stamp(stamp).text("\r\n");
        match self {
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
        let text = |command: Command| {
            let mut bytes = Vec::new();
            command.encode("k", 0x1f, &mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(text(Command::Add { units: 3, lifetime: 60 }), "ma k N60 J3 D3 v O1f\r\n");
        assert_eq!(text(Command::Deduction { units: 3 }), "ma k MD D3 O1f\r\n");
        let write = |unique| text(Command::Write { value: b"abc".to_vec(), unique, lifetime: 60 });
        assert_eq!(write(Some(9)), "ms k 3 T60 C9 O1f\r\nabc\r\n");
        assert_eq!(write(None), "ms k 3 T60 ME O1f\r\nabc\r\n");
        assert_eq!(text(Command::Read), "mg k v c t O1f\r\n");
        assert_eq!(text(Command::ReadCounter), "mg k v O1f\r\n");
        let mark = "0f".to_owned();
        assert_eq!(text(Command::Reset { mark, lifetime: 60 }), "ms k 3 MR T60 O1f\r\n@0f\r\n");
        assert_eq!(text(Command::Delete), "md k O1f\r\n");
        for stamp in [0, 1, 0xf, 0x10, 0x00a0_0000, u64::MAX] {
            let mut bytes = Vec::new();
            Command::Delete.encode("k", stamp, &mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), format!("md k O{stamp:x}\r\n"));
        }
    }
}
