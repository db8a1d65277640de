//! Upper bounds of numbers.

/// The maximum number of units that a limit may allow and a meter counts: 999,999,999,999,999. A claim that costs more
/// never fits; a forced charge counts at most this many.
///
/// It is the largest integer that an HTTP structured field can carry, and small enough for every store to add exactly
/// (a script on Redis has 53 bits).
pub const MAX_UNITS: u64 = 999_999_999_999_999;

/// The maximum number of units in a sliding log, which stores eight bytes for each.
pub const MAX_LOG_UNITS: u64 = 1_000_000;

/// A log may contain this many units of one holder: the one that it holds, and one for each renewal within a lease after which
/// the old unit was not returned.
pub(crate) const RENEWALS: u64 = 4;

/// The longest period of a limit in nanoseconds: 3,660 days (ten years).
pub const MAX_PERIOD_NANOS: u64 = 3_660 * 86_400 * 1_000_000_000;

/// The maximum number of segments of a segmented window.
pub const MAX_SEGMENTS: u32 = 3_600;

/// The maximum number of different rates at which the units of one bucket drain; see [`BucketState`](crate::meter::BucketState).
pub const MAX_RATES: usize = 16;

/// The maximum number of claims that can be decided together.
pub const MAX_CLAIMS: usize = 64;
