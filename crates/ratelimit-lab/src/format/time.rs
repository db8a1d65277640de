//! Reads time stamps: those of the common log format and of RFC 3339, and numbers of seconds or finer units since 1970.

use jiff::civil::Date;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use ratelimit_core::Timestamp;

pub(super) const NO_TIME: &str =
    "the time is neither RFC 3339 with an offset nor of the common log format nor a number since 1970";

static RFC3339: DateTimeParser = DateTimeParser::new();

/// Reads time stamps. Remembers the last date of the common log format, since the next line usually has the same.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The last date as written, and in `midnight` the seconds from 1970 to its midnight in UTC.
    date: [u8; 11],
    midnight: i64,
}

impl Times {
    /// Reads a time stamp in any of the forms.
    pub(crate) fn any(&mut self, text: &[u8]) -> Option<Timestamp> {
        let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
        match text {
            [_, _, b'/', ..] => self.clf(text),
            _ if text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') => since_epoch(text),
            _ => {
                let instant = RFC3339.parse_timestamp(text).ok()?;
                u64::try_from(instant.as_nanosecond()).ok().and_then(in_range)
            }
        }
    }

    /// Reads a time stamp in any of the forms, or one of HAProxy, which has no offset: it is taken as UTC.
    pub(crate) fn of_server(&mut self, text: &[u8]) -> Option<Timestamp> {
        self.any(text).or_else(|| self.clf(&[text, b" +0000"].concat()))
    }

    /// Reads the time between the brackets of the common log format, which may also be of RFC 3339, as nginx's `$time_iso8601`.
    pub(crate) fn in_brackets(&mut self, text: &[u8]) -> Option<Timestamp> {
        match text {
            [_, _, b'/', ..] => self.clf(text),
            [_, _, _, _, b'-', ..] => {
                let instant = RFC3339.parse_timestamp(text).ok()?;
                u64::try_from(instant.as_nanosecond()).ok().and_then(in_range)
            }
            _ => None,
        }
    }

    /// Reads `10/Oct/2000:13:55:36 -0700`, also with a fraction of the second, `13:55:36.250`.
    pub(crate) fn clf(&mut self, text: &[u8]) -> Option<Timestamp> {
        let (date, rest) = text.split_first_chunk::<11>()?;
        let [b':', h1, h0, b':', m1, m0, b':', s1, s0, rest @ ..] = rest else { return None };
        let (fraction, zone) = match rest {
            [b'.', rest @ ..] => {
                let (digits, zone) = rest.split_at(memchr::memchr(b' ', rest)?);
                (fraction(digits, 9).filter(|_| !digits.is_empty())?, zone)
            }
            _ => (0, rest),
        };
        let [b' ', sign, zh1, zh0, zm1, zm0] = zone else { return None };
        if self.date != *date {
            (self.date, self.midnight) = (*date, midnight(date)?);
        }
        let (hour, minute, second) = (two(*h1, *h0)?, two(*m1, *m0)?, two(*s1, *s0)?);
        let offset = two(*zh1, *zh0)? * 3_600 + two(*zm1, *zm0)? * 60;
        let offset = match sign {
            b'+' => offset,
            b'-' => -offset,
            _ => return None,
        };
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = self.midnight + hour * 3_600 + minute * 60 + second - offset;
        let nanos = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)?;
        in_range(nanos)
    }
}

/// The seconds from 1970 to the midnight of a date such as `10/Oct/2000` in UTC.
fn midnight(date: &[u8; 11]) -> Option<i64> {
    let date = Date::strptime("%d/%b/%Y", date).ok()?;
    Some(TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_second())
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// Reads a number of seconds, milliseconds, microseconds or nanoseconds since 1970. Which of them follows from its size:
/// below 10^11 it is of seconds (until the year 5138), below 10^14 of milliseconds (from March 1973), below 10^17 of
/// microseconds, and otherwise of nanoseconds. A fraction is allowed.
fn since_epoch(text: &[u8]) -> Option<Timestamp> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let (whole, fraction) = text.split_at(point);
    let fraction = fraction.strip_prefix(b".").unwrap_or(fraction);
    let whole: u64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
    let (unit, digits) = match whole {
        0..100_000_000_000 => (1_000_000_000, 9),
        100_000_000_000..100_000_000_000_000 => (1_000_000, 6),
        100_000_000_000_000..100_000_000_000_000_000 => (1_000, 3),
        _ => (1, 0),
    };
    whole.checked_mul(unit)?.checked_add(self::fraction(fraction, digits)?).and_then(in_range)
}

/// The digits of a fraction as a number of this many digits.
fn fraction(text: &[u8], digits: usize) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = text.iter().copied().chain(std::iter::repeat(b'0')).take(digits);
    Some(padded.fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// An instant at which a limiter can decide; `None` if it is too late.
fn in_range(nanos: u64) -> Option<Timestamp> {
    (nanos <= Timestamp::MAX.as_nanos()).then(|| Timestamp::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let mut times = Times::default();
        for (text, nanos) in [
            ("10/Oct/2000:13:55:36 -0700", 971_211_336_000_000_000),
            ("[10/Oct/2000:13:55:36 -0700]", 971_211_336_000_000_000),
            ("01/Mar/2024:00:30:00 +0130", 1_709_247_600_000_000_000),
            ("01/Mar/2024:00:30:00.25 +0130", 1_709_247_600_250_000_000),
            ("01/Mar/2024:00:30:00.123456 +0130", 1_709_247_600_123_456_000),
            ("29/Feb/2024:23:59:59 +0000", 1_709_251_199_000_000_000),
            ("2000-10-10T13:55:36.5-07:00", 971_211_336_500_000_000),
            ("2000-10-10T20:55:36Z", 971_211_336_000_000_000),
            ("2000-10-10 20:55:36.123456789+00:00", 971_211_336_123_456_789),
            ("971211336", 971_211_336_000_000_000),
            ("971211336.25", 971_211_336_250_000_000),
            ("971211336123", 971_211_336_123_000_000),
            ("1700000000123456", 1_700_000_000_123_456_000),
            ("1700000000123456789", 1_700_000_000_123_456_789),
            ("99999999999.0", u64::MAX), // beyond the range
        ] {
            let expected = (nanos != u64::MAX).then(|| Timestamp::from_nanos(nanos));
            assert_eq!(times.any(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_times() {
        let mut times = Times::default();
        for text in [
            "",
            ".",
            "-",
            "yesterday",
            "10/Oct/2000",
            "10/Okt/2000:13:55:36 -0700",
            "32/Oct/2000:13:55:36 -0700",
            "30/Feb/2000:13:55:36 -0700",
            "10/Oct/2000:24:55:36 -0700",
            "10/Oct/2000:13:55:36 0700 ",
            "10/Oct/2000:13:55:36. -0700",
            "10/Oct/2000:13:55:36.x -0700",
            "10/Oct/2000:13:55:36.250",
            "2000-10-10T20:55:36", // no offset
            "1.2.3",
            "99999999999999999999999",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(times.any(text.as_bytes()), None, "{text}");
        }
    }
}
