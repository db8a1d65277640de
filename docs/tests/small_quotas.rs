//! The table of limits of few units in the pages: how long a client waits, and how many of its steady requests pass.

use std::time::Duration;

use ratelimit_memory::{Limit, ManualClock, MemoryStore, RateLimiter, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Quotas of the table, with their period.
const QUOTAS: [(u32, &str, Duration); 6] = [
    (1, "day", DAY),
    (2, "day", DAY),
    (5, "min", MINUTE),
    (10, "min", MINUTE),
    (20, "min", MINUTE),
    (100, "min", MINUTE),
];

fn limiter(limit: &Limit, start: Timestamp) -> (RateLimiter<MemoryStore, ManualClock>, ManualClock) {
    let clock = ManualClock::at(start);
    (RateLimiter::new(MemoryStore::new(), limit.clone()).with_clock(clock.clone()), clock)
}

/// Hundred instants of a window, from its beginning on.
fn starts(period: Duration) -> impl Iterator<Item = Timestamp> {
    (0..100).map(move |part| Timestamp::from_secs(7_000 * 86_400) + period * part / 100)
}

/// How long a client that has used the whole quota at once waits for the next unit, at most.
fn longest_wait(limit: &Limit, quota: u32, period: Duration) -> Duration {
    let waits = starts(period).map(|start| {
        let (limiter, _) = limiter(limit, start);
        for _ in 0..quota {
            assert!(limiter.check_now("client").unwrap().allowed(), "{limit}");
        }
        limiter.check_now("client").unwrap().retry_after().unwrap()
    });
    waits.max().unwrap()
}

/// How many of twenty requests pass, at least, that follow each other at this interval.
fn steady(limit: &Limit, period: Duration, interval: Duration) -> usize {
    let passed = starts(period).map(|start| {
        let (limiter, clock) = limiter(limit, start);
        let passes = |_: &u32| {
            let passes = limiter.check_now("client").unwrap().allowed();
            clock.advance(interval);
            passes
        };
        (0..20).filter(passes).count()
    });
    passed.min().unwrap()
}

/// A wait in the unit of the quota's row: hours under limits of a day, else seconds. Rounded to a tenth.
fn text(wait: Duration, period: Duration) -> String {
    let (unit, name) = if period == DAY { (3600 * SECOND, "h") } else { (SECOND, "s") };
    let tenths = (wait.as_nanos() * 10 + unit.as_nanos() / 2) / unit.as_nanos();
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

/// The rows of the table.
fn rows() -> impl Iterator<Item = String> {
    QUOTAS.into_iter().map(|(quota, unit, period)| {
        let cells = ["", " log", " bucket", " fixed"].map(|algorithm| {
            let limit: Limit = format!("{quota}/{unit}{algorithm}").parse().unwrap();
            let wait = text(longest_wait(&limit, quota, period), period);
            let interval = period / quota + Duration::from_millis(1);
            format!("{wait} | {}", steady(&limit, period, interval))
        });
        format!("| `{quota}/{unit}` | {} |", cells.join(" | "))
    })
}

#[test]
fn the_page_shows_how_limits_of_a_few_units_behave() {
    let page = include_str!("../internals/algorithms.md");
    let missing: Vec<String> = rows().filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "internals/algorithms.md does not have these rows:\n{}", missing.join("\n"));
}

#[test]
fn a_log_counts_a_unit_for_the_whole_period() {
    let limit: Limit = "1/day log".parse().unwrap();
    assert_eq!(steady(&limit, DAY, DAY), 10, "exactly 24 hours later is within the window");
}

#[test]
fn a_client_that_is_sometimes_early_passes_with_a_margin() {
    for (text, passed) in [("1/day log", 10), ("1/day bucket", 10), ("1/23h bucket", 20), ("1/23h log", 20)] {
        let limit: Limit = text.parse().unwrap();
        assert_eq!(steady(&limit, DAY, DAY - SECOND), passed, "{text}");
    }
}
