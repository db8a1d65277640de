//! Shards behind their locks, and which of them have something to tell.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::shard::Shard;
use crate::names::lock;

/// The shards of a ledger.
pub(super) struct Lots {
    lots: Box<[Lot]>,
    /// A bit for each shard that has something to tell, so that nobody has to ask all of them.
    telling: Box<[AtomicU64]>,
}

/// A shard behind its lock, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lot(Mutex<Shard>);

/// A shard whose lock is held.
pub(super) struct Held<'l> {
    shard: MutexGuard<'l, Shard>,
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
        self.held(number, lock(&self.lots[number].0))
    }

    /// The shard, unless somebody has it.
    pub(super) fn try_hold(&self, number: usize) -> Option<Held<'_>> {
        self.lots[number].0.try_lock().ok().map(|shard| self.held(number, shard))
    }

    #[inline]
    fn held<'l>(&'l self, number: usize, shard: MutexGuard<'l, Shard>) -> Held<'l> {
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
