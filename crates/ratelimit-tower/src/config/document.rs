//! A document as a tree in which each value has its line and the path of its field, whatever the file's format.

use std::fmt;

/// The maximum depth of nested values. Reading and dropping them is recursive, and a thread's stack may be small. The
/// fields of a configuration need half of it.
pub(super) const MOST_LEVELS: usize = 8;

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// YAML's `null`, or an empty document.
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// A date or a time. No field takes one.
    Date,
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

/// A key of a table. It has its own place, for errors in the key itself.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) name: String,
}

/// The place of a value: its line and its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The line, from 1.
    pub(super) line: usize,
    /// The field, such as `policies[2].limit`; empty for the whole document.
    pub(super) field: String,
}

/// What is wrong, and where if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) place: Option<Place>,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    /// For text that is not a valid document: only the line is known.
    pub(super) fn in_line(line: usize, message: impl Into<String>) -> Self {
        Self { place: Some(Place { line, field: String::new() }), message: message.into() }
    }

    pub(super) fn too_deep(line: usize) -> Self {
        Self::in_line(line, format!("the values are nested deeper than {MOST_LEVELS} levels"))
    }

    /// Sets the place, unless it is known already.
    pub(super) fn or_at(mut self, place: &Place) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(Place { field, .. }) if !field.is_empty() => write!(f, "{field}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Problem {}

/// The path of the field `name` in the table `field`.
pub(super) fn field_of(field: &str, name: &str) -> String {
    let is_plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let name = if is_plain { name.to_owned() } else { format!("{name:?}") };
    if field.is_empty() { name } else { format!("{field}.{name}") }
}

/// The path of the element at `index` in the list `field`.
pub(super) fn element_of(field: &str, index: usize) -> String {
    format!("{field}[{}]", index + 1)
}
