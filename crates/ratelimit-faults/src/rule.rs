//! The most that a limit admits in a span of time, whatever the arithmetic in between.

/// The bound of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// In each aligned window.
    Fixed { quota: u64, period: u64 },
    /// In each aligned window, of which the one before counts in part: sliding-window counters.
    Sliding { quota: u64, period: u64 },
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
            Self::Fixed { quota, period } => quota * (to / period - from / period + 1),
            // The count of the window before, rounded up, weighs as much as is left of this one. So the last two windows
            // together admit the quota and the part of it that has passed of the last one.
            Self::Sliding { quota, period } => match to / period - from / period {
                0 => quota,
                turns => quota * turns + quota * (to % period) / period,
            },
            Self::Log { quota, period } => quota * (passed / period + 1),
            Self::Bucket { burst, interval } => burst + passed / interval,
        }
    }

    /// What a single loss can give back.
    pub(crate) fn quota(self) -> u64 {
        match self {
            Self::Fixed { quota, .. } | Self::Sliding { quota, .. } | Self::Log { quota, .. } => quota,
            Self::Bucket { burst, .. } => burst,
        }
    }

    /// The same limit on a store that counts late calls in their own window without regard to the next one.
    pub(crate) fn in_any_order(self) -> Self {
        match self {
            Self::Sliding { quota, period } => Self::Fixed { quota, period },
            ordered => ordered,
        }
    }

    /// The same limit divided among instances.
    pub(crate) fn divided(self, instances: u64) -> Self {
        let part = |quota: u64| (quota / instances).max(1);
        match self {
            Self::Fixed { quota, period } => Self::Fixed { quota: part(quota), period },
            Self::Sliding { quota, period } => Self::Sliding { quota: part(quota), period },
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
            Self::Fixed { period, .. } | Self::Sliding { period, .. } => {
                (from / period == to / period).then_some(0)
            }
            Self::Log { .. } => Some(0),
            Self::Bucket { interval, .. } => Some(to.saturating_sub(from) / interval + 1),
        }
    }

    /// Whether these charges can leave less than `cost` at some instant from `from` on. Each has the latest instant at which
    /// it can have been made, and its units.
    pub(crate) fn can_refuse(self, cost: u64, from: u64, charges: &mut [(u64, u64)]) -> bool {
        let since = |first: u64| -> u64 {
            charges.iter().filter(|(latest, _)| *latest >= first).map(|(_, units)| units).sum()
        };
        match self {
            Self::Fixed { quota, period } => since(from / period * period) + cost > quota,
            Self::Sliding { quota, period } => {
                since((from / period).saturating_sub(1) * period) + cost > quota
            }
            Self::Log { quota, period } => since(from.saturating_sub(period)) + cost > quota,
            Self::Bucket { burst, interval } => {
                charges.sort_unstable_by_key(|(latest, _)| std::cmp::Reverse(*latest));
                let mut sum = cost;
                sum > burst
                    || charges.iter().any(|(latest, units)| {
                        sum += units;
                        sum > burst + from.saturating_sub(*latest) / interval
                    })
            }
        }
    }
}
