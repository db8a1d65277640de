//! How units are counted, and where windows begin.

use std::time::Duration;

/// How units are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count that restarts at each whole multiple of the period. Cheapest; admits up to twice the quota around a
    /// boundary.
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
    /// Tokens that are refilled evenly (the generic cell rate algorithm): smooth, and up to `burst` at once.
    TokenBucket,
    /// Units drain evenly; what does not fit is refused. Equivalent to the token bucket.
    LeakyBucket,
    /// Units leave evenly, one after another. An admitted request has to wait for its turn, unless it fits into the
    /// [immediate](crate::LimitBuilder::immediate) units; up to `burst` may be waiting.
    LeakyQueue,
    /// Units are held until they are [released](crate::RateLimiter::release), at most for the period, which is the *lease*:
    /// it frees the units of a holder that has crashed. Whoever works longer [renews](crate::RateLimiter::renew) it.
    ///
    /// The `retry_after` of a refusal is when the oldest lease ends if it is neither released earlier nor renewed.
    Concurrency,
    /// A count that never restarts: `quota` units in total, for trials and prepaid credit.
    ///
    /// To top up, raise the quota: what was used stays used. A store that loses its data forgets what was used.
    Total,
    /// No units: a key that is refused `quota` times within the period is banned, and then refused whatever it costs.
    ///
    /// Refusals of the other limits on the same key count. While the key is banned, nothing counts.
    Ban {
        /// How long the first ban lasts.
        duration: Duration,
        /// Each further ban is this many times as long as the one before.
        factor: u32,
        /// No ban is longer. Whenever twice this time has passed, one of the earlier bans is forgotten.
        longest: Duration,
    },
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Alignment {
    /// At whole multiples of their length since the Unix epoch: the same instant for every key.
    #[default]
    Epoch,
    /// Earlier than those by this duration. `Duration::from_secs(7200)` starts days at midnight of UTC+2.
    Offset(Duration),
    /// At a different instant for each key, so that counts do not all restart at the same time.
    Staggered,
    /// For each key, with the first charge after its last window has ended. For fixed windows.
    FirstRequest,
    /// With the period of a calendar: see `Limit::calendar`.
    Calendar,
}
