//! Lines of a stream, with a bound on their length.

use std::io::{self, Read};

use memchr::memchr;

use crate::record::LONGEST;

/// Reads lines into one buffer, whose size does not depend on their length.
pub(crate) struct Lines<R> {
    input: R,
    buffer: Box<[u8]>,
    /// `buffer[begin..end]` was read and is not returned yet.
    begin: usize,
    end: usize,
    at_end: bool,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RawLine<'a> {
    /// The line without its end.
    Whole(&'a [u8]),
    /// The line is as long as [`LONGEST`] or longer, and was skipped.
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; LONGEST].into(), begin: 0, end: 0, at_end: false }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        let mut searched = 0;
        let mut is_skipping = false;
        loop {
            let held = self.buffer.get(self.begin..self.end).unwrap_or_default();
            if let Some(at) = held.get(searched..).and_then(|new| memchr(b'\n', new)) {
                let begin = self.begin;
                let length = searched + at;
                self.begin += length + 1;
                if is_skipping {
                    return Ok(Some(RawLine::TooLong));
                }
                return Ok(Some(RawLine::Whole(self.line(begin, begin + length))));
            }
            searched = held.len();
            if self.at_end {
                let begin = std::mem::replace(&mut self.begin, self.end);
                return Ok(match (is_skipping, searched) {
                    (true, _) => Some(RawLine::TooLong),
                    (false, 0) => None,
                    (false, _) => Some(RawLine::Whole(self.line(begin, self.end))),
                });
            }
            if searched == self.buffer.len() {
                (self.begin, self.end, searched, is_skipping) = (0, 0, 0, true);
            }
            self.fill()?;
        }
    }

    fn line(&self, begin: usize, end: usize) -> &[u8] {
        let line = self.buffer.get(begin..end).unwrap_or_default();
        // After a crash, a file can have zeros in place of what had not been written yet.
        let begin = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
        let line = line.get(begin..).unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Reads more. An error is returned once, and then the input is at its end. The line that was being read is dropped,
    /// since its rest is missing.
    fn fill(&mut self) -> io::Result<()> {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let space = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.input.read(space) {
                Ok(0) => self.at_end = true,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    (self.begin, self.end, self.at_end) = (0, 0, true);
                    return Err(error);
                }
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<String> {
        // Reading a byte at a time must give the same lines as reading all at once.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
                buffer[0] = *first;
                self.0 = rest;
                Ok(1)
            }
        }
        fn collect(mut lines: Lines<impl Read>) -> Vec<String> {
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                all.push(format!("{line:?}"));
            }
            all
        }
        let fast = collect(Lines::new(text));
        if text.len() < 1_000 {
            assert_eq!(collect(Lines::new(Slow(text))), fast);
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
