//! One part of a store: the meters whose names' hashes fall to it.
//!
//! The meters lie in one vector without gaps, and a table finds their places by hash. So a walk over the vector can be
//! taken a few steps at a time, and goes on where it stopped whatever came and went in between.

use hashbrown::HashTable;
use ratelimit_core::{Claim, MeterId, Refund, Timestamp, Verdict};

use crate::entry::Entry;

/// How many meters are looked at for the one that makes room.
const SAMPLED: usize = 16;

/// Vectors up to this long are not worth shrinking.
const SMALL: usize = 32;

/// A part of a store.
#[derive(Default)]
pub(crate) struct Shard {
    entries: Vec<Entry>,
    places: HashTable<u32>,
    /// Where the walk goes on.
    cursor: usize,
    /// Where the next search for a victim begins.
    searched: usize,
    /// How many charges there have been; wraps around.
    charges: u32,
}

/// How much a shard may hold, and what gives way.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: usize,
    pub(crate) evict: bool,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The place of a meter; good until one is removed.
    pub(crate) fn find(&self, hash: u64, id: &MeterId<'_>) -> Option<usize> {
        let place = self.places.find(hash, |place| self.entries[*place as usize].is(hash, id));
        place.map(|place| *place as usize)
    }

    #[inline]
    pub(crate) fn fits(&self, place: Option<usize>, claim: &Claim<'_>, now: Timestamp) -> bool {
        match place.and_then(|place| self.entries[place].state_for(claim)) {
            Some(state) => claim.meter.fits(state, claim.cost, now),
            None => claim.cost <= claim.meter.limit(),
        }
    }

    /// The verdict where nothing is charged.
    pub(crate) fn look(&self, place: Option<usize>, claim: &Claim<'_>, now: Timestamp) -> Verdict {
        match place.and_then(|place| self.entries[place].state_for(claim)) {
            Some(state) => claim.meter.verdict(state, claim.cost, now, None),
            None => claim.meter.verdict(&claim.meter.fresh(), claim.cost, now, None),
        }
    }

    /// Charges a meter, a new one if it has no place yet. There must be room for it.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        place: Option<usize>,
        hash: u64,
        claim: &Claim<'_>,
        now: Timestamp,
    ) -> Verdict {
        self.charges = self.charges.wrapping_add(1);
        let place = place.unwrap_or_else(|| self.insert(hash, claim));
        self.entries[place].charge(claim, now)
    }

    /// Whether this charge was one of every `interval`.
    pub(crate) fn is_time(&self, interval: u32) -> bool {
        self.charges.is_multiple_of(interval)
    }

    pub(crate) fn refund(&mut self, hash: u64, refund: &Refund<'_>, now: Timestamp) {
        if let Some(place) = self.find(hash, &refund.id) {
            self.entries[place].refund(refund, now);
        }
    }

    pub(crate) fn reset(&mut self, hash: u64, id: &MeterId<'_>) {
        if let Some(place) = self.find(hash, id) {
            self.remove(place);
            self.shrink();
        }
    }

    /// Makes room for `wanted` new meters if it can, never at the cost of those whose hashes are `spared`. Places
    /// found before are good no longer.
    pub(crate) fn make_room(&mut self, wanted: usize, bound: Bound, now: Timestamp, spared: &[u64]) -> bool {
        while self.entries.len().saturating_add(wanted) > bound.most {
            match self.victim(bound.evict, now, spared) {
                Some(place) => self.remove(place),
                None => return false,
            }
        }
        true
    }

    /// Looks at up to `most` meters, forgets those that have expired, and tells how many it looked at.
    pub(crate) fn sweep(&mut self, most: usize, now: Timestamp) -> usize {
        let looks = most.min(self.entries.len());
        for _ in 0..looks {
            let place = self.here();
            if self.entries[place].has_expired(now) {
                self.remove(place); // the last one is here now, and comes next
            } else {
                self.cursor += 1;
            }
        }
        self.shrink();
        looks
    }

    /// The first of a few that has expired, or else the one whose loss weighs least.
    ///
    /// They are spread over the whole shard, for neighbours came at the same time and may all be busy.
    fn victim(&mut self, evict: bool, now: Timestamp, spared: &[u64]) -> Option<usize> {
        let len = self.entries.len();
        let looks = len.min(SAMPLED + spared.len());
        let stride = len.checked_div(looks)?;
        self.searched = (self.searched + 1) % len;
        let mut lightest: Option<usize> = None;
        for look in 0..looks {
            let place = (self.searched + look * stride) % len;
            let entry = &self.entries[place];
            if spared.contains(&entry.hash) {
                continue;
            }
            if entry.has_expired(now) {
                return Some(place);
            }
            if lightest.is_none_or(|other| entry.weight() < self.entries[other].weight()) {
                lightest = Some(place);
            }
        }
        lightest.filter(|_| evict)
    }

    /// Where the walk is. There must be a meter.
    fn here(&mut self) -> usize {
        if self.cursor >= self.entries.len() {
            self.cursor = 0;
        }
        self.cursor
    }

    fn insert(&mut self, hash: u64, claim: &Claim<'_>) -> usize {
        let place = self.entries.len();
        self.entries.push(Entry::new(hash, claim));
        // A shard's bound keeps places within 32 bits.
        let narrow = u32::try_from(place).unwrap_or(u32::MAX);
        let entries = &self.entries;
        self.places.insert_unique(hash, narrow, |other| entries[*other as usize].hash);
        place
    }

    /// Removes one; the last one takes its place.
    fn remove(&mut self, place: usize) {
        let last = self.entries.len() - 1;
        let removed = self.entries.swap_remove(place);
        if let Ok(found) = self.places.find_entry(removed.hash, |other| *other as usize == place) {
            found.remove();
        }
        if let Some(moved) = self.entries.get(place) {
            let moved = self.places.find_mut(moved.hash, |other| *other as usize == last);
            if let (Some(moved), Ok(place)) = (moved, u32::try_from(place)) {
                *moved = place;
            }
        }
    }

    /// Gives memory back once three quarters of it lie idle; half of what is left stays free for newcomers.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > SMALL && self.entries.capacity() / 4 > len {
            self.entries.shrink_to(len * 2);
            let entries = &self.entries;
            self.places.shrink_to(len * 2, |place| entries[*place as usize].hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ratelimit_core::Limit;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    /// A shard that is told the hashes, so that they can collide.
    struct Driver {
        shard: Shard,
        limit: Limit,
    }

    impl Driver {
        fn new() -> Self {
            Self { shard: Shard::default(), limit: "100/s burst 100".parse().unwrap() }
        }

        fn id(key: &u16) -> (u64, String) {
            (u64::from(key % 64), key.to_string())
        }

        fn with_claim<T>(&mut self, key: u16, work: impl FnOnce(&mut Shard, u64, &Claim<'_>) -> T) -> T {
            let (hash, key) = Self::id(&key);
            let id = MeterId { namespace: "n", scope: self.limit.scope(), key: key.as_bytes() };
            work(&mut self.shard, hash, &Claim { id, cost: 1, meter: self.limit.meter_for(id.key) })
        }

        fn charge(&mut self, key: u16) -> u64 {
            self.with_claim(key, |shard, hash, claim| {
                let place = shard.find(hash, &claim.id);
                shard.charge(place, hash, claim, NOW).remaining
            })
        }

        fn reset(&mut self, key: u16) {
            self.with_claim(key, |shard, hash, claim| shard.reset(hash, &claim.id));
        }
    }

    #[test]
    fn meters_stay_themselves_while_others_come_and_go() {
        let (mut driver, mut model) = (Driver::new(), HashMap::new());
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = u16::try_from(random >> 33 & 0x1ff).unwrap();
            if random >> 60 < 8 {
                let left = model.entry(key).or_insert(100_u64);
                *left = left.saturating_sub(1);
                assert_eq!(driver.charge(key), *left);
            } else {
                model.remove(&key);
                driver.reset(key);
            }
            assert_eq!(driver.shard.len(), model.len());
        }
    }

    #[test]
    fn memory_is_given_back_after_a_burst() {
        let mut driver = Driver::new();
        (0..10_000).for_each(|key| _ = driver.charge(key));
        let later = Timestamp::from_secs(2_000);
        let mut looks = 0;
        for _ in 0..10_000 / 8 {
            looks += driver.shard.sweep(8, later);
        }
        assert_eq!((looks, driver.shard.len()), (10_000, 0));
        assert!(driver.shard.entries.capacity() <= SMALL);
        assert!(driver.shard.places.capacity() <= 2 * SMALL);
    }

    #[test]
    fn a_sweep_looks_at_no_more_than_it_is_told_and_at_all_in_turn() {
        let mut driver = Driver::new();
        (0..100).for_each(|key| _ = driver.charge(key));
        let later = Timestamp::from_secs(2_000);
        assert_eq!(driver.shard.sweep(8, NOW), 8);
        assert_eq!((driver.shard.sweep(8, later), driver.shard.len()), (8, 92));
        assert_eq!((driver.shard.sweep(1_000, later), driver.shard.len()), (92, 0));
        assert_eq!(driver.shard.sweep(8, later), 0);
    }
}
