//! Reads the wanted columns of a line of CSV.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::target::set_column;
use super::time::Times;
use crate::record::{LONGEST, Record, Wanted};

/// The columns of a file, according to its header, and space to split a line.
#[derive(Debug)]
pub(super) struct Columns {
    reader: Reader,
    header: Vec<u8>,
    /// The number of columns.
    count: usize,
    /// The index of each wanted field that has a column, with that column.
    fields: Vec<(usize, usize)>,
    values: Vec<u8>,
    ends: Vec<usize>,
}

/// The space for the values of a line, in bytes: the longest line, and its end.
const VALUES: usize = LONGEST + 2;
/// The maximum number of columns.
const COLUMNS: usize = 1_024;

const TOO_MUCH: &str = "it has too many or too long columns";

impl Columns {
    /// Reads the header; `None` if it does not name a column with the time. The separator is the comma, the semicolon or
    /// the tab, whichever it has most of.
    pub(super) fn of_header(header: &[u8], wanted: &Wanted) -> Option<Self> {
        let separator =
            [b',', b';', b'\t'].into_iter().max_by_key(|byte| memchr::memchr_iter(*byte, header).count())?;
        let mut columns = Self {
            reader: ReaderBuilder::new().delimiter(separator).build(),
            header: header.to_vec(),
            count: 0,
            fields: Vec::new(),
            values: vec![0; VALUES],
            ends: vec![0; COLUMNS],
        };
        let count = columns.split(header).ok()?;
        let names: Vec<String> =
            (0..count).map(|at| String::from_utf8_lossy(columns.value(at)).trim().to_owned()).collect();
        columns.count = count;
        for (index, field) in wanted.fields().iter().enumerate() {
            let column = wanted
                .names(field)
                .into_iter()
                .find_map(|name| names.iter().position(|column_name| column_name == name));
            if index == Wanted::TIME {
                column?;
            }
            columns.fields.extend(column.map(|column| (index, column)));
        }
        Some(columns)
    }

    /// Whether a column has the values of the field with this index.
    pub(super) fn has(&self, index: usize) -> bool {
        self.fields.iter().any(|(field, _)| *field == index)
    }

    /// Reads a line into the record.
    pub(super) fn parse(
        &mut self,
        line: &[u8],
        wanted: &Wanted,
        times: &mut Times,
        record: &mut Record,
    ) -> Result<(), &'static str> {
        if line == self.header {
            return Err("it is the header again");
        }
        if self.split(line)? != self.count {
            return Err("it has another number of columns than the header");
        }
        for (index, column) in &self.fields {
            set_column(record, wanted, *index, self.value(*column).trim_ascii());
        }
        let time = record.get(Wanted::TIME).ok_or("there is no time")?;
        record.time = times.any(time).ok_or_else(|| times.reason(time))?;
        Ok(())
    }

    /// Splits a line, and returns the number of its values.
    fn split(&mut self, line: &[u8]) -> Result<usize, &'static str> {
        self.reader.reset();
        let (_, read, written, mut ended) = self.reader.read_record(line, &mut self.values, &mut self.ends);
        if read < line.len() {
            return Err(TOO_MUCH);
        }
        // The line feed, which the line does not have any more, and the end of the text.
        for end in [&b"\n"[..], b""] {
            let values = self.values.get_mut(written..).unwrap_or_default();
            let ends = self.ends.get_mut(ended..).unwrap_or_default();
            let (result, _, more, ends) = self.reader.read_record(end, values, ends);
            if more > 0 {
                return Err("a quote is not closed: each record has to be on a line of its own");
            }
            ended += ends;
            match result {
                ReadRecordResult::Record => return Ok(ended),
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull | ReadRecordResult::End => {
                    break;
                }
            }
        }
        Err(TOO_MUCH)
    }

    fn value(&self, column: usize) -> &[u8] {
        let begin = column.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(column).copied().unwrap_or(begin);
        self.values.get(begin..end).unwrap_or_default()
    }
}
