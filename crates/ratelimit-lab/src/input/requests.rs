//! The requests of one stream, and what is wrong with its lines.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::lines::{Lines, RawLine};
use crate::format::{Expected, Format, Line, Parser, says_nothing};
use crate::record::{Record, Wanted};

/// The maximum number of bad lines that are described.
pub(super) const DESCRIBED: usize = 5;
/// The number of lines at the beginning of a file, one of which must show its format: a container may write others when it
/// starts. After [`FEW`] there are fewer if they are long.
const LOOKED_AT: usize = 1_000;
const FEW: usize = 20;
/// How many bytes of lines after the first [`FEW`] are looked at.
const BYTES_LOOKED_AT: usize = 1 << 18;
pub(super) const TOO_LONG: &str = "it is longer than a mebibyte";

/// How to read logs.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The fields to read.
    pub wanted: Wanted,
    /// What is known of the lines.
    pub expected: Expected,
    /// Whether a bad line, or a file that cannot be read to its end, is an error.
    pub strict: bool,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinesRead {
    /// All lines, including empty ones and comments.
    pub lines: u64,
    /// Lines that are requests.
    pub requests: u64,
    /// Bad lines: those that are neither requests nor empty, comments or the header of CSV.
    pub bad: u64,
    /// The first bad lines, at most five.
    pub first_bad: Vec<BadLine>,
    /// The formats of the files.
    pub formats: BTreeSet<Format>,
    /// Messages about files of which only a part could be read, for people.
    pub incomplete: Vec<String>,
}

/// A bad line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The name of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads a stream line by line.
pub(super) struct Requests<R> {
    lines: Lines<R>,
    file: File,
    /// `None` if the stream has no lines.
    parser: Option<Parser>,
    /// The first lines, which were read to detect the format; `None` for a line that is too long.
    first: VecDeque<Option<Vec<u8>>>,
    /// The error after the first lines.
    failed: Option<io::Error>,
}

/// The file that is being read.
struct File {
    name: String,
    /// The number of lines so far.
    number: u64,
    strict: bool,
}

impl<R: BufRead> Requests<R> {
    /// Reads the first lines and detects the format. `name` is the name of the stream in messages. What was read is added to
    /// `all`.
    pub(super) fn new(
        name: String,
        input: R,
        reading: &Reading,
        all: &mut LinesRead,
    ) -> anyhow::Result<Self> {
        let mut lines = Lines::new(input);
        let mut file = File { name, number: 0, strict: reading.strict };
        let (mut first, mut failed) = (VecDeque::new(), None);
        let mut bytes = 0;
        while failed.is_none() && (first.len() < FEW || (first.len() < LOOKED_AT && bytes < BYTES_LOOKED_AT))
        {
            match lines.next_line() {
                Ok(Some(RawLine::Whole(line))) => {
                    let is_first = file.number == 0 && first.is_empty();
                    let line = if is_first { without_mark(line) } else { line };
                    match first.is_empty() && says_nothing(line) {
                        true => file.count(all), // any number of empty lines and comments may come first
                        false => {
                            bytes += line.len();
                            first.push_back(Some(line.to_vec()));
                        }
                    }
                }
                Ok(Some(RawLine::TooLong)) => first.push_back(None),
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        let views: Vec<&[u8]> = first.iter().flatten().map(Vec::as_slice).collect();
        // An empty file may be one that was just rotated.
        let parser = match first.is_empty() {
            true => None,
            false => {
                let parser = Parser::detect(&views, &reading.wanted, &reading.expected);
                let parser = parser.with_context(|| file.name.clone())?;
                all.formats.insert(parser.format());
                Some(parser)
            }
        };
        Ok(Self { lines, file, parser, first, failed })
    }

    /// Reads the next request into `record`; `false` at the end. What was read is added to `all`.
    pub(super) fn next(&mut self, record: &mut Record, all: &mut LinesRead) -> anyhow::Result<bool> {
        let Self { lines, file, parser, first, failed } = self;
        loop {
            let kept = first.pop_front();
            let line = match &kept {
                Some(Some(line)) => Ok(Some(RawLine::Whole(line))),
                Some(None) => Ok(Some(RawLine::TooLong)),
                None => failed.take().map_or_else(|| lines.next_line(), Err),
            };
            match (line, parser.as_mut()) {
                (Ok(Some(RawLine::Whole(line))), Some(parser)) => {
                    if file.line(line, parser, record, all)? {
                        return Ok(true);
                    }
                }
                (Ok(Some(_)), _) => file.bad(TOO_LONG, all)?,
                (Ok(None), _) => return Ok(false),
                (Err(error), _) => file.incomplete(&error, all)?,
            }
        }
    }
}

/// The first line of a file without the byte order mark of UTF-8.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
}

impl File {
    /// Whether the line is a request.
    fn line(
        &mut self,
        line: &[u8],
        parser: &mut Parser,
        record: &mut Record,
        all: &mut LinesRead,
    ) -> anyhow::Result<bool> {
        match parser.parse(line, record) {
            Line::Request => {
                self.count(all);
                all.requests += 1;
                return Ok(true);
            }
            Line::Nothing => self.count(all),
            Line::Bad(reason) => self.bad(reason, all)?,
        }
        Ok(false)
    }

    fn count(&mut self, all: &mut LinesRead) {
        self.number += 1;
        all.lines += 1;
    }

    fn bad(&mut self, reason: &str, all: &mut LinesRead) -> anyhow::Result<()> {
        self.count(all);
        if self.strict {
            bail!("{}, line {}: {reason}", self.name, self.number);
        }
        all.bad += 1;
        if all.first_bad.len() < DESCRIBED {
            let bad = BadLine { file: self.name.clone(), line: self.number, reason: reason.to_owned() };
            all.first_bad.push(bad);
        }
        Ok(())
    }

    fn incomplete(&mut self, error: &io::Error, all: &mut LinesRead) -> anyhow::Result<()> {
        let message = format!("{}: reading ended after line {}: {error}", self.name, self.number);
        if self.strict {
            bail!(message);
        }
        all.incomplete.push(message);
        Ok(())
    }
}
