//! `CL.THROTTLE`, with the five numbers of the module redis-cell, and how other decisions are reported with them.

use std::time::Duration;

use ratelimit_core::{Clock, CounterStore, Decision, Limit, RateLimiter, Request};

use crate::checks::throttled_key;

/// The five numbers: whether it is limited, the limit, what remains, when to retry (-1 if that is not needed, or of no use),
/// and when the limit is as good as new, both in seconds, rounded up.
pub(crate) type Numbers = [i64; 5];

/// Reads the arguments after the key: the limit, and the quantity.
pub(crate) fn parse(arguments: &[&[u8]]) -> Result<(Limit, u64), String> {
    let (max_burst, count, period, quantity) = match *arguments {
        [max_burst, count, period] => (max_burst, count, period, &b"1"[..]),
        [max_burst, count, period, quantity] => (max_burst, count, period, quantity),
        _ => return Err("usage: CL.THROTTLE key max_burst count period [quantity]".to_owned()),
    };
    let burst = number("max_burst", max_burst)?.saturating_add(1);
    let (count, period) = (number("count", count)?, Duration::from_secs(number("period", period)?));
    let limit = Limit::token_bucket(count, period).burst(burst).build().map_err(|error| error.to_string())?;
    Ok((limit, number("quantity", quantity)?))
}

/// Decides, and charges what is admitted.
pub(crate) async fn decide<S: CounterStore, C: Clock>(
    limiter: &RateLimiter<S, C>,
    key: &[u8],
    arguments: &[&[u8]],
) -> Result<Numbers, String> {
    let (limit, quantity) = parse(arguments)?;
    let (key, limit) = (throttled_key(key), limit.into());
    let request = Request::new(&key).cost(quantity).limits(&limit);
    Ok(numbers(&limiter.check(request).await.map_err(|error| error.to_string())?))
}

/// A whole number that is not negative.
pub(crate) fn number(name: &str, text: &[u8]) -> Result<u64, String> {
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| format!("{name} is not a whole number, or too large"))
}

/// The numbers for the limit that decided.
pub(crate) fn numbers(decision: &Decision<'_>) -> Numbers {
    let retry = if decision.allowed() { None } else { decision.retry_after() };
    [
        i64::from(!decision.allowed()),
        whole(decision.limit()),
        whole(decision.remaining()),
        retry.map_or(-1, seconds),
        seconds(decision.reset_after()),
    ]
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn seconds(duration: Duration) -> i64 {
    whole(duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimit_core::{ManualClock, Timestamp};
    use ratelimit_memory::MemoryStore;

    /// The milliseconds since the beginning, the quantity, and the numbers.
    type Row = (u64, u64, Numbers);

    async fn compare(arguments: [&[u8]; 3], rows: &[Row]) {
        let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(clock.clone());
        for (row, (millis, quantity, expected)) in rows.iter().enumerate() {
            clock.set(Timestamp::from_millis(1_700_000_000_000 + millis));
            let quantity = quantity.to_string();
            let arguments = [&arguments[..], &[quantity.as_bytes()]].concat();
            let numbers = decide(&limiter, b"user123", &arguments).await;
            assert_eq!(numbers.as_ref(), Ok(expected), "row {row}");
        }
    }

    /// The example of redis-cell's README: 30 in 60 seconds, 15 at once beyond the first.
    #[tokio::test]
    async fn the_example_of_the_documentation() {
        compare([b"15", b"30", b"60"], &[(0, 1, [0, 16, 15, -1, 2])]).await;
    }

    /// The cases that redis-cell's own tests list, with its durations in seconds, rounded up.
    #[tokio::test]
    async fn the_cases_of_the_module() {
        let rows = [
            // Never more than the burst at once.
            (0, 6, [1, 5, 5, -1, 0]),
            (0, 1, [0, 5, 4, -1, 1]),
            (0, 1, [0, 5, 3, -1, 2]),
            (0, 1, [0, 5, 2, -1, 3]),
            (0, 1, [0, 5, 1, -1, 4]),
            (0, 1, [0, 5, 0, -1, 5]),
            (0, 1, [1, 5, 0, 1, 5]),
            (3_000, 1, [0, 5, 2, -1, 3]),
            (3_100, 1, [0, 5, 1, -1, 4]),
            (4_000, 1, [0, 5, 1, -1, 4]),
            (8_000, 1, [0, 5, 4, -1, 1]),
            (9_500, 1, [0, 5, 4, -1, 1]),
            // A quantity of zero looks.
            (9_500, 0, [0, 5, 4, -1, 1]),
            (9_500, 2, [0, 5, 2, -1, 3]),
            (9_500, 5, [1, 5, 2, 3, 3]),
        ];
        compare([b"4", b"1", b"1"], &rows).await;
    }

    #[test]
    fn arguments_are_whole_numbers() {
        for arguments in [
            &[&b"1"[..], b"2"][..],
            &[b"1", b"2", b"3", b"4", b"5"],
            &[b"-1", b"2", b"3"],
            &[b"1", b"2.5", b"3"],
            &[b"1", b"2", b"+3"],
            &[b"1", b"2", b"99999999999999999999"],
            &[b"1", b"2", b"\xff"],
            &[b"", b"2", b"3"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
        let largest = u64::MAX.to_string();
        for (count, period) in [("0", "60"), ("1", "0"), (&*largest, "60"), ("1", &largest)] {
            let read = parse(&[b"1", count.as_bytes(), period.as_bytes()]);
            assert!(read.is_err_and(|error| !error.contains("whole number")), "{count} in {period}");
        }
    }
}
