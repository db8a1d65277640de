//! The algorithms that are compared, for one quota and one period.

use anyhow::Context as _;
use ratelimit_core::meter::MAX_LOG_UNITS;
use ratelimit_core::{Algorithm, Alignment, Limit};
use serde::Serialize;

/// The number of segments of a segmented window in its period.
const SEGMENTS: u32 = 10;

/// Each algorithm with the quota and the period of `limit`. Segmented windows have ten segments. The token bucket has a
/// burst of the quota, the leaky bucket and the queue one of a tenth of it; with the same burst, the buckets would decide
/// alike.
///
/// # Errors
/// If an algorithm cannot have this quota or period. The quota is at most half of what a log can have, since an algorithm
/// can admit twice its quota in a period, and the log that judges it has to hold this. A tenth of the period has to be
/// whole microseconds.
pub(super) fn algorithms(limit: &Limit) -> anyhow::Result<Vec<Limit>> {
    let (quota, period) = (limit.quota(), limit.period());
    let has_none = limit.is_ban() || matches!(limit.algorithm(), Algorithm::Concurrency | Algorithm::Total);
    anyhow::ensure!(
        !has_none && limit.alignment() != Alignment::Calendar,
        "{limit}: only limits with a quota for a period of one length can be compared"
    );
    anyhow::ensure!(
        quota <= MAX_LOG_UNITS / 2,
        "{limit}: not all algorithms can have this quota and period: at most {} units are compared",
        MAX_LOG_UNITS / 2
    );
    let precision = period / SEGMENTS;
    let short = (quota / 10).max(1);
    let each = [
        Limit::fixed_window(quota, period),
        Limit::sliding_window(quota, period),
        Limit::segmented_window(quota, period, precision),
        Limit::segmented_window(quota, period, precision).strict(),
        Limit::sliding_log(quota, period),
        Limit::token_bucket(quota, period),
        Limit::leaky_bucket(quota, period).burst(short),
        Limit::leaky_queue(quota, period).burst(short),
    ];
    let each = each.into_iter().map(|builder| builder.build());
    each.collect::<Result<_, _>>()
        .with_context(|| format!("{limit}: not all algorithms can have this quota and period"))
}

/// Whether the used units of an algorithm, which are the quota less what remains, are an estimate of the units in the
/// last period. Those of buckets and queues are not.
pub(super) fn estimates(algorithm: Algorithm) -> bool {
    use Algorithm::{FixedWindow, SegmentedWindow, SlidingLog, SlidingWindow};
    matches!(algorithm, FixedWindow | SlidingWindow | SegmentedWindow { .. } | SlidingLog)
}

/// The number of round trips of a check of one limit, as the README's table of stores states them and the conformance
/// suite counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trips {
    /// In memory.
    pub memory: u8,
    /// On Redis.
    pub redis: u8,
    /// On PostgreSQL.
    pub postgres: u8,
    /// On Memcached.
    pub memcached: u8,
}

pub(super) fn trips(algorithm: Algorithm) -> Trips {
    use Algorithm::{FixedWindow, SegmentedWindow, SlidingWindow};
    let is_window = matches!(algorithm, FixedWindow | SlidingWindow | SegmentedWindow { .. });
    Trips { memory: 0, redis: 1, postgres: 1, memcached: if is_window { 1 } else { 2 } }
}
