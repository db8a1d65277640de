//! Instants and durations as text.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// An instant as RFC 3339 in UTC, with nanoseconds.
pub(crate) fn rfc3339(instant: Timestamp) -> String {
    let (seconds, nanos) = (instant.as_nanos() / 1_000_000_000, instant.as_nanos() % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Year, month and day of the day with this number since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", civil_from_days).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A duration for people, rounded up so that waiting for so long suffices.
pub(crate) fn human(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    match millis {
        0 => "0".to_owned(),
        1..1_000 => format!("{millis}ms"),
        1_000..60_000 => {
            let tenths = millis.div_ceil(100);
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        _ => {
            let seconds = millis.div_ceil(1_000);
            let parts = [
                (seconds / 86_400, "d"),
                (seconds / 3_600 % 24, "h"),
                (seconds / 60 % 60, "m"),
                (seconds % 60, "s"),
            ];
            let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(0);
            let mut shown: Vec<_> = parts.iter().skip(first).collect();
            while shown.last().is_some_and(|(number, _)| *number == 0) {
                shown.pop();
            }
            shown.iter().map(|(number, unit)| format!("{number}{unit}")).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_secs(seconds)), date);
        }
        assert!(rfc3339(Timestamp::from_nanos(1_000_000_007)).ends_with("00:00:01.000000007Z"));
    }

    #[test]
    fn durations_are_rounded_up() {
        for (nanos, text) in [
            (0, "0"),
            (1, "1ms"),
            (999_000_001, "1.0s"),
            (12_340_000_000, "12.4s"),
            (59_999_000_000, "60.0s"),
            (60_000_000_000, "1m"),
            (61_000_000_001, "1m 2s"),
            (3_600_000_000_000, "1h"),
            (90_061_000_000_000, "1d 1h 1m 1s"),
            (86_460_000_000_000, "1d 0h 1m"),
        ] {
            assert_eq!(human(Duration::from_nanos(nanos)), text);
        }
    }
}
