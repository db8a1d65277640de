//! The kinds of limit that every store must support.

use std::time::Duration;

use ratelimit_core::{Limit, LimitBuilder, LimitError};

/// A kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Fixed,
    Sliding,
    Segmented,
    Strict,
    Log,
    Bucket,
    Leaky,
    Queue,
    /// A window that begins with a key's first request.
    First,
    /// A bucket that is refilled in steps.
    Steps,
    /// Units that are held until they are released, or until their lease ends: the period.
    Permits,
    /// A count that never restarts. It has no period.
    Total,
}

impl Kind {
    /// All kinds: the list for every loop over kinds. In a case, see [`Bench::kinds`](crate::bench::Bench::kinds).
    pub(crate) const ALL: [Self; 12] = [
        Self::Fixed,
        Self::Sliding,
        Self::Segmented,
        Self::Strict,
        Self::Log,
        Self::Bucket,
        Self::Leaky,
        Self::Queue,
        Self::First,
        Self::Steps,
        Self::Permits,
        Self::Total,
    ];

    /// Those whose units come back by themselves.
    pub(crate) const RENEWED: [Self; 11] = {
        let [fixed, sliding, segmented, strict, log, bucket, leaky, queue, first, steps, permits, _] =
            Self::ALL;
        [fixed, sliding, segmented, strict, log, bucket, leaky, queue, first, steps, permits]
    };

    /// Those whose units are spent. A settlement leaves units that are held.
    pub(crate) const SPENT: [Self; 11] = {
        let [fixed, sliding, segmented, strict, log, bucket, leaky, queue, first, steps, _, total] =
            Self::ALL;
        [fixed, sliding, segmented, strict, log, bucket, leaky, queue, first, steps, total]
    };

    /// Those whose units come back in turns of windows, or unit by unit.
    pub(crate) const PLAIN: [Self; 8] = {
        let [fixed, sliding, segmented, strict, log, bucket, leaky, queue, ..] = Self::ALL;
        [fixed, sliding, segmented, strict, log, bucket, leaky, queue]
    };

    /// One kind of limit for each kind of meter.
    pub(crate) const METERS: [Self; 3] = [Self::Sliding, Self::Bucket, Self::Log];

    /// The name of this kind, as the suffix of a case's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sliding => "sliding",
            Self::Segmented => "segmented",
            Self::Strict => "strict",
            Self::Log => "log",
            Self::Bucket => "bucket",
            Self::Leaky => "leaky",
            Self::Queue => "queue",
            Self::First => "first",
            Self::Steps => "steps",
            Self::Permits => "permits",
            Self::Total => "total",
        }
    }

    /// Whether limits of this kind can have a burst.
    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::Bucket | Self::Leaky | Self::Queue | Self::Steps)
    }

    /// Whether it counts in windows that begin at the same instants for all keys.
    pub(crate) fn is_window(self) -> bool {
        matches!(self, Self::Fixed | Self::Sliding | Self::Segmented | Self::Strict)
    }

    /// Whether units of a limit of this kind come back by themselves.
    pub(crate) fn is_renewed(self) -> bool {
        self != Self::Total
    }

    /// Whether nodes that count for themselves cannot count it together.
    pub(crate) fn needs_one_count(self) -> bool {
        matches!(self, Self::First | Self::Steps | Self::Total)
    }

    /// A builder for a limit of this kind. Segmented windows have four segments, buckets in
    /// steps two steps if the quota is even. The burst is the quota.
    pub(crate) fn builder(self, quota: u64, period: Duration) -> LimitBuilder {
        match self {
            Self::Fixed => Limit::fixed_window(quota, period),
            Self::Sliding => Limit::sliding_window(quota, period),
            Self::Segmented => Limit::segmented_window(quota, period, period / 4),
            Self::Strict => Limit::segmented_window(quota, period, period / 4).strict(),
            Self::Log => Limit::sliding_log(quota, period),
            Self::Bucket => Limit::token_bucket(quota, period),
            Self::Leaky => Limit::leaky_bucket(quota, period),
            Self::Queue => Limit::leaky_queue(quota, period),
            Self::First => Limit::fixed_window(quota, period).from_first_request(),
            Self::Steps => Limit::token_bucket(quota, period).step(step(quota, period)),
            Self::Permits => Limit::concurrency(quota).lease(period),
            Self::Total => Limit::total(quota),
        }
    }

    /// A limit of this kind.
    pub(crate) fn limit(self, quota: u64, period: Duration) -> Result<Limit, LimitError> {
        self.builder(quota, period).build()
    }
}

/// Half of the period, or all of it if the quota has no half.
fn step(quota: u64, period: Duration) -> Duration {
    if quota.is_multiple_of(2) && period.as_nanos().is_multiple_of(2) { period / 2 } else { period }
}
