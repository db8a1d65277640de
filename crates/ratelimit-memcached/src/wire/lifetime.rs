//! The lifetimes of items, as the protocol writes them: whole seconds, and beyond thirty days dates. Of a
//! [`Lifetime`](ratelimit_store_kit::Lifetime) it has only the slack, because most items are counters of a window, whose
//! lifetime does not depend on a state.

use std::time::Duration;

use ratelimit_core::{Clock, SystemClock, Timestamp};

/// Up to thirty days a lifetime is an interval; a larger number is a date in seconds since the epoch.
const LONGEST_INTERVAL: u64 = 30 * 86_400;

/// The latest date: servers read it as a signed 32-bit number, and items with a later one expire immediately.
const LATEST_DATE: u64 = i32::MAX as u64;

/// Computes the lifetimes of items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    slack: Duration,
    clock: SystemClock,
}

impl Lifetimes {
    pub(crate) fn new(slack: Duration) -> Self {
        Self { slack, clock: SystemClock::new() }
    }

    /// The token for an item that is relevant for `nanos` from now on; never zero, which means "for ever".
    ///
    /// Servers count whole seconds, so an item may live up to one second less than its token says; the token includes one
    /// second for that and one to spare. An item that would have to live beyond 2038 lives until then.
    pub(crate) fn token(&self, nanos: u64) -> u64 {
        token(seconds(Duration::from_nanos(nanos).saturating_add(self.slack)), self.clock.now())
    }

    /// The token for an item that is to live for so many seconds more. Of two tokens the larger one is the later one.
    pub(crate) fn of_left(&self, seconds: u64) -> u64 {
        token(seconds, self.clock.now())
    }
}

fn seconds(life: Duration) -> u64 {
    life.as_secs() + u64::from(life.subsec_nanos() > 0) + 2
}

fn token(seconds: u64, now: Timestamp) -> u64 {
    if seconds <= LONGEST_INTERVAL {
        return seconds;
    }
    let now = now.since(Timestamp::EPOCH).as_secs();
    let date = now.saturating_add(seconds).min(LATEST_DATE);
    if date > now.saturating_add(LONGEST_INTERVAL) { date } else { LONGEST_INTERVAL }
}

/// The second since the epoch in which an item with this token expires.
#[cfg(feature = "memcache")]
pub(crate) fn end(token: u64, now: u64) -> u64 {
    if token > LONGEST_INTERVAL { token } else { now + token }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn lifetime_tokens_do_not_expire_early() {
        let now = Timestamp::from_secs(1_800_000_000);
        let of = |life| token(seconds(life), now);
        assert_eq!(of(Duration::ZERO), 2);
        assert_eq!(of(Duration::from_nanos(1)), 3);
        assert_eq!(of(Duration::from_secs(30 * DAY - 2)), 30 * DAY);
        assert_eq!(of(Duration::from_secs(30 * DAY - 1)), 1_800_000_000 + 30 * DAY + 1);
        assert_eq!(of(Duration::from_secs(80 * DAY)), 1_800_000_000 + 80 * DAY + 2);
        assert_eq!(of(Duration::from_secs(20 * 366 * DAY)), i32::MAX as u64);
        assert_eq!(of(Duration::MAX.min(Duration::from_secs(u64::MAX / 2))), i32::MAX as u64);
        assert_eq!(token(80 * DAY, Timestamp::from_secs(i32::MAX as u64)), 30 * DAY);
        assert_eq!(token(u64::MAX, now), i32::MAX as u64);
    }
}
