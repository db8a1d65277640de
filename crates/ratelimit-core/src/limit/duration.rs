//! Durations as text: `15min`, `1h`, `250ms`.

use std::fmt;
use std::time::Duration;

/// Units, the longest first. The first spelling is the one that is printed.
const UNITS: [(u64, &[&str]); 8] = [
    (7 * 86_400_000_000_000, &["w", "week", "weeks"]),
    (86_400_000_000_000, &["d", "day", "days"]),
    (3_600_000_000_000, &["h", "hr", "hour", "hours"]),
    (60_000_000_000, &["min", "m", "mins", "minute", "minutes"]),
    (1_000_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (1_000_000, &["ms", "millisecond", "milliseconds"]),
    (1_000, &["us", "µs", "microsecond", "microseconds"]),
    (1, &["ns", "nanosecond", "nanoseconds"]),
];

/// Returns the nanoseconds of the unit `word`. Case does not matter, but `M` is not a unit: it could also mean a month.
pub(super) fn unit(word: &str) -> Option<u64> {
    let is_it = |spelling: &&str| word != "M" && word.eq_ignore_ascii_case(spelling);
    UNITS.iter().find(|(_, spellings)| spellings.iter().any(is_it)).map(|(nanos, _)| *nanos)
}

/// Parses a whole number and its unit, as in the text of a limit: `500ms`, `15 min`. Returns `None` if it is something
/// else, or longer than 2^64 nanoseconds.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_core::kit::parse_duration;
///
/// assert_eq!(parse_duration("1500ms"), Some(Duration::from_millis(1_500)));
/// assert_eq!(parse_duration("1month"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, word) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let nanos = number.parse::<u64>().ok()?.checked_mul(unit(word.trim_start())?)?;
    Some(Duration::from_nanos(nanos))
}

/// The nanoseconds of a duration; `u64::MAX` if they do not fit. That is far longer than the longest period, so it is
/// rejected.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Prints a duration in the longest unit of which it is a whole number.
#[derive(Clone, Copy)]
pub(super) struct Text(pub(super) Duration);

impl Text {
    fn split(self) -> (u128, &'static str) {
        let nanos = self.0.as_nanos();
        let fitting = UNITS.iter().find(|(unit, _)| nanos > 0 && nanos.is_multiple_of(u128::from(*unit)));
        let (unit, spellings) = fitting.unwrap_or(&UNITS[7]);
        (nanos / u128::from(*unit), spellings[0])
    }

    /// The duration as a period: `s` rather than `1s`.
    pub(super) fn as_period(self) -> String {
        match self.split() {
            (1, unit) => unit.to_owned(),
            (count, unit) => format!("{count}{unit}"),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = self.split();
        write!(f, "{count}{unit}")
    }
}
