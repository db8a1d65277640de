//! Reads requests of the Redis protocol: arrays of bulk strings, or a line of words.
//!
//! Written by hand: the parsers of crates read nested arrays recursively without a bound, so that a request of 64 KiB ends
//! the process; and a request has none.

use std::fmt;

/// The maximum length of a request, and so of what is kept of one that is incomplete.
pub(crate) const LONGEST: usize = 64 * 1_024;

/// The maximum number of arguments.
const MOST: usize = 64;

/// What a client has sent that is no request. The connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The request, or a part of it, is longer than this server reads.
    TooLong,
    /// A request begins with `*` and a number, and each of its arguments with `$` and its length.
    Malformed,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the request is too long",
            Self::Malformed => "expected an array of bulk strings",
        })
    }
}

/// A request's arguments and how many bytes it has, if it is complete.
pub type SplitOff<'a> = Result<Option<(Vec<&'a [u8]>, usize)>, ProtocolError>;

/// Splits the first request off: its arguments, and how many bytes it has. `None` if it is not complete yet. A request
/// without arguments asks nothing, and gets no answer.
///
/// # Errors
/// If it is not one, or is too long.
pub fn split_off(bytes: &[u8]) -> SplitOff<'_> {
    let request = if bytes.first() == Some(&b'*') { array(bytes)? } else { words(bytes)? };
    match request {
        Some((_, length)) if length > LONGEST => Err(ProtocolError::TooLong),
        None if bytes.len() >= LONGEST => Err(ProtocolError::TooLong),
        request => Ok(request),
    }
}

fn array(bytes: &[u8]) -> SplitOff<'_> {
    let Some((count, mut place)) = number(bytes, b'*', 0)? else { return Ok(None) };
    if count > MOST {
        return Err(ProtocolError::TooLong);
    }
    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((length, begin)) = number(bytes, b'$', place)? else { return Ok(None) };
        if length > LONGEST {
            return Err(ProtocolError::TooLong);
        }
        let end = begin + length;
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => arguments.push(&bytes[begin..end]),
            Some(_) => return Err(ProtocolError::Malformed),
            None => return Ok(None),
        }
        place = end + 2;
    }
    Ok(Some((arguments, place)))
}

/// The number in the line that begins at `place` with `kind`, and where the next line begins.
fn number(bytes: &[u8], kind: u8, place: usize) -> Result<Option<(usize, usize)>, ProtocolError> {
    let Some(line) = bytes.get(place..).filter(|line| !line.is_empty()) else { return Ok(None) };
    if line[0] != kind {
        return Err(ProtocolError::Malformed);
    }
    // No number that is read has more digits.
    let digits = line[1..].iter().take(8).position(|byte| *byte == b'\r');
    let Some(digits) = digits else {
        return if line.len() > 8 { Err(ProtocolError::TooLong) } else { digits_so_far(&line[1..]) };
    };
    let text =
        str::from_utf8(&line[1..=digits]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse().ok()).ok_or(ProtocolError::Malformed)?;
    match line.get(digits + 2) {
        Some(b'\n') => Ok(Some((number, place + digits + 3))),
        Some(_) => Err(ProtocolError::Malformed),
        None => Ok(None),
    }
}

/// An incomplete number: waits for the rest if these are digits.
fn digits_so_far(text: &[u8]) -> Result<Option<(usize, usize)>, ProtocolError> {
    if text.iter().all(u8::is_ascii_digit) { Ok(None) } else { Err(ProtocolError::Malformed) }
}

/// A line of words, as people type it.
fn words(bytes: &[u8]) -> SplitOff<'_> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let words: Vec<&[u8]> =
        bytes[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(MOST + 1).collect();
    if words.len() > MOST { Err(ProtocolError::TooLong) } else { Ok(Some((words, end + 1))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_off_one_by_one() {
        for (bytes, expected) in [
            ("*1\r\n$4\r\nPING\r\n", Some((vec!["PING"], 14))),
            ("*2\r\n$4\r\nPING\r\n$0\r\n\r\n*1\r\n", Some((vec!["PING", ""], 20))),
            ("*1\r\n$4\r\nPI\r\n\r\n", Some((vec!["PI\r\n"], 14))),
            ("PING  hello\r\nPING", Some((vec!["PING", "hello"], 13))),
            ("\r\n", Some((vec![], 2))),
            ("*0\r\n", Some((vec![], 4))),
        ] {
            let expected = expected.map(|(words, length): (Vec<&str>, usize)| {
                (words.into_iter().map(str::as_bytes).collect::<Vec<_>>(), length)
            });
            let length = expected.as_ref().map_or(0, |(_, length)| *length);
            assert_eq!(split_off(bytes.as_bytes()), Ok(expected), "{bytes:?}");
            for cut in 0..length {
                assert_eq!(split_off(&bytes.as_bytes()[..cut]), Ok(None), "{bytes:?} up to {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_request_is_refused_at_once() {
        let nested = "*1\r\n".repeat(10_000);
        for bytes in [
            "*-1\r\n",
            "*x\r\n",
            "*1x",
            "*1\r\nPING\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$+4\r\nPING\r\n",
            "*1\r\n$4\r\nPINGxx",
            "*1\rx",
            "*\r\n",
            "*1\r\n:1\r\n",
            &nested,
        ] {
            assert_eq!(split_off(bytes.as_bytes()), Err(ProtocolError::Malformed), "{bytes:.20}");
        }
        let words = "a ".repeat(65) + "\n";
        let endless = "x".repeat(LONGEST);
        for bytes in [
            "*65\r\n",
            "*1000000000",
            "*99999999999999999999\r\n",
            "*1\r\n$1000000\r\n",
            "*1\r\n$2147483648\r\n",
            &words,
            &endless,
        ] {
            assert_eq!(split_off(bytes.as_bytes()), Err(ProtocolError::TooLong), "{bytes:.20}");
        }
    }

    #[test]
    fn many_large_arguments_are_bounded_together() {
        let argument = format!("$60000\r\n{}\r\n", "x".repeat(60_000));
        let request = format!("*2\r\n{argument}{argument}");
        assert_eq!(split_off(request.as_bytes()), Err(ProtocolError::TooLong));
        assert_eq!(split_off(&request.as_bytes()[..LONGEST]), Err(ProtocolError::TooLong));
    }
}
