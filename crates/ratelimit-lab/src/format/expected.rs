//! What is known of the lines of a log before any is read.

use jiff::tz::TimeZone;

use super::name::Format;
use super::pattern::Pattern;

/// What is known of the lines of a log before any is read.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Their format; `None` to detect it from the first lines of each file.
    pub format: Option<Format>,
    /// What finds the fields in lines of any other format.
    pub pattern: Option<Pattern>,
    /// The zone of times without an offset.
    pub time_zone: Option<TimeZone>,
}
