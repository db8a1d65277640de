//! The limits of simulated fleets that count by themselves: of every kind.

use std::time::Duration;

use ratelimit_core::Limit;
use ratelimit_core::meter::Meter;

use crate::random::Random;

pub(crate) fn limit(random: &mut Random) -> Limit {
    let quota = random.between(5, 150);
    let period = Duration::from_millis(random.between(1, 50) * 200);
    let burst = random.between(1, quota);
    let builder = match random.below(8) {
        0 => Limit::fixed_window(quota, period),
        1 => Limit::sliding_window(quota, period),
        2 => Limit::segmented_window(quota, period, period / 4),
        3 => Limit::segmented_window(quota, period, period / 4).strict(),
        4 => Limit::token_bucket(quota, period).burst(burst),
        5 => Limit::leaky_bucket(quota, period).burst(burst),
        6 => Limit::leaky_queue(quota, period).burst(burst),
        _ => Limit::sliding_log(quota, period),
    };
    builder.build().expect("a limit")
}

/// The time that a limit looks back on, in nanoseconds.
pub(crate) fn period(limit: &Limit) -> u64 {
    match limit.meter_for(b"0") {
        Meter::Window(window) => window.segment() * u64::from(window.carried().max(1)),
        Meter::Bucket(bucket) => bucket.tolerance().max(bucket.interval()),
        Meter::Log(log) => log.window(),
    }
}
