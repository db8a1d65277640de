//! The last refusal of a shard, which can be read without the lock: repeated refusals of a key do not take the lock.

use super::sync::{AtomicU64, Ordering, fence};
use crate::kit::{CompactState, Fingerprint, Slot};

/// A meter that has refused, in its state at that time; or none. Only the thread that holds the lock writes it.
///
/// A sequence lock: `turn` is odd during a write, and a reader uses only what it has read between two reads of the same
/// even `turn`. Readers write nothing, so any number of threads can be refused on one key without slowing each other
/// down.
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
        (is_whole && is_it).then(|| Slot::new(fingerprint, CompactState::from_words(words)))
    }

    /// Publishes this meter, or none. Only for the thread that holds the shard's lock.
    pub(crate) fn publish(&self, slot: Option<&Slot>) {
        let (low, high, words) = match slot {
            Some(slot) => (slot.low, THERE | u64::from(slot.kept()), slot.state.words()),
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
