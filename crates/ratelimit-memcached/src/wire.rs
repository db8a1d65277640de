//! What is asked of a server and what it answers: commands in a batch, one reply for each.

use memcache::exp::{Error, MetaCommand, MetaOp, MetaResponse, ReturnCode};

use crate::error::Failure;

/// What a server answered to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The item's value, and its unique number if that was asked for.
    Value { bytes: Vec<u8>, unique: Option<u64> },
    /// Done, or: there is such an item.
    Done,
    /// There is no such item.
    Missing,
    /// The item is not as it was expected: somebody else has written it.
    Lost,
}

impl Reply {
    pub(crate) fn new(response: MetaResponse) -> Result<Self, Failure> {
        match response.rc() {
            ReturnCode::Hd => Ok(Self::Done),
            ReturnCode::En | ReturnCode::Nf => Ok(Self::Missing),
            ReturnCode::Ex | ReturnCode::Ns => Ok(Self::Lost),
            ReturnCode::Va => {
                let unique = response.flags().find_map(|flag| number(flag.strip_prefix(b"c")?));
                let bytes = response.into_value().ok_or_else(Failure::strange_response)?;
                Ok(Self::Value { bytes, unique })
            }
            _ => Err(Failure::strange_response()),
        }
    }

    /// The count that a counter's item holds; none is zero.
    ///
    /// A count that has lost a digit is filled up with spaces by the server.
    pub(crate) fn count(&self) -> Result<u64, Failure> {
        match self {
            Self::Missing => Ok(0),
            Self::Value { bytes, .. } => number(bytes.trim_ascii_end()).ok_or_else(Failure::corrupt),
            Self::Done | Self::Lost => Err(Failure::strange_response()),
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether the server has refused one command, and the connection goes on with the next.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Rejected(_) | Error::Server(_))
}

/// Adds to a counter, which is made if it is not there; replies its new count.
pub(crate) fn add(key: &str, cost: u64, lifetime: u64) -> MetaCommand {
    let command = MetaCommand::new(MetaOp::Arithmetic, key);
    // A new counter begins with J, and D is not added to it.
    command.flag(format!("N{lifetime}")).flag(format!("J{cost}")).flag(format!("D{cost}")).flag("v")
}

/// Takes from a counter if it is there; it stops at zero.
pub(crate) fn take(key: &str, cost: u64) -> MetaCommand {
    MetaCommand::new(MetaOp::Arithmetic, key).flag("MD").flag(format!("D{cost}"))
}

/// Reads a counter.
pub(crate) fn look(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Get, key).flag("v")
}

/// Marks an item as used: additions alone leave it among the first to be evicted.
pub(crate) fn touch(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Get, key).flag("t")
}

/// Reads a value and its unique number.
pub(crate) fn read(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Get, key).flag("v").flag("c")
}

/// Writes a value if the item is still the one with this number; without a number, if there is none.
pub(crate) fn write(key: &str, value: Vec<u8>, unique: Option<u64>, lifetime: u64) -> MetaCommand {
    let command = MetaCommand::new(MetaOp::Set, key).value(value).flag(format!("T{lifetime}"));
    match unique {
        Some(unique) => command.flag(format!("C{unique}")),
        None => command.flag("ME"),
    }
}

/// Removes an item.
pub(crate) fn delete(key: &str) -> MetaCommand {
    MetaCommand::new(MetaOp::Delete, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_padding() {
        let count = |bytes: &[u8]| Reply::Value { bytes: bytes.to_vec(), unique: None }.count().ok();
        assert_eq!(count(b"12"), Some(12));
        assert_eq!(count(b"9 "), Some(9));
        assert_eq!(count(b"0   "), Some(0));
        assert_eq!(Reply::Missing.count().ok(), Some(0));
        for foreign in [b"".as_slice(), b" ", b" 9", b"-1", b"+1", b"1a", b"99999999999999999999", b"\xff"] {
            assert_eq!(count(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn commands_are_those_of_the_protocol() {
        let text = |command: MetaCommand| String::from_utf8(command.encode().unwrap()).unwrap();
        assert_eq!(text(add("k", 3, 60)), "ma k N60 J3 D3 v\r\n");
        assert_eq!(text(take("k", 3)), "ma k MD D3\r\n");
        assert_eq!(text(write("k", b"abc".to_vec(), Some(9), 60)), "ms k 3 T60 C9\r\nabc\r\n");
        assert_eq!(text(write("k", b"abc".to_vec(), None, 60)), "ms k 3 T60 ME\r\nabc\r\n");
        assert_eq!(
            text(read("k")) + &text(look("k")) + &text(touch("k")),
            "mg k v c\r\nmg k v\r\nmg k t\r\n"
        );
        assert_eq!(text(delete("k")), "md k\r\n");
    }
}
