//! Reads time stamps: those of the common log format and of RFC 3339, and numbers of seconds or finer units since 1970.

use jiff::civil::Date;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use ratelimit_core::Timestamp;
use smallvec::SmallVec;

const NO_TIME: &str =
    "the time is neither RFC 3339 with an offset nor of the common log format nor a number since 1970";
pub(super) const NO_OFFSET: &str = "the time has no offset; name its zone with --timezone, such as UTC";

/// The length of a time of RFC 3339 behind its date is less than this.
const LONGEST: usize = 64;

static RFC3339: DateTimeParser = DateTimeParser::new();

/// Reads time stamps. Remembers the last date, since the next line usually has the same.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The last date as written, of RFC 3339 with what separates it from the time, and in `midnight` the seconds from 1970 to
    /// its midnight in UTC.
    date: [u8; 11],
    midnight: i64,
    /// The zone of times without an offset. Without a zone, these are no times.
    zone: Option<TimeZone>,
}

impl Times {
    /// Times without an offset are of this zone.
    pub(crate) fn in_zone(zone: Option<TimeZone>) -> Self {
        Self { zone, ..Self::default() }
    }

    /// Times without an offset are of UTC, as when a format is looked for.
    pub(crate) fn in_utc() -> Self {
        Self::in_zone(Some(TimeZone::UTC))
    }

    /// Reads a time stamp in any of the forms.
    pub(crate) fn any(&mut self, text: &[u8]) -> Option<Timestamp> {
        let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
        match text {
            [_, _, b'/', ..] => self.clf(text),
            _ if text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') => since_epoch(text),
            _ => self.iso(text),
        }
    }

    /// Why [`any`](Self::any) does not read this.
    pub(crate) fn reason(&self, text: &[u8]) -> &'static str {
        match self.zone.is_none() && Self::in_utc().any(text).is_some() {
            true => NO_OFFSET,
            false => NO_TIME,
        }
    }

    /// Reads a time stamp of a server's own format in any of the forms. HAProxy writes no offset: without a zone, that is UTC.
    pub(crate) fn of_server(&mut self, text: &[u8]) -> Option<Timestamp> {
        self.zone.get_or_insert(TimeZone::UTC);
        self.any(text)
    }

    /// Reads the time between the brackets of the common log format, which may also be of RFC 3339, as nginx's `$time_iso8601`.
    pub(crate) fn in_brackets(&mut self, text: &[u8]) -> Option<Timestamp> {
        match text {
            [_, _, b'/', ..] => self.clf(text),
            [_, _, _, _, b'-', ..] => self.iso(text),
            _ => None,
        }
    }

    /// Reads a time of RFC 3339; if there is a zone, also one without an offset, and `2026/01/05 10:00:00`.
    fn iso(&mut self, text: &[u8]) -> Option<Timestamp> {
        if let Some(time) = self.utc(text) {
            return Some(time); // as most are
        }
        // Not searched in what no time can be: a client may write much between brackets.
        let (_, time) = text.split_at_checked(11).filter(|(_, time)| time.len() < LONGEST)?;
        let instant = match time.iter().any(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-')) {
            true => RFC3339.parse_timestamp(text).ok()?,
            false => {
                let zone = self.zone.as_ref()?;
                let dashes: SmallVec<[u8; 40]> =
                    text.iter().map(|byte| if *byte == b'/' { b'-' } else { *byte }).collect();
                zone.to_timestamp(RFC3339.parse_datetime(&dashes).ok()?).ok()?
            }
        };
        u64::try_from(instant.as_nanosecond()).ok().and_then(in_range)
    }

    /// Reads `2026-01-05T10:00:00.250Z`, also without a fraction of the second.
    fn utc(&mut self, text: &[u8]) -> Option<Timestamp> {
        let (date, time) = text.strip_suffix(b"Z")?.split_first_chunk::<11>()?;
        let (clock, fraction) = time.split_first_chunk::<8>()?;
        let fraction = match fraction {
            [] => 0,
            [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => self::fraction(digits, 9)?,
            _ => return None,
        };
        let seconds = self.seconds(date, clock).filter(|_| clock[6] < b'6')?;
        u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(fraction).and_then(in_range)
    }

    /// Reads `10/Oct/2000:13:55:36 -0700`, also with a fraction of the second, `13:55:36.250`; if there is a zone, also without
    /// an offset.
    pub(crate) fn clf(&mut self, text: &[u8]) -> Option<Timestamp> {
        let (date, rest) = text.split_first_chunk::<11>()?;
        let (clock, rest) = rest.strip_prefix(b":")?.split_first_chunk::<8>()?;
        let (fraction, zone) = match rest {
            [b'.', rest @ ..] => {
                let (digits, zone) = rest.split_at(memchr::memchr(b' ', rest).unwrap_or(rest.len()));
                (fraction(digits, 9).filter(|_| !digits.is_empty())?, zone)
            }
            _ => (0, rest),
        };
        let seconds = self.seconds(date, clock)?;
        let offset = match zone {
            [b' ', sign @ (b'+' | b'-'), zh1, zh0, zm1, zm0] => {
                let offset = two(*zh1, *zh0)? * 3_600 + two(*zm1, *zm0)? * 60;
                if *sign == b'+' { offset } else { -offset }
            }
            [] => {
                let local = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(seconds).ok()?);
                seconds - self.zone.as_ref()?.to_timestamp(local).ok()?.as_second()
            }
            _ => return None,
        };
        let seconds = seconds - offset;
        let nanos = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)?;
        in_range(nanos)
    }

    /// The seconds from 1970 to this date and `13:55:36` in UTC.
    #[inline]
    fn seconds(&mut self, date: &[u8; 11], clock: &[u8; 8]) -> Option<i64> {
        let [h1, h0, b':', m1, m0, b':', s1, s0] = *clock else { return None };
        if self.date != *date {
            (self.midnight, self.date) = (midnight(date)?, *date);
        }
        let (hour, minute, second) = (two(h1, h0)?, two(m1, m0)?, two(s1, s0)?);
        let is_time = hour <= 23 && minute <= 59 && second <= 60;
        is_time.then_some(self.midnight + hour * 3_600 + minute * 60 + second)
    }
}

/// The seconds from 1970 to the midnight of a date such as `10/Oct/2000` or `2000-10-10T` in UTC.
fn midnight(date: &[u8; 11]) -> Option<i64> {
    let date = match date {
        [_, _, b'/', ..] => Date::strptime("%d/%b/%Y", date).ok()?,
        [date @ .., b'T' | b' '] => RFC3339.parse_date(date).ok()?,
        _ => return None,
    };
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
            ("2000-10-10T20:55:36.000000001Z", 971_211_336_000_000_001),
            ("2000-10-10t20:55:36.25z", 971_211_336_250_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000_000_000),
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
    fn times_without_an_offset_are_of_the_zone() {
        for (zone, text, nanos) in [
            ("UTC", "2026-01-05 10:00:00", 1_767_607_200_000_000_000),
            ("UTC", "2026-01-05T10:00:00.250", 1_767_607_200_250_000_000),
            ("UTC", "2026-01-05 10:00:00,250", 1_767_607_200_250_000_000), // Python
            ("UTC", "2026/01/05 10:00:00", 1_767_607_200_000_000_000),     // Go
            ("UTC", "05/Jan/2026:10:00:00", 1_767_607_200_000_000_000),
            ("Europe/Berlin", "2026-01-05 11:00:00", 1_767_607_200_000_000_000),
            ("Europe/Berlin", "05/Jan/2026:11:00:00.25", 1_767_607_200_250_000_000),
            ("Europe/Berlin", "05/Jul/2026:12:00:00", 1_783_245_600_000_000_000),
            // Others have their own.
            ("Europe/Berlin", "05/Jan/2026:10:00:00 +0000", 1_767_607_200_000_000_000),
            ("Europe/Berlin", "2026-01-05T10:00:00Z", 1_767_607_200_000_000_000),
            ("Europe/Berlin", "1767607200", 1_767_607_200_000_000_000),
        ] {
            let mut times = Times::in_zone(Some(TimeZone::get(zone).unwrap()));
            assert_eq!(times.any(text.as_bytes()), Some(Timestamp::from_nanos(nanos)), "{zone} {text}");
        }
        let times = Times::default();
        assert_eq!(
            ["2026-01-05 10:00:00", "x"].map(|text| times.reason(text.as_bytes())),
            [NO_OFFSET, NO_TIME]
        );
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
            "10/Oct/2000:13:55:36",
            "2000/10/10 13:55:36",
            "10/Oct/2000:13:55:36.x -0700",
            "10/Oct/2000:13:55:36.250",
            "2000-10-10T20:55:36", // no offset
            "2000-02-30T20:55:36Z",
            "2000-10-10T24:55:36Z",
            "2000-10-10T20:60:36Z",
            "2000-10-10T20:55:36.Z",
            "2000-10-10T20:55:36.xZ",
            "2000-10-10X20:55:36Z",
            "1.2.3",
            "99999999999999999999999",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(times.any(text.as_bytes()), None, "{text}");
        }
    }
}
