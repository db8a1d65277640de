//! LTSV: values with labels, such as `host:192.0.2.1`, and tabs between them.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::{memchr, memchr_iter};
use smallvec::SmallVec;

use super::target::{set_column, set_request};
use super::time::Times;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// The labels of the wanted fields.
#[derive(Debug)]
pub(super) struct Labels {
    /// For each label the indices of the fields that it may have the values of, and its place among the names of each.
    fields: HashMap<Box<[u8]>, Places, FixedState>,
    /// The labels of the last line in their order, since the next line usually has the same, and what `fields` has of each.
    last: Vec<(Box<[u8]>, Places)>,
}

/// How many labels of the last line are known.
const REMEMBERED: usize = 64;

/// A value, and the place of its label among the names of a field.
type Ranked<'a> = (usize, &'a [u8]);

/// A field, and the place of a label among the names of it.
type Place = (usize, usize);

type Places = SmallVec<[Place; 2]>;

impl Labels {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let mut fields: HashMap<Box<[u8]>, Places, FixedState> = HashMap::default();
        for (index, field) in wanted.fields().iter().enumerate() {
            let mut names = wanted.names(field);
            // What ltsv.org recommends. Where another label has the client, `host` is the one that the request is for.
            names.extend(match field {
                _ if wanted.only_name(field).is_some() => &[][..],
                Field::Ip => &["host"],
                Field::Agent => &["ua"],
                _ => &[],
            });
            for (rank, name) in names.into_iter().enumerate() {
                fields.entry(name.as_bytes().into()).or_default().push((index, rank));
            }
        }
        // The first line of the request is behind the fields.
        for (rank, name) in ["req", "request"].into_iter().enumerate() {
            fields.entry(name.as_bytes().into()).or_default().push((wanted.fields().len(), rank));
        }
        Self { fields, last: Vec::new() }
    }

    /// Reads a line into the record.
    pub(super) fn parse(
        &mut self,
        line: &[u8],
        wanted: &Wanted,
        times: &mut Times,
        record: &mut Record,
    ) -> Result<(), &'static str> {
        let mut found: SmallVec<[Option<Ranked<'_>>; 16]> = SmallVec::new();
        found.resize(wanted.fields().len() + 1, None);
        for (nth, text) in values(line).enumerate() {
            let (places, value) = self.places(nth, text).ok_or("a value between tabs has no label")?;
            for (index, rank) in places {
                let has_value = !value.is_empty() && value != b"-";
                if let Some(place) = found.get_mut(*index).filter(|_| has_value)
                    && place.is_none_or(|(found_rank, _)| rank < &found_rank)
                {
                    *place = Some((*rank, value));
                }
            }
        }
        let request = found.pop().flatten();
        for (index, value) in found.into_iter().enumerate() {
            if let Some((_, value)) = value {
                set_column(record, wanted, index, value);
            }
        }
        if let Some((_, request)) = request {
            set_request(record, wanted, request);
        }
        let time = record.get(Wanted::TIME).ok_or("there is no time; name its label with --time-field")?;
        record.time = times.any(time).ok_or_else(|| times.reason(time))?;
        Ok(())
    }

    /// The places of the label of the nth text of a line, and the value behind it.
    fn places<'a>(&mut self, nth: usize, text: &'a [u8]) -> Option<(&[Place], &'a [u8])> {
        let last = self.last.get(nth).and_then(|(label, _)| text.strip_prefix(&**label)?.strip_prefix(b":"));
        if let Some(value) = last {
            return Some((&self.last.get(nth)?.1, value));
        }
        let (label, value) = labeled(text)?;
        let places = self.fields.get(label);
        let known = (label.into(), places.cloned().unwrap_or_default());
        match self.last.get_mut(nth) {
            Some(last) => *last = known,
            None if nth < REMEMBERED => self.last.push(known),
            None => {}
        }
        Some((places.map_or(&[], |places| places), value))
    }
}

/// Whether a line is of this format.
pub(super) fn is_line(line: &[u8], wanted: &Wanted) -> bool {
    let mut record = Record::default();
    record.clear(wanted.fields().len());
    memchr(b'\t', line).is_some()
        && values(line).all(|value| labeled(value).is_some())
        && Labels::of(wanted).parse(line, wanted, &mut Times::in_utc(), &mut record).is_ok()
}

/// The texts between the tabs of a line.
fn values(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut begin = 0;
    let ends = memchr_iter(b'\t', line).chain([line.len()]);
    ends.map(move |end| &line[std::mem::replace(&mut begin, end + 1)..end])
}

/// The label and the value of `label:value`.
fn labeled(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b':', text)?;
    let (label, value) = (&text[..at], &text[at + 1..]);
    let is_label = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    (!label.is_empty() && label.iter().all(is_label)).then_some((label, value))
}
