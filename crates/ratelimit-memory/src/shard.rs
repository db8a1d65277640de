//! A shard of a store behind its lock: a search for a meter, and what follows a decision.

mod new_or_large;
mod published;
mod upkeep;

use std::ops::{Deref, DerefMut};

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Mode, Verdict};

use self::published::{News, Published};
pub(crate) use self::upkeep::{Bound, Room};
use crate::due::Due;
use crate::glances::Glances;
use crate::kit::{Demand, Fingerprint, LargeStates, Slot, SlotMeter, SpinGuard, SpinLock};
use crate::refusal::Refusal;
use crate::table::{SlotIndex, Table};

/// One in this many charges of known keys continues the sweep.
const SWEEP_EVERY: u32 = 32;

/// A shard behind its lock, and its last refusal, which is read without it. On cache lines of its own, so that neighbours do
/// not slow each other down; what is read without the lock is not on the lock's cache line.
#[repr(C, align(128))]
pub(crate) struct ShardCell {
    shard: SpinLock<Shard>,
    refusal: Refusal,
}

const _: () = assert!(size_of::<ShardCell>() == 256);

/// A shard whose lock is held.
pub(crate) struct ShardGuard<'s> {
    shard: SpinGuard<'s, Shard>,
    cell: &'s ShardCell,
    glances: &'s Glances,
}

/// A shard of a store.
///
/// The order of the fields matters: a claim on a known meter needs only those up to the table's blocks, which share the
/// lock's cache line.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// The number of charges; wraps around.
    charges: u32,
    /// Whether values that are published without the lock may have changed since the lock was taken.
    must_publish: bool,
    /// Whether a refusal is published.
    is_published: bool,
    table: Table,
    due: Due,
    published: Published,
    large: LargeStates,
    /// Where the sweep continues.
    cursor: SlotIndex,
    /// Where the next search for a victim begins.
    searched: SlotIndex,
    /// The shard's number in the store.
    number: usize,
}

/// Together with the lock before it, eight bytes, and the table's two vectors, 48 bytes, this fills one cache line.
const _: () = assert!(std::mem::offset_of!(Shard, table) == 8);

impl ShardCell {
    pub(crate) fn new(number: usize) -> Self {
        Self { shard: SpinLock::new(Shard { number, ..Shard::default() }), refusal: Refusal::default() }
    }

    /// Returns the verdict if the shard's last refusal shows that this claim is refused. Takes no lock.
    #[inline]
    pub(crate) fn refuses(&self, fingerprint: Fingerprint, demand: Demand<'_>) -> Option<Verdict> {
        if demand.mode == Mode::Force {
            return None;
        }
        let mut slot = self.refusal.of(fingerprint)?;
        let (admitted, verdict) = slot.claim(Demand { mode: Mode::Peek, ..demand })?;
        (!admitted).then_some(verdict)
    }

    /// Locks the shard. A panic of a thread that held the lock does not poison it: the shard can still decide.
    #[inline]
    pub(crate) fn lock<'s>(&'s self, glances: &'s Glances) -> ShardGuard<'s> {
        ShardGuard { shard: self.shard.lock(), cell: self, glances }
    }

    /// Locks the shard if no other thread holds it.
    pub(crate) fn try_lock<'s>(&'s self, glances: &'s Glances) -> Option<ShardGuard<'s>> {
        self.shard.try_lock().map(|shard| ShardGuard { shard, cell: self, glances })
    }
}

impl Shard {
    /// Finds a meter whose claim can be decided in its slot, and how. Otherwise returns the place of the meter, if
    /// there is one; its state is elsewhere, or is of another kind or shape than the claim's.
    #[inline(always)]
    pub(crate) fn find_in_slot<'m>(
        &mut self,
        fingerprint: Fingerprint,
        meter: &'m Meter,
    ) -> Result<(SlotIndex, &mut Slot, SlotMeter<'m>), Option<SlotIndex>> {
        let Some((place, slot)) = self.table.find_mut(fingerprint) else { return Err(None) };
        match slot.in_slot(meter) {
            Some(in_slot) => Ok((place, slot, in_slot)),
            None => Err(Some(place)),
        }
    }

    /// Records that a claim was decided in its meter's slot.
    #[inline(always)]
    pub(crate) fn record(&mut self, place: SlotIndex, admitted: bool, demand: Demand<'_>) {
        if !admitted {
            self.record_refusal(place, demand.meter.limit());
        } else if demand.charges() {
            self.record_charge(place);
        }
    }

    /// Counts a charge, and stops publishing the meter's refusal.
    #[inline]
    fn record_charge(&mut self, place: SlotIndex) {
        self.charges = self.charges.wrapping_add(1);
        self.withdraw_refusal(place);
    }

    /// Stops publishing a meter's refusal, because its state has changed.
    #[inline]
    fn withdraw_refusal(&mut self, place: SlotIndex) {
        if self.is_published && self.published.withdraw(self.table.slot(place)) {
            (self.is_published, self.must_publish) = (false, true);
        }
    }

    /// Records a refusal, which may be published. The limit may be another one than that of earlier claims.
    #[inline(never)]
    fn record_refusal(&mut self, place: SlotIndex, limit: u64) {
        let slot = self.table.slot_mut(place);
        slot.set_limit(limit);
        if self.published.refuse(*slot, self.is_published) {
            (self.is_published, self.must_publish) = (true, true);
        }
    }

    /// Whether the charge that was just counted is one of those that continue the sweep.
    #[inline]
    pub(crate) fn is_time_to_sweep(&self) -> bool {
        self.charges.is_multiple_of(SWEEP_EVERY)
    }
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for ShardGuard<'_> {
    /// Publishes changes before the lock is released, so that no later reader sees the previous state.
    #[inline]
    fn drop(&mut self) {
        if self.shard.must_publish {
            self.publish();
        }
    }
}

impl ShardGuard<'_> {
    /// Publishes the changes for threads that read a shard without its lock.
    #[inline(never)]
    fn publish(&mut self) {
        self.shard.must_publish = false;
        self.glances.publish(self.shard.number, self.shard.len(), self.shard.due.second());
        let is_published = self.shard.is_published;
        match self.shard.published.news(is_published) {
            News::Same => {}
            News::Nothing => self.cell.refusal.publish(None),
            News::Refuses(slot) => self.cell.refusal.publish(Some(&slot)),
        }
    }
}

#[cfg(test)]
mod tests;
