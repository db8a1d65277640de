//! Lines of a stream, with a bound on their length.

use std::io::{self, BufRead, Read as _};

use crate::record::LONGEST;

/// Reads lines into one buffer, which does not become longer than [`LONGEST`].
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    has_failed: bool,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RawLine<'a> {
    /// The line without its end.
    Whole(&'a [u8]),
    /// The line is as long as [`LONGEST`] or longer, and was skipped.
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), has_failed: false }
    }

    /// The next line; `None` at the end. An error is returned once, and then the input is at its end. The line that was being
    /// read is dropped, since its rest is missing.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        if self.has_failed {
            return Ok(None);
        }
        let is_whole = self.read().inspect_err(|_| self.has_failed = true)?;
        Ok(match is_whole {
            false => Some(RawLine::TooLong),
            true if self.line.is_empty() => None,
            true => Some(RawLine::Whole(without_end(&self.line))),
        })
    }

    /// Reads a line with its end, nothing at the end of the input. Returns whether that is all of the line, or else skips the
    /// rest.
    fn read(&mut self) -> io::Result<bool> {
        self.line.clear();
        let read = (&mut self.input).take(LONGEST as u64).read_until(b'\n', &mut self.line)?;
        let is_whole = read < LONGEST || self.line.ends_with(b"\n");
        if !is_whole {
            self.input.skip_until(b'\n')?;
        }
        Ok(is_whole)
    }
}

/// A line without the characters that end it, and without zeros in front: after a crash, a file can have zeros in place of
/// what had not been written yet.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let begin = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
    let line = line.get(begin..).unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<String> {
        fn collect(mut lines: Lines<impl BufRead>) -> Vec<String> {
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                all.push(format!("{line:?}"));
            }
            all
        }
        let fast = collect(Lines::new(text));
        // Reading a byte at a time must give the same lines as reading all at once.
        if text.len() < 1_000 {
            assert_eq!(collect(Lines::new(io::BufReader::with_capacity(1, text))), fast);
        }
        fast
    }

    #[test]
    fn lines_end_with_a_line_feed_or_both_characters() {
        let whole = |text: &str| format!("{:?}", RawLine::Whole(text.as_bytes()));
        assert_eq!(all(b""), Vec::<String>::new());
        assert_eq!(all(b"a\n"), [whole("a")]);
        assert_eq!(all(b"a\r\n\nbc"), [whole("a"), whole(""), whole("bc")]);
        assert_eq!(all(b"a\r\nb\r"), [whole("a"), whole("b")]);
        assert_eq!(all(b"\0\0a\n\0\nb\0c"), [whole("a"), whole(""), whole("b\0c")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_a_bounded_buffer() {
        let mut text = b"a\n".to_vec();
        text.extend(vec![b'x'; 100 << 20]);
        text.extend(b"\nb\n");
        let around = all(&text);
        assert_eq!(around.len(), 3);
        assert_eq!((&*around[1], &*around[2]), ("TooLong", &*format!("{:?}", RawLine::Whole(b"b"))));
        assert_eq!(all(&vec![b'x'; LONGEST + 1]), ["TooLong"]);
        let longest = [&vec![b'x'; LONGEST - 1][..], b"\n"].concat();
        assert!(all(&longest)[0].starts_with("Whole"));
    }
}
