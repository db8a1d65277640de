//! The extended log format of W3C, as IIS and CloudFront write it: a comment `#Fields:` names the columns.

use super::target::set_column;
use super::time::Times;
use crate::field::Field;
use crate::record::{Record, Wanted};

const FIELDS: &[u8] = b"#Fields:";

/// The columns of a file.
#[derive(Debug)]
pub(super) struct Columns {
    count: usize,
    /// The columns with the date and the time, unless the time is in a column that is named.
    date_and_time: Option<(usize, usize)>,
    /// The index of each wanted field that has a column, with that column.
    fields: Vec<(usize, usize)>,
    time: Vec<u8>,
}

/// Whether a line names the columns.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.starts_with(FIELDS)
}

impl Columns {
    /// Reads the comment that names the columns; `None` if it has no time.
    pub(super) fn of_header(line: &[u8], wanted: &Wanted) -> Option<Self> {
        let names: Vec<&[u8]> = values(line.strip_prefix(FIELDS)?).collect();
        let place = |name: &str| {
            names.iter().position(|column_name| column_name.eq_ignore_ascii_case(name.as_bytes()))
        };
        let mut columns = Self {
            count: names.len(),
            date_and_time: place("date").zip(place("time")),
            fields: Vec::new(),
            time: Vec::new(),
        };
        for (index, field) in wanted.fields().iter().enumerate() {
            let name = wanted.only_name(field).or(match field {
                Field::Ip => Some("c-ip"),
                Field::User => Some("cs-username"),
                Field::Method => Some("cs-method"),
                Field::Path => Some("cs-uri-stem"),
                Field::Status => Some("sc-status"),
                Field::Bytes => Some("sc-bytes"),
                Field::Referer => Some("cs(Referer)"),
                Field::Agent => Some("cs(User-Agent)"),
                Field::Duration => Some("time-taken"),
                Field::Time | Field::Named(_) => None,
            });
            let column = name.and_then(place);
            columns.fields.extend(column.map(|column| (index, column)));
            if index == Wanted::TIME && name.is_some() {
                column?;
                columns.date_and_time = None;
            } else if index == Wanted::TIME {
                columns.date_and_time?;
            }
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
        let (mut date, mut time, mut count) = (&b""[..], &b""[..], 0);
        for (column, value) in values(line).enumerate() {
            count += 1;
            if let Some((of_date, of_time)) = self.date_and_time {
                date = if column == of_date { value } else { date };
                time = if column == of_time { value } else { time };
            }
            for (index, _) in self.fields.iter().filter(|(_, field_column)| *field_column == column) {
                set_column(record, wanted, *index, value);
            }
        }
        if count != self.count {
            return Err("it has another number of columns than #Fields names");
        }
        let time = match self.date_and_time {
            Some(_) => {
                self.time.clear();
                // The times of this format are in UTC.
                for part in [date, b"T", time, b"Z"] {
                    self.time.extend_from_slice(part);
                }
                &self.time
            }
            None => record.get(Wanted::TIME).ok_or("there is no time")?,
        };
        record.time = times.any(time).ok_or("the date and the time are not like 2026-01-05 10:00:00")?;
        Ok(())
    }
}

/// The values of a line. None has a space in it: they are written as `+` or `%20`.
fn values(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|value| !value.is_empty())
}
