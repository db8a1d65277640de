//! What can be read of all shards without their locks.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use ratelimit_core::Timestamp;

use crate::kit::expiry::{NEVER, has_passed};

/// A glance at each shard. In one array, so that a sweep skips many shards without expired meters with one memory access.
pub(crate) struct Glances(Box<[Glance]>);

/// The part of a shard's state that can be read without its lock.
struct Glance {
    /// The number of meters.
    len: AtomicU32,
    /// The second from which on there may be expired meters.
    due: AtomicU32,
}

impl Glances {
    /// Those of `count` empty shards.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Glance { len: AtomicU32::new(0), due: AtomicU32::new(NEVER) }).collect())
    }

    /// Publishes the state of a shard. Only for the thread that holds its lock.
    pub(crate) fn publish(&self, number: usize, len: usize, due: u32) {
        let glance = &self.0[number];
        glance.len.store(u32::try_from(len).unwrap_or(u32::MAX), Ordering::Relaxed);
        glance.due.store(due, Ordering::Relaxed);
    }

    /// The number of meters in all shards.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|glance| glance.len.load(Ordering::Relaxed) as usize).sum()
    }

    /// Whether one of these shards may have an expired meter.
    #[inline]
    pub(crate) fn may_forget(&self, numbers: Range<usize>, now: Timestamp) -> bool {
        let due = self.0[numbers].iter().map(|glance| glance.due.load(Ordering::Relaxed));
        has_passed(due.fold(NEVER, u32::min), now)
    }
}
