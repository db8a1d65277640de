//! The sweep that removes expired meters, a few with each step.

use std::ops::Range;

use ratelimit_core::Timestamp;

use crate::MemoryStore;

/// How many meters one step of the sweep visits.
const LOOKS: usize = 8;

/// How many shards one step of the sweep visits at most. If it visits several, most of them are empty.
const VISITS: usize = 16;

impl MemoryStore {
    /// Continues the sweep by one step. The caller must hold no lock; this does not wait for any.
    #[cold]
    pub(crate) fn continue_sweep(&self, now: Timestamp) {
        // Threads that sweep concurrently may visit the same shards; the sweep makes progress all the same.
        let start = self.walk.get();
        let visits = start..(start + VISITS).min(self.shards.count());
        let next = match self.shards.may_forget(visits.clone(), now) {
            true => self.sweep(visits, now),
            false => visits.end,
        };
        self.walk.set(if next < self.shards.count() { next } else { 0 });
    }

    /// Visits some of the meters of these shards, and returns the shard that comes next.
    #[cold]
    fn sweep(&self, numbers: Range<usize>, now: Timestamp) -> usize {
        let mut looks = 0;
        for number in numbers.clone() {
            if self.shards.may_forget(number..number + 1, now)
                && let Some(mut shard) = self.shards.try_lock(number)
            {
                looks += shard.sweep(LOOKS - looks, now);
                if looks == LOOKS {
                    return number + 1;
                }
            }
        }
        numbers.end
    }
}
