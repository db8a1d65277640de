//! Instants and durations as text.

use std::time::Duration;

use ratelimit_core::Timestamp;

/// An instant as RFC 3339 in UTC, with nanoseconds.
pub(crate) fn rfc3339(instant: Timestamp) -> String {
    let at = jiff::Timestamp::from_nanosecond(instant.as_nanos().into()).unwrap_or(jiff::Timestamp::MAX);
    format!("{at:.9}")
}

/// A duration for people, or `never`.
pub(crate) fn human_or_never(duration: Option<Duration>) -> String {
    duration.map_or("never".to_owned(), human)
}

/// A duration for people, rounded up, so that it suffices to wait for the duration shown.
fn human(duration: Duration) -> String {
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
