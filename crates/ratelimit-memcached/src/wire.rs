//! What is asked of a server and what it answers: commands in a batch, one reply for each.

use memcache::exp::{Error, MetaCommand, MetaOp, MetaResponse, ReturnCode};

use crate::error::Failure;
use crate::keys::MARK;

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

    /// What a counter's item holds; none is a count of zero.
    ///
    /// A count that has lost a digit is filled up with spaces by the server.
    pub(crate) fn counter(&self) -> Result<Counter<'_>, Failure> {
        match self {
            Self::Missing => Ok(Counter::Count(0)),
            Self::Value { bytes, .. } => match number(bytes.trim_ascii_end()) {
                Some(count) => Ok(Counter::Count(count)),
                None => mark(bytes).map(Counter::Reset).ok_or_else(Failure::corrupt),
            },
            Self::Done | Self::Lost => Err(Failure::strange_response()),
        }
    }
}

/// What a counter's item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter<'a> {
    /// So many units.
    Count(u64),
    /// It has been reset: the units are counted under this mark.
    Reset(&'a str),
}

fn mark(bytes: &[u8]) -> Option<&str> {
    let mark = std::str::from_utf8(bytes.strip_prefix(b"@")?).ok()?;
    (mark.len() == MARK && mark.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(mark)
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

/// Puts a reset's mark in the place of a counter, if there is one. Nothing can be added to it or taken from it any more.
pub(crate) fn reset(key: &str, mark: &str, lifetime: u64) -> MetaCommand {
    let value = format!("@{mark}").into_bytes();
    MetaCommand::new(MetaOp::Set, key).value(value).flag("MR").flag(format!("T{lifetime}"))
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
        let reply = |bytes: &[u8]| Reply::Value { bytes: bytes.to_vec(), unique: None };
        for (bytes, count) in [(b"12".as_slice(), 12), (b"9 ", 9), (b"0   ", 0)] {
            assert_eq!(reply(bytes).counter().ok(), Some(Counter::Count(count)));
        }
        assert_eq!(Reply::Missing.counter().ok(), Some(Counter::Count(0)));
        assert_eq!(reply(b"@00ff00ff00ff00ff").counter().ok(), Some(Counter::Reset("00ff00ff00ff00ff")));
        let foreign = [b"".as_slice(), b" ", b" 9", b"-1", b"+1", b"1a", b"99999999999999999999", b"\xff"];
        for foreign in foreign.into_iter().chain([
            b"@".as_slice(),
            b"@00ff",
            b"@00ff00ff00ff00f!",
            b"@00ff00ff00ff00ff ",
        ]) {
            assert!(reply(foreign).counter().is_err(), "{foreign:?}");
        }
    }

    #[test]
    fn commands_are_those_of_the_protocol() {
        let text = |command: MetaCommand| String::from_utf8(command.encode().unwrap()).unwrap();
        assert_eq!(text(add("k", 3, 60)), "ma k N60 J3 D3 v\r\n");
        assert_eq!(text(take("k", 3)), "ma k MD D3\r\n");
        assert_eq!(text(write("k", b"abc".to_vec(), Some(9), 60)), "ms k 3 T60 C9\r\nabc\r\n");
        assert_eq!(text(write("k", b"abc".to_vec(), None, 60)), "ms k 3 T60 ME\r\nabc\r\n");
        assert_eq!(text(read("k")) + &text(look("k")), "mg k v c\r\nmg k v\r\n");
        assert_eq!(text(reset("k", "0f", 60)), "ms k 3 MR T60\r\n@0f\r\n");
        assert_eq!(text(delete("k")), "md k\r\n");
    }
}
