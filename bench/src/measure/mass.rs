//! Millions of keys: their memory, and the longest call during insertion and during expiry.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::memory::resident;
use super::speed::check_answers;
use crate::contestants::{Allow, Contestant, Limiter};
use crate::keys::Key;
use crate::session::{Session, figure};
use crate::stopwatch::{Away, Stopwatch};

pub(super) struct Mass<C> {
    contestant: C,
    fewer: u64,
    more: u64,
}

/// Longer calls are examined more closely.
const SLOW: u64 = 50_000;

/// The number of calls between checks whether the other thread is done.
const SOME: u64 = 4_096;

/// The maximum number of calls between the start of the measurement of processor waits and a slow call. The waits in this
/// number of calls are shorter than a slow call.
const FEW: u64 = 64;

impl<C: Contestant> Mass<C> {
    pub(super) fn new(contestant: C, fewer: u64, more: u64) -> Self {
        let share = contestant.share();
        // Slow contestants only get the smaller number.
        let more = if share == 1 { more } else { fewer };
        Self { contestant, fewer, more }
    }
}

impl<C: Contestant> Session for Mass<C> {
    /// Bytes per key at the smaller and at the larger number, then the longest call in milliseconds during insertion and
    /// during expiry. A missing figure is not-a-number.
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        let mut caller = Caller::new();
        // Loads the code before memory is measured.
        caller.call(&self.contestant.short(), 0..1);
        caller.take_longest();
        let before = resident()?;
        let limiter = self.contestant.short();
        caller.call(&limiter, 0..self.fewer);
        let fewer = figure(resident()?.saturating_sub(before)) / figure(self.fewer);
        caller.call(&limiter, self.fewer..self.more);
        let more = figure(resident()?.saturating_sub(before)) / figure(self.more);
        let inserting = caller.take_longest();
        limiter.expire();
        let cleaned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                limiter.clean();
                cleaned.store(true, Ordering::Release);
            });
            // Inserts new keys until all expired keys have been removed.
            let mut next = self.more;
            while next < self.more + self.fewer.max(self.more / 4) || !cleaned.load(Ordering::Acquire) {
                caller.call(&limiter, next..next + SOME);
                next += SOME;
            }
        });
        let expiring = caller.take_longest();
        check_answers(caller.admitted, caller.calls, Allow::Everything)?;
        let larger = if self.more > self.fewer { more } else { f64::NAN };
        Ok(vec![fewer, larger, inserting, expiring])
    }
}

/// Calls a limiter and remembers the longest call.
struct Caller {
    key: Key,
    away: Away,
    longest: u64,
    calls: u64,
    admitted: u64,
}

impl Caller {
    fn new() -> Self {
        // Allocates the memory of the key before memory is measured.
        let mut key = Key::default();
        key.set(0);
        Self { key, away: Away::of_this_thread(), longest: 0, calls: 0, admitted: 0 }
    }

    fn call(&mut self, limiter: &impl Limiter, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.key.set(number);
            if self.calls.is_multiple_of(FEW) {
                self.away.begin();
            }
            self.calls += 1;
            let start = Stopwatch::start();
            let is_admitted = limiter.check(&self.key);
            let mut took = start.nanos();
            self.admitted += u64::from(is_admitted);
            if took > SLOW {
                // The time that other threads had the processor does not count.
                took = took.saturating_sub(self.away.since_last());
            }
            self.longest = self.longest.max(took);
        }
    }

    /// Returns the longest call in milliseconds, and resets it.
    fn take_longest(&mut self) -> f64 {
        figure(std::mem::take(&mut self.longest)) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::wrong::Always;

    #[test]
    fn wrong_answers_are_an_error() {
        assert!(Mass::new(Always(true), 10, 100).step(0).is_ok());
        assert!(Mass::new(Always(false), 10, 100).step(0).is_err());
    }
}
