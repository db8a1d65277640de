//! Instants that every store can hold: whole nanoseconds since the Unix epoch.

use std::fmt;
use std::time::Duration;

/// An instant: whole nanoseconds since 1970-01-01T00:00:00Z.
///
/// One nanosecond is the *tick* of this library: if you wait for `retry_after`, the request fits; one tick earlier it
/// does not.
///
/// The range ends at [`Timestamp::MAX`] (February 2116), so that an instant plus the longest possible debt of a bucket
/// still fits a signed 64-bit database column.
///
/// ```
/// use ratelimit_core::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_secs(1_000);
/// let later = start + Duration::from_millis(5);
/// assert_eq!(later.as_nanos(), 1_000_005_000_000);
/// assert_eq!(later.since(start), Duration::from_millis(5));
/// assert_eq!(start.since(later), Duration::ZERO); // never negative
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// The latest instant that a clock can return: 2<sup>62</sup> - 1 ns after the epoch.
    pub const MAX: Self = Self((1 << 62) - 1);

    /// Creates the instant `nanos` nanoseconds after the epoch. Saturates at [`Timestamp::MAX`].
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// Creates the instant `micros` microseconds after the epoch. Saturates at [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        Self::from_nanos(micros.saturating_mul(1_000))
    }

    /// Creates the instant `millis` milliseconds after the epoch. Saturates at [`Timestamp::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_nanos(millis.saturating_mul(1_000_000))
    }

    /// Creates the instant `secs` seconds after the epoch. Saturates at [`Timestamp::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_nanos(secs.saturating_mul(1_000_000_000))
    }

    /// Creates the instant `nanos` nanoseconds after the epoch, for instants that a meter has computed and a store has
    /// kept, such as the end of a debt. Does not saturate: these may be later than [`Timestamp::MAX`].
    pub const fn derived(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if this instant is not later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`].
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
