//! The lifetimes of items, as the protocol writes them.

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
        token(Duration::from_nanos(nanos).saturating_add(self.slack), self.clock.now())
    }
}

fn token(life: Duration, now: Timestamp) -> u64 {
    let seconds = life.as_secs() + u64::from(life.subsec_nanos() > 0) + 2;
    if seconds <= LONGEST_INTERVAL {
        return seconds;
    }
    let now = now.since(Timestamp::EPOCH).as_secs();
    let date = now.saturating_add(seconds).min(LATEST_DATE);
    if date > now.saturating_add(LONGEST_INTERVAL) { date } else { LONGEST_INTERVAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn lifetime_tokens_do_not_expire_early() {
        let now = Timestamp::from_secs(1_800_000_000);
        let of = |life| token(life, now);
        assert_eq!(of(Duration::ZERO), 2);
        assert_eq!(of(Duration::from_nanos(1)), 3);
        assert_eq!(of(Duration::from_secs(30 * DAY - 2)), 30 * DAY);
        assert_eq!(of(Duration::from_secs(30 * DAY - 1)), 1_800_000_000 + 30 * DAY + 1);
        assert_eq!(of(Duration::from_secs(80 * DAY)), 1_800_000_000 + 80 * DAY + 2);
        assert_eq!(of(Duration::from_secs(20 * 366 * DAY)), i32::MAX as u64);
        assert_eq!(of(Duration::MAX.min(Duration::from_secs(u64::MAX / 2))), i32::MAX as u64);
        assert_eq!(token(Duration::from_secs(80 * DAY), Timestamp::from_secs(i32::MAX as u64)), 30 * DAY);
    }
}
