//! Which format a line has.

use super::name::Format;
use super::pattern::Pattern;
use super::time::Times;
use super::{clf, ltsv, servers};
use crate::record::{Record, Wanted};

/// The format of a line, if it can be told from this line alone. With a pattern, no other format is known.
pub(super) fn of_line(line: &[u8], wanted: &Wanted, pattern: Option<&Pattern>) -> Option<Format> {
    if let Some(pattern) = pattern {
        return pattern.finds(line).then_some(Format::Pattern);
    }
    if line.trim_ascii_start().starts_with(b"{") {
        return Some(Format::Json);
    }
    let mut record = Record::default();
    let is_clf = clf::Layout::each()
        .any(|layout| clf::parse(line, wanted, &layout, &mut Times::in_utc(), &mut record).is_ok());
    match is_clf {
        true => Some(Format::Combined),
        false if ltsv::is_line(line, wanted) => Some(Format::Ltsv),
        false => servers::of_line(line),
    }
}
