//! One line of a log: its time, and the fields that are wanted of it.

use std::ops::Range;

use ratelimit_core::Timestamp;

use crate::field::Field;

/// The longest line.
pub(crate) const LONGEST: usize = 1 << 20;

/// Which fields to read of each line. A field is known by its index.
#[derive(Clone, Debug)]
pub struct Wanted(Vec<Field>);

impl Wanted {
    /// The index of the time.
    pub const TIME: usize = 0;

    /// Only the time, in the field of this name if there is one.
    pub fn time(name: Option<&str>) -> Self {
        Self(vec![name.map_or(Field::Time, |name| Field::Named(name.into()))])
    }

    /// Adds a field, unless it is there already, and returns its index.
    pub fn add(&mut self, field: Field) -> usize {
        let known = self.0.iter().skip(1).position(|own| *own == field);
        known.map(|at| at + 1).unwrap_or_else(|| {
            self.0.push(field);
            self.0.len() - 1
        })
    }

    /// The fields in the order of their indices.
    pub fn fields(&self) -> &[Field] {
        &self.0
    }
}

/// The wanted fields of a line. It is used again for each line, so that reading one does not allocate.
#[derive(Clone, Debug, Default)]
pub struct Record {
    text: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
    /// When the request was made.
    pub time: Timestamp,
}

impl Record {
    /// Forgets the previous line.
    pub fn clear(&mut self, fields: usize) {
        self.text.clear();
        self.places.clear();
        self.places.resize(fields, None);
    }

    /// Sets a field that is not set yet.
    pub fn set(&mut self, index: usize, value: &[u8]) {
        self.set_with(index, |text| text.extend_from_slice(value));
    }

    /// The same with what `write` appends.
    pub fn set_with(&mut self, index: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.text.len();
        if let Some(place @ None) = self.places.get_mut(index) {
            write(&mut self.text);
            *place = Some(begin..self.text.len());
        }
    }

    /// A field; `None` if the line does not have it, or it is empty or `-`, which is how servers write that.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let place = self.places.get(index)?.clone()?;
        self.text.get(place).filter(|value| !value.is_empty() && *value != b"-")
    }
}
