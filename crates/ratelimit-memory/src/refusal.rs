//! The last refusal of a shard, readable without the lock: a key that is refused repeatedly need not take the lock.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::kit::{CompactState, Fingerprint};
use crate::slot::Slot;

/// A meter that has refused, in its state at that time; or none. Only the thread that holds the lock writes it.
///
/// A sequence lock: the turn is odd during a write, and a reader uses only what it read between two reads of the same even
/// turn. Readers write nothing, so any number of threads can be refused on one key without slowing each other down.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    turn: AtomicU64,
    low: AtomicU64,
    /// The upper half of the fingerprint, and whether there is a meter at all.
    high: AtomicU64,
    words: [AtomicU64; 3],
}

const THERE: u64 = 1 << 32;

impl Refusal {
    /// Returns the meter of this fingerprint, if it is the published one.
    #[inline]
    pub(crate) fn of(&self, fingerprint: Fingerprint) -> Option<Slot> {
        // Nearly always it is a different one.
        if self.low.load(Ordering::Relaxed) != fingerprint.low {
            return None;
        }
        let turn = self.turn.load(Ordering::Acquire);
        let low = self.low.load(Ordering::Relaxed);
        let high = self.high.load(Ordering::Relaxed);
        let words = [0, 1, 2].map(|place: usize| self.words[place].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn;
        let is_it = low == fingerprint.low && high == THERE | u64::from(fingerprint.kept());
        (is_whole && is_it).then(|| Slot::of_state(fingerprint, CompactState::from_words(words)))
    }

    /// Publishes this meter, or none. Only for the thread that holds the shard's lock.
    pub(crate) fn show(&self, slot: Option<&Slot>) {
        let (low, high, words) = match slot {
            Some(slot) => (slot.low(), THERE | u64::from(slot.high), slot.state().words()),
            None => (0, 0, [0; 3]),
        };
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.low.store(low, Ordering::Relaxed);
        self.high.store(high, Ordering::Relaxed);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.turn.store(turn.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn slot(number: u64) -> Slot {
        Slot::of_state(fingerprint(number), CompactState::from_words([number; 3]))
    }

    fn fingerprint(number: u64) -> Fingerprint {
        Fingerprint { low: number / 2, high: number << 32 }
    }

    #[test]
    fn at_most_one_meter_is_shown() {
        let refusal = Refusal::default();
        // A fingerprint of zeros is valid, too.
        assert!(refusal.of(fingerprint(0)).is_none());
        refusal.show(Some(&slot(0)));
        assert!(refusal.of(fingerprint(0)).is_some() && refusal.of(fingerprint(1)).is_none());
        refusal.show(Some(&slot(1)));
        assert!(refusal.of(fingerprint(0)).is_none() && refusal.of(fingerprint(1)).is_some());
        refusal.show(None);
        assert!(refusal.of(fingerprint(0)).is_none() && refusal.of(fingerprint(1)).is_none());
    }

    #[test]
    fn concurrent_reads_are_not_torn() {
        let (refusal, done) = (Refusal::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let readers = [2, 3].map(|number| {
                let (refusal, done) = (&refusal, &done);
                scope.spawn(move || {
                    let mut seen = 0;
                    while !done.load(Ordering::Relaxed) || seen == 0 {
                        if let Some(slot) = refusal.of(fingerprint(number)) {
                            assert_eq!(slot.state().words(), [number; 3]);
                            seen += 1;
                        }
                    }
                })
            });
            // Both have the same lower half, so it does not distinguish them.
            for turn in 0..2_000_000_u64 {
                refusal.show(Some(&slot(2 + turn % 2)));
            }
            done.store(true, Ordering::Relaxed);
            // A reader that started late still has to see one of each.
            while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                refusal.show(Some(&slot(2)));
                std::thread::yield_now();
                refusal.show(Some(&slot(3)));
                std::thread::yield_now();
            }
        });
    }
}
