//! Which format a line has.

use super::name::Format;
use super::place::Places;
use super::time::Times;
use super::{clf, servers};
use crate::record::{Record, Wanted};

/// The format of a line, if it can be told from this line alone.
pub(super) fn of_line(line: &[u8], wanted: &Wanted) -> Option<Format> {
    if line.trim_ascii_start().starts_with(b"{") {
        return Some(Format::Json);
    }
    let mut record = Record::default();
    let layout = (clf::Order::default(), &Places::default());
    let is_clf = clf::parse(line, wanted, layout, &mut Times::default(), &mut record).is_ok();
    if is_clf { Some(Format::Combined) } else { servers::of_line(line) }
}
