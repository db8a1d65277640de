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
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 8] = [
        Self::Fixed,
        Self::Sliding,
        Self::Segmented,
        Self::Strict,
        Self::Log,
        Self::Bucket,
        Self::Leaky,
        Self::Queue,
    ];

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
        }
    }

    /// Whether limits of this kind can have a burst.
    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::Bucket | Self::Leaky | Self::Queue)
    }

    /// A builder for a limit of this kind. Segmented windows have four segments. The burst is the quota.
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
        }
    }

    /// A limit of this kind.
    pub(crate) fn limit(self, quota: u64, period: Duration) -> Result<Limit, LimitError> {
        self.builder(quota, period).build()
    }
}
