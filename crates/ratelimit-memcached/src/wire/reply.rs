//! Decodes a server's replies, one for each command.

use smallvec::SmallVec;

use crate::error::{self, ERRORS};
use crate::wire::keys::MARK;
use ratelimit_core::{ErrorKind, StoreError};

/// The longest first line of a reply: its code, a size and the requested flags, or the text of an error.
const LONGEST_LINE: usize = 2_048;

/// The largest item size that a server can be configured for.
const LARGEST: usize = 1 << 30;

/// A server's reply to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The item's value, and if requested its unique number and its remaining lifetime in seconds.
    Value { bytes: SmallVec<[u8; 24]>, unique: Option<u64>, left: Option<u64> },
    /// Success.
    Done,
    /// There is no such item.
    Missing,
    /// The item is not as expected: another writer has changed it.
    Lost,
}

/// The content of a counter's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter<'a> {
    /// A number of units.
    Count(u64),
    /// It has been reset: the units are counted under this mark.
    Reset(&'a str),
}

/// What the received bytes begin with.
#[derive(Debug)]
pub(crate) enum Received {
    /// An incomplete reply.
    Part,
    /// A reply and its size in bytes.
    Whole { reply: Result<Reply, StoreError>, stamp: Stamp, size: usize },
    /// Not a reply of a Memcached server.
    Strange,
}

/// The stamp in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    Of(u64),
    /// Errors carry none, and old servers omit it where there is no such item.
    None,
    /// It is missing although the reply should carry it.
    Lacking,
}

impl Reply {
    /// The content of a counter's item; a missing item is a count of zero.
    ///
    /// The server pads a count that has lost a digit with spaces.
    pub(crate) fn counter(&self) -> Result<Counter<'_>, StoreError> {
        match self {
            Self::Missing => Ok(Counter::Count(0)),
            Self::Value { bytes, .. } => match number(bytes.trim_ascii_end()) {
                Some(count) => Ok(Counter::Count(count)),
                None => mark(bytes).map(Counter::Reset).ok_or_else(|| ERRORS.corrupt_value()),
            },
            Self::Done | Self::Lost => Err(error::strange_response()),
        }
    }
}

/// Decodes the first reply in `bytes`.
pub(crate) fn receive(bytes: &[u8]) -> Received {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > LONGEST_LINE { Received::Strange } else { Received::Part };
    };
    let Some(line) = bytes[..end].strip_suffix(b"\r") else { return Received::Strange };
    let size = end + 1;
    let mut words = line.split(|byte| *byte == b' ');
    let whole = |reply, stamp| Received::Whole { reply: Ok(reply), stamp, size };
    match words.next().unwrap_or_default() {
        b"VA" => value(words, bytes, size),
        b"HD" => whole(Reply::Done, stamp(words).unwrap_or(Stamp::Lacking)),
        b"EN" | b"NF" => whole(Reply::Missing, stamp(words).unwrap_or(Stamp::None)),
        b"EX" | b"NS" => whole(Reply::Lost, stamp(words).unwrap_or(Stamp::Lacking)),
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
            let line = String::from_utf8_lossy(line);
            let mut failure = error::from_refusal(&line);
            // A proxy that has lost its server says so, even if the server has received the command.
            if failure.kind() == ErrorKind::Server && line.starts_with("SERVER_ERROR") {
                failure = ERRORS.of(ErrorKind::Unreachable, error::text_of(&line)).maybe_applied();
            }
            Received::Whole { reply: Err(failure), stamp: Stamp::None, size }
        }
        _ => Received::Strange,
    }
}

fn value<'a>(mut words: impl Iterator<Item = &'a [u8]> + Clone, bytes: &[u8], start: usize) -> Received {
    let size = words.next().and_then(number).and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size <= LARGEST) else { return Received::Strange };
    let Some(rest) = bytes[start..].get(..size + 2) else { return Received::Part };
    if &rest[size..] != b"\r\n" {
        return Received::Strange;
    }
    let unique = words.clone().find_map(|flag| number(flag.strip_prefix(b"c")?));
    // An item that never expires has -1.
    let left =
        words.clone().find_map(|flag| flag.strip_prefix(b"t")).map(|left| number(left).unwrap_or(u64::MAX));
    let reply = Reply::Value { bytes: SmallVec::from_slice(&rest[..size]), unique, left };
    let stamp = stamp(words).unwrap_or(Stamp::Lacking);
    Received::Whole { reply: Ok(reply), stamp, size: start + size + 2 }
}

fn stamp<'a>(mut flags: impl Iterator<Item = &'a [u8]>) -> Option<Stamp> {
    let digits = flags.find_map(|flag| flag.strip_prefix(b"O"))?;
    let stamp = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Some(stamp.map_or(Stamp::Lacking, Stamp::Of))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn mark(bytes: &[u8]) -> Option<&str> {
    let mark = std::str::from_utf8(bytes.strip_prefix(b"@")?).ok()?;
    (mark.len() == MARK && mark.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Reply {
        Reply::Value { bytes: SmallVec::from_slice(bytes), unique: None, left: None }
    }

    #[test]
    fn counts_are_read_with_their_padding() {
        for (bytes, count) in [(b"12".as_slice(), 12), (b"9 ", 9), (b"0   ", 0)] {
            assert_eq!(of(bytes).counter().ok(), Some(Counter::Count(count)));
        }
        assert_eq!(Reply::Missing.counter().ok(), Some(Counter::Count(0)));
        assert_eq!(of(b"@00ff00ff00ff00ff").counter().ok(), Some(Counter::Reset("00ff00ff00ff00ff")));
        let foreign: [&[u8]; 12] = [
            b"",
            b" ",
            b" 9",
            b"-1",
            b"+1",
            b"1a",
            b"99999999999999999999",
            b"\xff",
            b"@",
            b"@00ff",
            b"@00ff00ff00ff00f!",
            b"@00ff00ff00ff00ff ",
        ];
        for foreign in foreign {
            assert!(of(foreign).counter().is_err(), "{foreign:?}");
        }
    }

    /// The reply, its stamp, and the bytes after it.
    fn whole(bytes: &[u8]) -> (Result<Reply, StoreError>, Stamp, &[u8]) {
        match receive(bytes) {
            Received::Whole { reply, stamp, size } => (reply, stamp, &bytes[size..]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn replies_are_those_of_the_protocol() {
        let rest = b"HD\r\n".as_slice();
        let with_rest = |bytes: &[u8]| [bytes, rest].concat();
        let cases: [(&[u8], Reply, Stamp); 8] = [
            (b"HD O1f\r\n", Reply::Done, Stamp::Of(31)),
            (b"HD\r\n", Reply::Done, Stamp::Lacking),
            (b"EN\r\n", Reply::Missing, Stamp::None),
            (b"NF O2\r\n", Reply::Missing, Stamp::Of(2)),
            (b"EX O2\r\n", Reply::Lost, Stamp::Of(2)),
            (b"NS O2\r\n", Reply::Lost, Stamp::Of(2)),
            (b"VA 2 O2\r\n12\r\n", of(b"12"), Stamp::Of(2)),
            (b"VA 4 Ox\r\n\r\n12\r\n", of(b"\r\n12"), Stamp::Lacking),
        ];
        for (bytes, reply, stamp) in cases {
            let all = with_rest(bytes);
            let (found, whose, left) = whole(&all);
            assert_eq!((found.ok(), whose, left), (Some(reply), stamp, rest));
        }
        for (flag, left) in [("t60", 60), ("t-1", u64::MAX)] {
            let line = format!("VA 1 c17 {flag} O3\r\n5\r\n");
            let (reply, stamp, _) = whole(line.as_bytes());
            let bytes = SmallVec::from_slice(b"5");
            let expected = Reply::Value { bytes, unique: Some(17), left: Some(left) };
            assert_eq!((reply.ok(), stamp), (Some(expected), Stamp::Of(3)));
        }
        for error in ["ERROR\r\n", "CLIENT_ERROR bad\r\n", "SERVER_ERROR out of memory\r\n"] {
            let (reply, stamp, _) = whole(error.as_bytes());
            assert!(reply.is_err() && stamp == Stamp::None, "{error}");
        }
    }

    #[test]
    fn invalid_replies_are_recognized() {
        let strange: [&[u8]; 6] = [
            b"+OK\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"HD\n",
            b"VA x O1\r\n",
            b"VA 1 O1\r\n123\r\n",
            b"VA 9999999999999 O1\r\n",
        ];
        for bytes in strange {
            assert!(matches!(receive(bytes), Received::Strange), "{bytes:?}");
        }
        assert!(matches!(receive(&[b'x'; LONGEST_LINE + 1]), Received::Strange));
        for part in [b"".as_slice(), b"V", b"VA 2 O1\r", b"VA 2 O1\r\n12", b"VA 2 O1\r\n12\r"] {
            assert!(matches!(receive(part), Received::Part), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, begin in "(VA|HD|EN|CLIENT_ERROR)? ?[0-9]{0,22}( [Oc][0-9a-f]{0,20}){0,2}\r?\n?") {
            let bytes = [begin.into_bytes(), bytes].concat();
            if let Received::Whole { size, .. } = receive(&bytes) {
                prop_assert!(size <= bytes.len());
            }
        }
    }
}
