//! One line of a log: its time, and the fields that are wanted of it.

use std::ops::Range;

use ratelimit_core::Timestamp;

use crate::field::Field;

/// The length, in bytes, from which a line is too long, and so bad.
pub(crate) const LONGEST: usize = 1 << 20;

/// The fields to read of each line. A record has the same indices.
#[derive(Clone, Debug)]
pub struct Wanted {
    fields: Vec<Field>,
    /// Fields with the only name that each can have.
    named: Vec<(Field, Box<str>)>,
    /// The number of the first fields that are read of each line, if the others are read only of some.
    always: Option<usize>,
}

/// Only the time, by one of its usual names.
impl Default for Wanted {
    fn default() -> Self {
        Self::time(None)
    }
}

impl Wanted {
    /// The index of the time.
    pub const TIME: usize = 0;

    /// Only the time: the field with this name or, with `None`, one of the [usual names](Field::names).
    pub fn time(name: Option<&str>) -> Self {
        Self {
            fields: vec![name.map_or(Field::Time, |name| Field::Named(name.into()))],
            named: Vec::new(),
            always: None,
        }
    }

    /// The same, but this field, such as [`Field::Ip`], has only this name or, with `None`, one of the usual names.
    #[must_use]
    pub fn with_name(mut self, field: Field, name: Option<&str>) -> Self {
        self.named.retain(|(known, _)| *known != field);
        self.named.extend(name.map(|name| (field, name.into())));
        self
    }

    /// Adds a field, unless it is there already, and returns its index.
    pub fn add(&mut self, field: Field) -> usize {
        let index = self.place(field);
        // What is wanted now has to be read of each line.
        self.always = self.always.filter(|always| index < *always);
        index
    }

    /// Adds fields that have to be read only of some lines, where there are many. Call this last.
    pub(crate) fn add_for_some<const N: usize>(&mut self, fields: [Field; N]) -> [usize; N] {
        let always = self.fields.len();
        let indices = fields.map(|field| self.place(field));
        self.always = Some(always);
        indices
    }

    fn place(&mut self, field: Field) -> usize {
        let known = self.fields.iter().skip(1).position(|wanted| *wanted == field);
        known.map(|at| at + 1).unwrap_or_else(|| {
            self.fields.push(field);
            self.fields.len() - 1
        })
    }

    /// Only the fields that are read of each line.
    pub(crate) fn always(&self) -> Self {
        let count = self.always.unwrap_or(self.fields.len());
        Self { fields: self.fields.iter().take(count).cloned().collect(), ..self.clone() }
    }

    /// The fields in the order of their indices.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The only name that this field can have; `None` if it can have one of the usual names.
    pub(crate) fn only_name<'w>(&'w self, field: &'w Field) -> Option<&'w str> {
        match field {
            Field::Named(name) => Some(name),
            _ => self.named.iter().find(|(known, _)| known == field).map(|(_, name)| &**name),
        }
    }

    /// The names of this field in JSON and CSV. If a line has several of them, the first counts.
    pub(crate) fn names<'w>(&'w self, field: &'w Field) -> Vec<&'w str> {
        self.only_name(field).map_or_else(|| field.names(), |name| vec![name])
    }
}

/// The wanted fields of a line. The same record is used for one line after another, so that reading a line does not
/// allocate.
#[derive(Clone, Debug, Default)]
pub struct Record {
    text: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    /// The time of the request.
    pub time: Timestamp,
    /// Whether that is usually the time of its end, in its format.
    pub(crate) is_end: bool,
    /// Whether it is one of the lines of which all fields are read.
    pub(crate) is_whole: bool,
}

impl Record {
    /// Forgets the previous line, and makes room for this many fields.
    pub fn clear(&mut self, fields: usize) {
        self.text.clear();
        self.places.clear();
        self.places.resize(fields, None);
    }

    /// The number of fields that are read of this line.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Sets a field, unless it is set already.
    pub fn set(&mut self, index: usize, value: &[u8]) {
        self.set_with(index, |text| text.extend_from_slice(value));
    }

    /// Sets a field, unless it is set already, to the bytes that `write` appends.
    pub fn set_with(&mut self, index: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.text.len();
        if let Some(place @ None) = self.places.get_mut(index) {
            write(&mut self.text);
            *place = Some(begin..self.text.len());
        }
    }

    /// The value of a field; `None` if the line does not have it. A value that is empty or `-` is `None`, too: this is
    /// how servers write that there is none.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let place = self.places.get(index)?.clone()?;
        self.text.get(place).filter(|value| !value.is_empty() && *value != b"-")
    }
}
