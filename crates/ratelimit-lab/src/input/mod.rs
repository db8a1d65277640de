//! Reads logs one after another: their requests, and what is wrong with their lines.

mod lines;
mod open;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use ratelimit_core::Timestamp;
use serde::Serialize;

use crate::format::{Format, Line, Parser, is_blank};
use crate::record::{LONGEST, Record, Wanted};
use lines::{Lines, RawLine};

pub use open::Source;

/// How to read logs.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The fields to read.
    pub wanted: Wanted,
    /// The format, or `None` to detect it in each file.
    pub format: Option<Format>,
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

/// The maximum number of bad lines that are described.
const DESCRIBED: usize = 5;
/// The number of lines at the beginning of a file, one of which must show its format.
const LOOKED_AT: usize = 20;

/// Reads the sources one after another and calls `each` for each request. Adds the bytes that were read, before they are
/// decompressed, to `bytes`.
///
/// # Errors
/// If a source cannot be opened or has no known format, if reading is strict and a line is bad or a source cannot be read
/// to its end, or if `each` fails.
pub fn read(
    sources: &[Source],
    reading: &Reading,
    bytes: &Arc<AtomicU64>,
    mut each: impl FnMut(&Record) -> anyhow::Result<()>,
) -> anyhow::Result<LinesRead> {
    let mut all = LinesRead::default();
    for source in sources {
        let input = source.open(bytes)?;
        read_one(&source.name(), input, reading, &mut all, &mut each)?;
    }
    Ok(all)
}

/// Reads one stream, such as generated traffic, and calls `each` for each request. `name` is the name of the stream in
/// messages, and its counts are added to `all`.
///
/// # Errors
/// As of [`read`].
pub fn read_one(
    name: &str,
    input: impl Read,
    reading: &Reading,
    all: &mut LinesRead,
    each: &mut impl FnMut(&Record) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // The first lines are kept until one of them has shown the format.
    let mut lines = Lines::new(input);
    let mut first: Vec<Vec<u8>> = Vec::new();
    let mut file = File { name, number: 0, reading, all };
    let mut failed = None;
    while first.len() < LOOKED_AT {
        match lines.next_line() {
            Ok(Some(RawLine::Whole(line))) => {
                let line = if file.number == 0 && first.is_empty() { without_mark(line) } else { line };
                match first.is_empty() && is_blank(line) {
                    true => file.count(), // any number of empty lines and comments may come first
                    false => first.push(line.to_vec()),
                }
            }
            Ok(Some(RawLine::TooLong)) => first.push(vec![b' '; LONGEST + 1]),
            Ok(None) => break,
            Err(error) => failed = Some(error),
        }
    }
    if first.is_empty() {
        // An empty file, such as one that was just rotated, or one that cannot be read at all.
        return failed.map_or(Ok(()), |error| file.incomplete(&error));
    }
    let views: Vec<&[u8]> = first.iter().map(Vec::as_slice).filter(|line| line.len() <= LONGEST).collect();
    let mut parser =
        Parser::detect(&views, &reading.wanted, reading.format).with_context(|| name.to_owned())?;
    let mut record = Record::default();
    for line in &first {
        if line.len() > LONGEST {
            file.bad(TOO_LONG)?;
        } else if file.line(line, &mut parser, &mut record)? {
            each(&record)?;
        }
    }
    drop(first);
    if let Some(error) = failed {
        file.incomplete(&error)?;
    }
    loop {
        let is_request = match lines.next_line() {
            Ok(Some(RawLine::Whole(line))) => file.line(line, &mut parser, &mut record)?,
            Ok(Some(RawLine::TooLong)) => {
                file.bad(TOO_LONG)?;
                false
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                file.incomplete(&error)?;
                false
            }
        };
        if is_request {
            each(&record)?;
        }
    }
}

/// The first line of a file without the byte order mark of UTF-8.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
}

const TOO_LONG: &str = "it is longer than a mebibyte";

/// The file that is being read.
struct File<'a> {
    name: &'a str,
    number: u64,
    reading: &'a Reading,
    all: &'a mut LinesRead,
}

impl File<'_> {
    /// Whether the line is a request.
    fn line(&mut self, line: &[u8], parser: &mut Parser, record: &mut Record) -> anyhow::Result<bool> {
        match parser.parse(line, record) {
            Line::Request => {
                self.count();
                self.all.requests += 1;
                return Ok(true);
            }
            Line::Nothing => self.count(),
            Line::Bad(reason) => self.bad(reason)?,
        }
        Ok(false)
    }

    fn count(&mut self) {
        self.number += 1;
        self.all.lines += 1;
    }

    fn bad(&mut self, reason: &str) -> anyhow::Result<()> {
        self.count();
        if self.reading.strict {
            bail!("{}, line {}: {reason}", self.name, self.number);
        }
        self.all.bad += 1;
        if self.all.first_bad.len() < DESCRIBED {
            let bad = BadLine { file: self.name.to_owned(), line: self.number, reason: reason.to_owned() };
            self.all.first_bad.push(bad);
        }
        Ok(())
    }

    fn incomplete(&mut self, error: &std::io::Error) -> anyhow::Result<()> {
        let message = format!("{}: reading ended after line {}: {error}", self.name, self.number);
        if self.reading.strict {
            bail!(message);
        }
        self.all.incomplete.push(message);
        Ok(())
    }
}

/// Sorts files by the times of their first requests, since a shell expands `access.log*` to the newest one first. Returns
/// whether that has changed their order. A file without a request stays behind the file that it came after.
///
/// Nothing is sorted if one of the sources is standard input or a pipe, since these can be read only once.
pub fn sort_by_time(sources: &mut [Source], reading: &Reading) -> bool {
    if sources.len() < 2 || sources.iter().any(|source| source.size().is_none()) {
        return false;
    }
    let mut order: Vec<(Timestamp, Source)> = Vec::with_capacity(sources.len());
    let mut last = Timestamp::EPOCH;
    for source in sources.iter() {
        last = first_time(source, reading).unwrap_or(last);
        order.push((last, source.clone()));
    }
    let was_sorted = order.is_sorted_by_key(|(time, _)| *time);
    order.sort_by_key(|(time, _)| *time);
    for (place, (_, source)) in sources.iter_mut().zip(order) {
        *place = source;
    }
    !was_sorted
}

fn first_time(source: &Source, reading: &Reading) -> Option<Timestamp> {
    let input = source.open(&Arc::new(AtomicU64::new(0))).ok()?;
    let mut time = None;
    let relaxed = Reading { strict: false, ..reading.clone() };
    // The error ends reading after the first request.
    let _ = read_one("", input, &relaxed, &mut LinesRead::default(), &mut |record: &Record| {
        time = Some(record.time);
        bail!("found")
    });
    time
}

/// The bytes read so far.
pub(crate) fn bytes_read(bytes: &AtomicU64) -> u64 {
    bytes.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
