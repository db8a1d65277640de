//! Several claims that are decided together: all their shards are locked at once.

use ratelimit_core::StoreError;
use ratelimit_core::store::{Answer, Claim, Claims, Mode, Verdicts};
use smallvec::SmallVec;

use crate::MemoryStore;
use crate::kit::{Demand, Fingerprint, Fingerprints, Slot};
use crate::shard::{Bound, Room, ShardGuard};
use crate::shards::Shards;
use crate::store::full;
use crate::table::SlotIndex;

impl MemoryStore {
    /// Decides several claims: all are charged, or none.
    pub(crate) fn claim_several(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answer =
            Answer { admitted: false, charged: false, now: claims.now(), verdicts: Verdicts::new() };
        let mut slice = Slice::new(claims);
        slice.lock(&self.shards, &self.fingerprints);
        answer.admitted = slice.decide(&mut answer.verdicts);
        answer.charged = answer.admitted && claims.mode() != Mode::Peek;
        if !answer.charged {
            return Ok(answer);
        }
        let room = slice.make_room(self.bound);
        let sweep = if room.is_made { slice.charge(&mut answer.verdicts) } else { false };
        drop(slice); // releases the locks
        if room.evicted > 0 {
            self.count_evicted(room.evicted);
        }
        if !room.is_made {
            return Err(full());
        }
        if sweep {
            self.continue_sweep(claims.now());
        }
        Ok(answer)
    }
}

/// Claims whose shards are locked.
struct Slice<'s, 'c> {
    claims: Claims<'c>,
    shards: SmallVec<[ShardGuard<'s>; 4]>,
    /// One for each claim.
    targets: SmallVec<[Target; 4]>,
}

/// The meter of a claim.
struct Target {
    fingerprint: Fingerprint,
    /// The index of the locked shard.
    shard: usize,
    /// `None` if the meter is new. Valid until a meter is removed or inserted.
    place: Option<SlotIndex>,
    /// The slot after this claim alone; `None` if the state is not in the slot.
    after: Option<Slot>,
}

impl<'s, 'c> Slice<'s, 'c> {
    fn new(claims: Claims<'c>) -> Self {
        Self { claims, shards: SmallVec::new(), targets: SmallVec::new() }
    }

    /// Locks the shards, each once and in the order of their numbers. A thread that waits for one holds none with a
    /// higher number, so there is no deadlock.
    fn lock(&mut self, shards: &'s Shards, fingerprints: &Fingerprints) {
        let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
        for claim in self.claims.iter() {
            let fingerprint = fingerprints.of(&claim.id);
            let number = shards.number_of(fingerprint);
            numbers.push(number);
            // The shard's number; below it becomes the index among the locked ones.
            self.targets.push(Target { fingerprint, shard: number, place: None, after: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            self.shards.push(shards.lock(*number));
        }
        for target in &mut self.targets {
            target.shard = numbers.partition_point(|other| *other < target.shard);
            target.place = self.shards[target.shard].find(target.fingerprint);
        }
    }

    /// Decides the claims, each on a copy of its slot. Returns whether all are admitted, and adds their verdicts. Those are
    /// final unless one is charged whose state is not in its slot.
    fn decide(&mut self, verdicts: &mut Verdicts) -> bool {
        let (now, mode) = (self.claims.now(), self.claims.mode());
        let mut admitted = true;
        for (claim, target) in self.claims.iter().zip(&mut self.targets) {
            let (demand, shard) = (Demand::new(claim, now, mode), &self.shards[target.shard]);
            target.after = target.place.map(|place| *shard.slot(place));
            let (fits, verdict) = match target.after.as_mut().and_then(|slot| slot.claim(demand)) {
                Some(decided) => decided,
                None => {
                    target.after = None;
                    let verdict = shard.verdict(target.place, demand);
                    (verdict.fits || mode == Mode::Force, verdict)
                }
            };
            admitted &= fits;
            verdicts.push(verdict);
        }
        if !admitted {
            // Those that fit were not charged after all.
            for ((claim, target), verdict) in self.claims.iter().zip(&self.targets).zip(verdicts) {
                if verdict.fits && target.after.is_some() {
                    *verdict = self.shards[target.shard].verdict(target.place, Demand::new(claim, now, mode));
                }
            }
        }
        admitted
    }

    /// Makes room for new meters. If that is not possible, the caller must charge nothing.
    fn make_room(&mut self, bound: Bound) -> Room {
        let mut all = Room { is_made: true, evicted: 0 };
        let is_new = |claim: &Claim<'_>, target: &Target| target.place.is_none() && claim.cost > 0;
        if !self.claims.iter().zip(&self.targets).any(|(claim, target)| is_new(claim, target)) {
            return all;
        }
        let fingerprints: SmallVec<[Fingerprint; 4]> =
            self.targets.iter().map(|target| target.fingerprint).collect();
        for number in 0..self.shards.len() {
            let each = self.claims.iter().zip(&self.targets);
            let wanted =
                each.filter(|(claim, target)| target.shard == number && is_new(claim, target)).count();
            if wanted == 0 {
                continue;
            }
            let room = self.shards[number].make_room(wanted, bound, self.claims.now(), &fingerprints);
            all = Room { is_made: room.is_made, evicted: all.evicted + room.evicted };
            if !all.is_made {
                break;
            }
        }
        all
    }

    /// Charges every claim with a cost; all are admitted, and there is room. Returns whether a sweep is due.
    fn charge(&mut self, verdicts: &mut Verdicts) -> bool {
        let mut sweep = false;
        // New meters move others, and so does making room for them.
        let may_have_moved = self.targets.iter().any(|target| target.place.is_none());
        for ((claim, target), verdict) in self.claims.iter().zip(&self.targets).zip(verdicts) {
            if claim.cost == 0 {
                continue;
            }
            let shard = &mut self.shards[target.shard];
            let place = if may_have_moved { shard.find(target.fingerprint) } else { target.place };
            let demand = Demand::new(claim, self.claims.now(), Mode::Force);
            match (place, target.after) {
                (Some(place), Some(slot)) => shard.charge_slot(place, slot),
                (Some(place), None) => *verdict = shard.claim_elsewhere(place, demand).1,
                (None, _) => *verdict = shard.charge_new(target.fingerprint, demand).1,
            }
            sweep |= place.is_none() || shard.is_time_to_sweep();
        }
        sweep
    }
}
