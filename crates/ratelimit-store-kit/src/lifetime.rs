//! How long to keep the state of a meter.

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::CLOCK_SLACK;

/// How long a store has to keep a state that it writes.
///
/// It is a span, not a date: the clocks of callers show other times than the server's. Start it at the server's time of the
/// write.
///
/// Never shorten the lifetime of a state that exists: store the longer one of this and what is left. Limits with different
/// leases share one log, whose units may count for longer under another limit; and a caller whose clock is ahead may refund.
/// `Lifetime` is ordered, so [`Ord::max`] returns the longer one. A [reset](ratelimit_core::CounterStore::reset) removes
/// the state with its lifetime.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_core::{Limit, Timestamp};
/// use ratelimit_store_kit::Lifetime;
///
/// let now = Timestamp::from_secs(1_000);
/// let limit: Limit = "10/s burst 10".parse()?;
/// let meter = limit.meter_for(b"user:7");
/// let mut state = meter.fresh();
/// meter.charge(&mut state, 5, now);
/// // Half a second until it is empty, and ten seconds for callers whose clocks are behind.
/// assert_eq!(Lifetime::of(&meter, &state, now), Lifetime::For(Duration::from_millis(10_500)));
///
/// let limit: Limit = "10 in total".parse()?;
/// let meter = limit.meter_for(b"user:7");
/// let mut state = meter.fresh();
/// meter.charge(&mut state, 5, now);
/// assert_eq!(Lifetime::of(&meter, &state, now), Lifetime::Forever);
/// # Ok::<(), ratelimit_core::ParseLimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifetime {
    /// At least for this long from now.
    For(Duration),
    /// Until it is reset: the meter never drains.
    Forever,
}

impl Lifetime {
    /// How much later than necessary a state is removed. The contract demands one second
    /// ([`CLOCK_SLACK`]) for callers whose clocks are behind; a server's clock measures on while
    /// requests wait, so it is ten.
    pub const SLACK: Duration = Duration::from_secs(10);

    /// How much later than necessary a state is removed, if the configuration of a store says how much: at least
    /// [`CLOCK_SLACK`], and at most a century, which is as good as any longer time and fits the numbers of every server.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ratelimit_store_kit::Lifetime;
    ///
    /// assert_eq!(Lifetime::slack(Duration::ZERO), Duration::from_secs(1));
    /// assert_eq!(Lifetime::slack(Duration::from_secs(60)), Duration::from_secs(60));
    /// assert_eq!(Lifetime::slack(Duration::MAX), Duration::from_secs(3_155_760_000));
    /// ```
    pub fn slack(configured: Duration) -> Duration {
        const CENTURY: Duration = Duration::from_secs(3_155_760_000);
        configured.clamp(CLOCK_SLACK, CENTURY)
    }

    /// How long to keep `state`, which was written by a claim or a refund at `now`.
    pub fn of(meter: &Meter, state: &State, now: Timestamp) -> Self {
        match meter.forget_at(state) {
            end if end >= Timestamp::MAX => Self::Forever,
            end => Self::For(end.since(now) + Self::SLACK),
        }
    }

    /// Whole milliseconds, rounded up; `None` if it is for ever.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ratelimit_store_kit::Lifetime;
    ///
    /// assert_eq!(Lifetime::For(Duration::from_micros(1_001)).as_millis(), Some(2));
    /// assert_eq!(Lifetime::Forever.as_millis(), None);
    /// ```
    pub fn as_millis(self) -> Option<u64> {
        let Self::For(span) = self else { return None };
        Some(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
