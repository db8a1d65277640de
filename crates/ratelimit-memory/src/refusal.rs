//! The last refusal of a shard, shown beside its lock: who is refused again need not take the lock.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::fingerprint::Fingerprint;
use crate::slot::Slot;

/// A meter that has refused, as it was then; or none. Written by whoever holds the shard's lock, read by anybody.
///
/// A sequence lock: the turn is odd while somebody writes, and whoever reads takes only what has the same even turn before
/// and after. So readers write nothing, and any number of threads are refused on one key without hindering each other.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    turn: AtomicU64,
    low: AtomicU64,
    /// The fingerprint's upper half, and whether there is a meter at all.
    high: AtomicU64,
    words: [AtomicU64; 3],
}

const THERE: u64 = 1 << 32;

impl Refusal {
    /// The meter of this fingerprint, if it is the one that is shown.
    #[inline]
    pub(crate) fn of(&self, print: Fingerprint) -> Option<Slot> {
        // Nearly always it is another one.
        if self.low.load(Ordering::Relaxed) != print.low {
            return None;
        }
        let turn = self.turn.load(Ordering::Acquire);
        let low = self.low.load(Ordering::Relaxed);
        let high = self.high.load(Ordering::Relaxed);
        let words = [0, 1, 2].map(|place: usize| self.words[place].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn;
        let is_it = low == print.low && high == THERE | u64::from(print.kept());
        (is_whole && is_it).then(|| Slot::of_words(print, words))
    }

    /// Shows this meter, or none. Only for who holds the shard's lock.
    pub(crate) fn show(&self, slot: Option<&Slot>) {
        let (low, high, words) = match slot {
            Some(slot) => (slot.low(), THERE | u64::from(slot.high), slot.words()),
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
        Slot::of_words(print(number), [number; 3])
    }

    fn print(number: u64) -> Fingerprint {
        Fingerprint { low: number / 2, high: number << 32 }
    }

    #[test]
    fn one_meter_is_shown_or_none() {
        let refusal = Refusal::default();
        // Also the fingerprint of zeros is somebody's.
        assert!(refusal.of(print(0)).is_none());
        refusal.show(Some(&slot(0)));
        assert!(refusal.of(print(0)).is_some() && refusal.of(print(1)).is_none());
        refusal.show(Some(&slot(1)));
        assert!(refusal.of(print(0)).is_none() && refusal.of(print(1)).is_some());
        refusal.show(None);
        assert!(refusal.of(print(0)).is_none() && refusal.of(print(1)).is_none());
    }

    #[test]
    fn what_is_read_while_somebody_writes_is_of_one_piece() {
        let (refusal, done) = (Refusal::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let readers = [2, 3].map(|number| {
                let (refusal, done) = (&refusal, &done);
                scope.spawn(move || {
                    let mut seen = 0;
                    while !done.load(Ordering::Relaxed) || seen == 0 {
                        if let Some(slot) = refusal.of(print(number)) {
                            assert_eq!(slot.words(), [number; 3]);
                            seen += 1;
                        }
                    }
                })
            });
            // Both have one lower half, so that it does not tell them apart.
            for turn in 0..2_000_000_u64 {
                refusal.show(Some(&slot(2 + turn % 2)));
            }
            done.store(true, Ordering::Relaxed);
            // Whoever came late has both to see.
            while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                refusal.show(Some(&slot(2)));
                std::thread::yield_now();
                refusal.show(Some(&slot(3)));
                std::thread::yield_now();
            }
        });
    }
}
