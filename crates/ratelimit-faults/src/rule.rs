//! The most that a limit admits in a span of time, whatever the arithmetic in between.

/// The bound of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// In each aligned window: fixed windows and sliding-window counters.
    Window { quota: u64, period: u64 },
    /// In each span of the period: sliding logs and strict segmented windows.
    Log { quota: u64, period: u64 },
    /// The burst, and a unit for each interval.
    Bucket { burst: u64, interval: u64 },
}

impl Rule {
    /// The most units that may be charged at instants from `from` to `to`.
    pub(crate) fn most(self, from: u64, to: u64) -> u64 {
        let passed = to.saturating_sub(from);
        match self {
            Self::Window { quota, period } => quota * (to / period - from / period + 1),
            Self::Log { quota, period } => quota * (passed / period + 1),
            Self::Bucket { burst, interval } => burst + passed / interval,
        }
    }

    /// What a single loss can give back.
    pub(crate) fn quota(self) -> u64 {
        match self {
            Self::Window { quota, .. } | Self::Log { quota, .. } => quota,
            Self::Bucket { burst, .. } => burst,
        }
    }

    /// The same limit divided among instances.
    pub(crate) fn divided(self, instances: u64) -> Self {
        let part = |quota: u64| (quota / instances).max(1);
        match self {
            Self::Window { quota, period } => Self::Window { quota: part(quota), period },
            Self::Log { quota, period } => Self::Log { quota: part(quota), period },
            Self::Bucket { burst, interval } => {
                Self::Bucket { burst: part(burst), interval: interval * instances }
            }
        }
    }

    /// The most units that can become free between two instants, which are less than a period apart: none of a log, none of
    /// a window. `None` if they are in different windows.
    pub(crate) fn returned(self, from: u64, to: u64) -> Option<u64> {
        match self {
            Self::Window { period, .. } => (from / period == to / period).then_some(0),
            Self::Log { .. } => Some(0),
            Self::Bucket { interval, .. } => Some(to.saturating_sub(from) / interval + 1),
        }
    }
}
