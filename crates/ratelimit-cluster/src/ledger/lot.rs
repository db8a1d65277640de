//! Shards behind their locks, and which of them have something to tell.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::shard::Shard;

/// The shards of a ledger.
pub(super) struct Lots {
    lots: Box<[Lot]>,
    /// A bit for each shard that has something to tell, so that nobody has to ask all of them.
    telling: Box<[AtomicU64]>,
}

/// A shard behind its lock, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lot(SpinMutex<Shard>);

const _: () = assert!(size_of::<Lot>() == 256);

/// How long to leave a shard alone that somebody has, how long that is done, and how long to sleep after that.
const PAUSE: u32 = 128;
const PAUSES: u32 = 8 * PAUSE;
const SLEEP: Duration = Duration::from_micros(50);

/// A shard whose lock is held.
pub(super) struct Held<'l> {
    shard: SpinMutexGuard<'l, Shard>,
    telling: &'l AtomicU64,
    bit: u64,
}

impl Lots {
    /// So many shards: a power of two.
    pub(super) fn new(shards: usize) -> Self {
        let telling = (0..shards.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { lots: (0..shards).map(|_| Lot::default()).collect(), telling }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.lots.len()
    }

    #[inline]
    pub(super) fn hold(&self, number: usize) -> Held<'_> {
        self.try_hold(number).unwrap_or_else(|| self.wait(number))
    }

    /// The shard, as soon as others leave it: as in the store in memory, where a shard that is taken is left alone for a
    /// microsecond, and after some of those for longer.
    #[cold]
    fn wait(&self, number: usize) -> Held<'_> {
        let mut pauses = 0;
        loop {
            if pauses < PAUSES {
                pauses += PAUSE;
                (0..PAUSE).for_each(|_| std::hint::spin_loop());
            } else {
                std::thread::sleep(SLEEP);
            }
            if let Some(held) = self.try_hold(number) {
                return held;
            }
        }
    }

    /// The shard, unless somebody has it.
    #[inline]
    pub(super) fn try_hold(&self, number: usize) -> Option<Held<'_>> {
        self.lots[number].0.try_lock().map(|shard| self.held(number, shard))
    }

    #[inline]
    fn held<'l>(&'l self, number: usize, shard: SpinMutexGuard<'l, Shard>) -> Held<'l> {
        Held { shard, telling: &self.telling[number / 64], bit: 1 << (number % 64) }
    }

    /// The numbers of the shards that have something to tell; they are not given again before they have something new.
    pub(super) fn telling(&self) -> impl Iterator<Item = usize> {
        self.telling.iter().enumerate().flat_map(|(nth, word)| {
            let bits = word.swap(0, Ordering::AcqRel);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| nth * 64 + bit)
        })
    }
}

impl Deref for Held<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shard.has_news() {
            self.telling.fetch_or(self.bit, Ordering::AcqRel);
        }
    }
}
