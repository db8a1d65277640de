//! How long requests took, and so when they began and ended.

use std::str::FromStr;

use ratelimit_core::Timestamp;

use crate::field::Field;
use crate::record::{Record, Wanted};

/// What the time of a log is the time of, parsed from `start` or `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeIs {
    /// The beginning of the request.
    Start,
    /// Its end.
    End,
}

impl FromStr for TimeIs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            _ => Err("write start or end".to_owned()),
        }
    }
}

/// The unit of durations that do not say it, parsed from `s`, `ms`, `us` or `ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    nanos: u64,
    /// The number of digits that such a number of nanoseconds has behind its one.
    digits: usize,
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (nanos, digits) = match text {
            "s" => (1_000_000_000, 9),
            "ms" => (1_000_000, 6),
            "us" | "µs" => (1_000, 3),
            "ns" => (1, 0),
            _ => return Err("write s, ms, us or ns".to_owned()),
        };
        Ok(Self { nanos, digits })
    }
}

/// Reads durations of requests.
pub(super) struct Durations {
    index: usize,
    unit: Option<Unit>,
    time_is: Option<TimeIs>,
    keep_seconds: bool,
    /// Requests at whole seconds so far.
    at_seconds: u64,
    /// Whether requests were spread over their second.
    pub(super) has_moved: bool,
    /// Whether any request has had a time with a fraction of a second.
    pub(super) has_fractions: bool,
    /// Requests with a duration, and those without: they are taken to end when they begin.
    pub(super) with: u64,
    pub(super) without: u64,
}

impl Durations {
    /// Adds the duration to `wanted`.
    pub(super) fn new(
        wanted: &mut Wanted,
        unit: Option<Unit>,
        time_is: Option<TimeIs>,
        keep_seconds: bool,
    ) -> Self {
        Self {
            index: wanted.add(Field::Duration),
            unit,
            time_is,
            keep_seconds,
            at_seconds: 0,
            has_moved: false,
            has_fractions: false,
            with: 0,
            without: 0,
        }
    }

    /// When a request began, and how long it took, in nanoseconds.
    pub(super) fn of(&mut self, record: &Record) -> (Timestamp, u64) {
        let duration = record.get(self.index).and_then(|text| duration(text, self.unit));
        *(if duration.is_some() { &mut self.with } else { &mut self.without }) += 1;
        let duration = duration.unwrap_or_default();
        let time = self.spread(record.time);
        let is_end = self.time_is.map_or(record.is_end, |time_is| time_is == TimeIs::End);
        let begin = if is_end { time.as_nanos().saturating_sub(duration) } else { time.as_nanos() };
        (Timestamp::from_nanos(begin), duration)
    }

    /// Spreads times in whole seconds evenly over the second. Those of one second are not known to be one, since they are put in
    /// order only when it is known when they began: so each is moved by a multiple of the golden ratio, without the whole
    /// part. Those of any time then are nearly even.
    fn spread(&mut self, time: Timestamp) -> Timestamp {
        const RATIO: u64 = 618_033_989;
        const SECOND: u64 = 1_000_000_000;
        self.has_fractions |= !time.as_nanos().is_multiple_of(SECOND);
        if self.keep_seconds || self.has_fractions {
            return time;
        }
        let offset = self.at_seconds.wrapping_mul(RATIO) % SECOND;
        self.at_seconds += 1;
        self.has_moved |= offset > 0;
        Timestamp::from_nanos(time.as_nanos().saturating_add(offset).min(Timestamp::MAX.as_nanos()))
    }
}

/// Reads a duration such as `0.250`, `250`, `1.5s` or `250ms`, or several with spaces between them, which are added. Without a
/// unit, a number with a point is of seconds, and another one of milliseconds, as servers write them.
fn duration(text: &[u8], unit: Option<Unit>) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let nanos = text.split_ascii_whitespace().map(|one| nanos(one, unit));
    nanos.reduce(|sum, one| sum?.checked_add(one?))?
}

fn nanos(text: &str, unit: Option<Unit>) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let usual = if number.contains('.') { "s" } else { "ms" };
    let unit = match suffix {
        "" => unit.or_else(|| usual.parse().ok())?,
        suffix => suffix.parse().ok()?,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let whole: u64 = is_number.then_some(whole)?.parse().ok()?;
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(unit.digits);
    let fraction = digits.fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    whole.checked_mul(unit.nanos)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_are_read_in_the_units_of_servers() {
        for (text, unit, expected) in [
            ("0.250", None, Some(250_000_000)),
            ("250", None, Some(250_000_000)),
            ("250", Some("us"), Some(250_000)),
            ("0.5", Some("ms"), Some(500_000)),
            ("250", Some("s"), Some(250_000_000_000)),
            ("1.5s", Some("us"), Some(1_500_000_000)),
            ("12ms", None, Some(12_000_000)),
            ("1500ns", None, Some(1_500)),
            ("0.086 0.048 0.037", None, Some(171_000_000)),
            ("0.086 -1 0.037", None, None),
            ("0", None, Some(0)),
            ("", None, None),
            (".5", None, None),
            ("1.2.3", None, None),
            ("-1", None, None),
            ("x", None, None),
            ("1h", None, None),
            ("99999999999999999999", None, None),
            ("99999999999999", Some("s"), None),
        ] {
            let unit = unit.map(|unit| unit.parse().unwrap());
            assert_eq!(duration(text.as_bytes(), unit), expected, "{text}");
        }
    }

    #[test]
    fn whole_seconds_are_spread_evenly() {
        let mut durations = Durations::new(&mut Wanted::default(), None, None, false);
        let second = Timestamp::from_secs(1_767_607_200);
        let mut times: Vec<u64> =
            (0..1_000).map(|_| durations.spread(second).as_nanos() - second.as_nanos()).collect();
        times.sort_unstable();
        let farthest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(farthest < 2_000_000 && times[999] < 1_000_000_000, "{farthest}");
        let fraction = second + Duration::from_millis(250);
        assert_eq!(durations.spread(fraction), fraction);
        assert_eq!(durations.spread(second), second, "the log has fractions");
    }
}
