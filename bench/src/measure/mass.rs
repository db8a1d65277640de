//! Millions of keys: what they weigh, and how long somebody has to wait while they come and while they go.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::memory::resident;
use super::{Session, figure};
use crate::contestants::{Contestant, Limiter};
use crate::keys::Key;
use crate::stopwatch::{Away, Stopwatch};

pub(super) struct Mass<C> {
    contestant: C,
    fewer: u64,
    more: u64,
}

/// Calls that are longer than this are looked at more closely.
const SLOW: u64 = 50_000;

/// How many calls are made before somebody looks whether the other thread is done.
const SOME: u64 = 4_096;

/// How many calls there are at most between the instant from which on it is counted how long others have the processor, and a
/// slow call. What they have in these is less than what is slow.
const FEW: u64 = 64;

impl<C: Contestant> Mass<C> {
    pub(super) fn new(contestant: C, fewer: u64, more: u64) -> Self {
        let share = contestant.share();
        // Slow ones have the smaller number only.
        let more = if share == 1 { more } else { fewer };
        Self { contestant, fewer, more }
    }
}

impl<C: Contestant> Session for Mass<C> {
    /// Bytes per key at the smaller and at the larger number, then the longest call in milliseconds while they come and
    /// while they expire. A figure that was not taken is not a number.
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        let mut caller = Caller::new();
        // Its code is there before any is weighed.
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
            // New keys come meanwhile, and go on coming until all that has expired has surely been seen to.
            let mut next = self.more;
            while next < self.more + self.fewer.max(self.more / 4) || !cleaned.load(Ordering::Acquire) {
                caller.call(&limiter, next..next + SOME);
                next += SOME;
            }
        });
        let expiring = caller.take_longest();
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
}

impl Caller {
    fn new() -> Self {
        // The memory of a key is there before any is measured.
        let mut key = Key::default();
        key.set(0);
        Self { key, away: Away::of_this_thread(), longest: 0, calls: 0 }
    }

    fn call(&mut self, limiter: &impl Limiter, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.key.set(number);
            if self.calls.is_multiple_of(FEW) {
                self.away.begin();
            }
            self.calls += 1;
            let start = Stopwatch::start();
            limiter.check(&self.key);
            let mut took = start.nanos();
            if took > SLOW {
                // While others had the processor nobody waited for this limiter.
                took = took.saturating_sub(self.away.since_last());
            }
            self.longest = self.longest.max(took);
        }
    }

    /// In milliseconds.
    fn take_longest(&mut self) -> f64 {
        figure(std::mem::take(&mut self.longest)) / 1e6
    }
}
