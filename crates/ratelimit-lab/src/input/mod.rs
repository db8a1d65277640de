//! Reads logs, several of them merged by time: their requests, and what is wrong with their lines.

mod lines;
mod open;
mod requests;

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::Timestamp;

use crate::record::Record;
use requests::Requests;

pub use open::Source;
pub use requests::{BadLine, LinesRead, Reading};

/// Reads the requests of all sources, merged by time, and calls `each` for each of them. Adds the bytes that were read, before
/// they are decompressed, to `bytes`.
///
/// The order of the sources does not matter: those of rotated files, which a shell sorts by name, or of several servers over
/// the same time. Only those that overlap in time are open at once, and standard input and pipes from the beginning.
///
/// # Errors
/// If a source cannot be opened or has no known format, if standard input is named twice, if reading is strict and a line is
/// bad or a source cannot be read to its end, or if `each` fails.
pub fn read(
    sources: &[Source],
    reading: &Reading,
    bytes: &Arc<AtomicU64>,
    mut each: impl FnMut(&Record) -> anyhow::Result<()>,
) -> anyhow::Result<LinesRead> {
    let mut all = LinesRead::default();
    let mut closed = in_order(sources, reading)?.into_iter().peekable();
    let mut open: Vec<OpenSource> = Vec::new();
    loop {
        let first = open.iter_mut().min_by_key(|source| source.next.time);
        let latest = first.as_ref().map_or(Timestamp::MAX, |first| first.next.time);
        if let Some((_, source)) = closed.next_if(|(begin, _)| *begin <= latest) {
            let requests = Requests::new(source.name(), source.open(bytes)?, reading, &mut all)?;
            let mut source = OpenSource { requests, next: Record::default(), is_at_end: false };
            source.advance(&mut all)?;
            open.push(source);
        } else if let Some(first) = first {
            each(&first.next)?;
            first.advance(&mut all)?;
        } else {
            return Ok(all);
        }
        open.retain(|source| !source.is_at_end);
    }
}

/// A source that is being read.
struct OpenSource {
    requests: Requests<Box<dyn BufRead>>,
    next: Record,
    is_at_end: bool,
}

impl OpenSource {
    fn advance(&mut self, all: &mut LinesRead) -> anyhow::Result<()> {
        self.is_at_end = !self.requests.next(&mut self.next, all)?;
        Ok(())
    }
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
    let mut requests = Requests::new(name.to_owned(), BufReader::new(input), reading, all)?;
    let mut record = Record::default();
    while requests.next(&mut record, all)? {
        each(&record)?;
    }
    Ok(())
}

/// The sources in the order of their first requests. What can be read only once comes first.
fn in_order<'s>(sources: &'s [Source], reading: &Reading) -> anyhow::Result<Vec<(Timestamp, &'s Source)>> {
    anyhow::ensure!(
        sources.iter().filter(|source| **source == Source::Stdin).count() <= 1,
        "standard input can be read only once: write `-` only once"
    );
    let mut order = Vec::with_capacity(sources.len());
    for source in sources {
        let is_read_once = sources.len() == 1 || source.size().is_none();
        let begin = if is_read_once { None } else { first_time(source, reading)? };
        order.push((begin.unwrap_or(Timestamp::EPOCH), source));
    }
    order.sort_by_key(|(begin, _)| *begin);
    Ok(order)
}

/// The time of the first request; `None` if there is none.
fn first_time(source: &Source, reading: &Reading) -> anyhow::Result<Option<Timestamp>> {
    let reading = Reading { strict: false, ..reading.clone() };
    let (mut record, mut ignored) = (Record::default(), LinesRead::default());
    let mut requests = Requests::new(source.name(), source.open(&Arc::default())?, &reading, &mut ignored)?;
    Ok(requests.next(&mut record, &mut ignored)?.then_some(record.time))
}

/// The bytes read so far.
pub(crate) fn bytes_read(bytes: &AtomicU64) -> u64 {
    bytes.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
