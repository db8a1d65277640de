//! A document as a tree in which each value has its line, whatever the file's format.

use std::fmt;

use super::watched::Watched;

/// The maximum depth of nested values. Reading and dropping them is recursive, and a thread's stack may be small. The
/// fields of a configuration need half of it.
pub(super) const MOST_LEVELS: usize = 8;

/// A part of a document, and its line, from 1.
#[derive(Clone, Debug)]
pub(super) struct Lined<T> {
    pub(super) line: usize,
    pub(super) value: T,
}

/// A value and its line.
pub(super) type Node = Lined<Value>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// YAML's `null`, or an empty document.
    Null,
    Bool(bool),
    Integer(i128),
    /// An integer that no type can hold.
    TooLarge,
    Float(f64),
    Text(String),
    /// A date or a time. No field takes one.
    Date,
    List(Vec<Node>),
    Table(Vec<(Lined<String>, Node)>),
}

/// The location of a value: its line and its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The line, from 1.
    pub(super) line: usize,
    /// The field, such as `policies[2].limit`; empty for the whole document.
    pub(super) field: String,
}

/// What is wrong, and where if known.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) location: Option<Location>,
    pub(super) message: String,
    /// The file of a list, if that is what cannot be used.
    pub(super) failed_list: Option<Box<Watched>>,
    /// Whether a kind of key is unknown.
    pub(super) is_unknown_key: bool,
}

impl Problem {
    pub(super) fn new(location: Option<Location>, message: impl Into<String>) -> Self {
        Self { location, message: message.into(), failed_list: None, is_unknown_key: false }
    }

    pub(super) fn at(location: &Location, message: impl Into<String>) -> Self {
        Self::new(Some(location.clone()), message)
    }

    /// For text that is not a valid document: only the line is known.
    pub(super) fn in_line(line: usize, message: impl Into<String>) -> Self {
        Self::new(Some(Location { line, field: String::new() }), message)
    }

    pub(super) fn too_deep(line: usize) -> Self {
        Self::in_line(line, format!("the values are nested deeper than {MOST_LEVELS} levels"))
    }

    /// Sets the location, unless it is known already.
    pub(super) fn or_at(mut self, location: &Location) -> Self {
        self.location.get_or_insert_with(|| location.clone());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(Location { field, .. }) if !field.is_empty() => write!(f, "{field}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Problem {}
