//! What a server is asked: commands of the meta protocol, as bytes.

use std::io::Write as _;

/// A command. Keys are visible ASCII and at most 250 bytes; see [`keys`](crate::keys).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// Adds to a counter, which is made if it is not there; replies its new count.
    Add { key: &'a str, units: u64, lifetime: u64 },
    /// Takes from a counter if it is there; it stops at zero.
    Take { key: &'a str, units: u64 },
    /// Reads a counter, and marks it as used.
    Look { key: &'a str },
    /// Reads a value and its unique number.
    Read { key: &'a str },
    /// Writes a value if the item is still the one with this number; without a number, if there is none.
    Write { key: &'a str, value: &'a [u8], unique: Option<u64>, lifetime: u64 },
    /// Puts a reset's mark in the place of a counter, if there is one. Nothing can be added to it or taken from it any more.
    Reset { key: &'a str, mark: &'a str, lifetime: u64 },
    /// Removes an item.
    Delete { key: &'a str },
}

impl Command<'_> {
    /// Appends it, stamped: the reply carries the stamp.
    pub(crate) fn encode(&self, stamp: u64, bytes: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ = match *self {
            // A new counter begins with J, and D is not added to it.
            Self::Add { key, units, lifetime } => {
                write!(bytes, "ma {key} N{lifetime} J{units} D{units} v O{stamp:x}\r\n")
            }
            Self::Take { key, units } => write!(bytes, "ma {key} MD D{units} O{stamp:x}\r\n"),
            Self::Look { key } => write!(bytes, "mg {key} v O{stamp:x}\r\n"),
            Self::Read { key } => write!(bytes, "mg {key} v c O{stamp:x}\r\n"),
            Self::Write { key, value, unique, lifetime } => {
                let _ = match unique {
                    Some(unique) => {
                        write!(bytes, "ms {key} {} T{lifetime} C{unique} O{stamp:x}\r\n", value.len())
                    }
                    None => write!(bytes, "ms {key} {} T{lifetime} ME O{stamp:x}\r\n", value.len()),
                };
                bytes.extend_from_slice(value);
                bytes.write_all(b"\r\n")
            }
            Self::Reset { key, mark, lifetime } => {
                write!(bytes, "ms {key} {} MR T{lifetime} O{stamp:x}\r\n@{mark}\r\n", mark.len() + 1)
            }
            Self::Delete { key } => write!(bytes, "md {key} O{stamp:x}\r\n"),
        };
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
        assert_eq!(text(Command::Take { key, units: 3 }), "ma k MD D3 O1f\r\n");
        let write = |unique| text(Command::Write { key, value: b"abc", unique, lifetime: 60 });
        assert_eq!(write(Some(9)), "ms k 3 T60 C9 O1f\r\nabc\r\n");
        assert_eq!(write(None), "ms k 3 T60 ME O1f\r\nabc\r\n");
        assert_eq!(text(Command::Read { key }), "mg k v c O1f\r\n");
        assert_eq!(text(Command::Look { key }), "mg k v O1f\r\n");
        assert_eq!(text(Command::Reset { key, mark: "0f", lifetime: 60 }), "ms k 3 MR T60 O1f\r\n@0f\r\n");
        assert_eq!(text(Command::Delete { key }), "md k O1f\r\n");
    }
}
