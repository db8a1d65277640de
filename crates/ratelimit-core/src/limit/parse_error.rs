//! Why a text is not a limit.

use std::error::Error;
use std::fmt;

use crate::LimitError;

/// Separates limits in a text of several.
pub(super) const SEPARATOR: char = ';';

/// Why a text is not a valid [`Limit`](crate::Limit) or [`Limits`](crate::Limits): where parsing stopped, and what was
/// expected there.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseLimitError {
    pub(super) text: String,
    /// The end of the limit that cannot be parsed.
    pub(super) end: usize,
    pub(super) position: usize,
    pub(super) place: WhichLimit,
    pub(super) expected: Expected,
}

/// Which part of the text is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhichLimit {
    /// The text, which is a single limit.
    Alone,
    /// The limit at this index, of several.
    Nth(usize),
    /// Several limits together.
    Together,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Text(&'static str),
    Valid(LimitError),
}

impl ParseLimitError {
    /// The byte of the whole text at which something else was expected. If a limit could be parsed but not built, the
    /// first byte of the limit.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What is wrong with the limit, or with the limits together, if they could be parsed but not built.
    pub fn limit_error(&self) -> Option<LimitError> {
        match self.expected {
            Expected::Text(_) => None,
            Expected::Valid(error) => Some(error),
        }
    }

    /// The text at the position where something else was expected.
    fn found(&self) -> &str {
        let rest = self.text.get(self.position..self.end).unwrap_or_default();
        let next = self.text.get(self.end..).unwrap_or_default();
        let end = if next.starts_with(SEPARATOR) { ";" } else { "the end" };
        rest.split_whitespace().next().unwrap_or(end)
    }
}

impl fmt::Display for ParseLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, position, place, expected, .. } = self;
        match expected {
            Expected::Valid(error) => match place {
                WhichLimit::Alone => write!(f, "the limit {text:?} is not possible: {error}"),
                WhichLimit::Nth(index) => {
                    write!(f, "limit {} of {text:?} is not possible: {error}", index + 1)
                }
                WhichLimit::Together => write!(f, "the limits {text:?} are not possible together: {error}"),
            },
            Expected::Text(expected) => {
                match place {
                    WhichLimit::Alone => write!(f, "cannot read the limit {text:?}")?,
                    WhichLimit::Nth(index) => write!(f, "cannot read limit {} of {text:?}", index + 1)?,
                    WhichLimit::Together => write!(f, "cannot read the limits {text:?}")?,
                }
                let column = text.get(..*position).unwrap_or(text).chars().count() + 1;
                write!(f, ": expected {expected} at character {column}, found {:?}", self.found())
            }
        }
    }
}

impl fmt::Debug for ParseLimitError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

/// The text contains that of the [`limit_error`](ParseLimitError::limit_error), so that is no source.
impl Error for ParseLimitError {}
