//! How units are counted, and where windows begin.

use std::time::Duration;

/// How units are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count that restarts at each whole multiple of the period. The cheapest algorithm; around a boundary it admits up
    /// to twice the quota.
    FixedWindow,
    /// The count of this window, plus that of the previous one weighted by the part of it that is still covered.
    SlidingWindow,
    /// A window of several segments that advances by one segment at a time.
    SegmentedWindow {
        /// Length of a segment; divides the period.
        precision: Duration,
        /// Counts the oldest segment in full: never more than the quota in *any* span as long as the period.
        strict: bool,
    },
    /// The instant of each unit: exact, at eight bytes per unit.
    SlidingLog,
    /// Tokens that are refilled evenly (the generic cell rate algorithm): a smooth rate, and up to `burst` units at once.
    TokenBucket,
    /// Units drain evenly; what does not fit is refused. Equivalent to the token bucket.
    LeakyBucket,
    /// Units leave evenly, one after another. An admitted request has to wait for its turn, unless it fits into the
    /// [immediate](crate::LimitBuilder::immediate) units. The queue holds up to `burst` units, including the immediate
    /// ones.
    LeakyQueue,
    /// Units are held until they are [released](crate::RateLimiter::release), but at most for the period, which is the
    /// *lease*: when it ends, the units of a holder that has crashed are free again. If your work takes longer,
    /// [renew](crate::RateLimiter::renew) the lease.
    ///
    /// The `retry_after` of a refusal is the time until so many of the oldest leases end that the request fits, if none is
    /// released earlier or renewed.
    Concurrency,
    /// A count that never restarts: `quota` units in total, for trials and prepaid credit.
    ///
    /// To top up, raise the quota: what was used stays used. A store that loses its data forgets what was used.
    Total,
    /// Counts refusals instead of units: a key that is refused `quota` times within the period is banned. While it is
    /// banned, it is refused whatever the cost.
    ///
    /// A refusal counts if another limit of the request refuses the same key. Refusals during a ban do not count,
    /// also not towards another ban.
    Ban {
        /// How long the first ban lasts.
        duration: Duration,
        /// Each further ban is this many times as long as the one before.
        factor: u32,
        /// The length of the longest ban. Each time that twice this time has passed, one earlier ban is forgotten.
        longest: Duration,
    },
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Alignment {
    /// At whole multiples of their length since the Unix epoch: at the same instants for every key.
    #[default]
    Epoch,
    /// Earlier than with `Epoch` by this duration. `Duration::from_secs(7200)` starts days at midnight of UTC+2.
    Offset(Duration),
    /// At a different instant for each key, so that counts do not all restart at the same time.
    Staggered,
    /// For each key, with its first charge, and then with the first charge after its last window has ended. For fixed
    /// windows.
    FirstRequest,
    /// At the beginning of each period of a calendar: see `Limit::calendar`.
    Calendar,
}
