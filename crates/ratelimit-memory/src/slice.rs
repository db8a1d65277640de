//! Several claims that are decided together: all their shards are locked at once.

use ratelimit_core::Timestamp;
use ratelimit_core::store::{Claim, Claims, Mode, Verdicts};
use smallvec::SmallVec;

use crate::kit::{Demand, Fingerprint};
use crate::shard::{Bound, Room};
use crate::shards::{ShardGuard, Shards};
use crate::table::SlotIndex;

/// Claims whose shards are locked.
pub(crate) struct Slice<'s, 'c> {
    claims: Claims<'c>,
    now: Timestamp,
    shards: SmallVec<[ShardGuard<'s>; 4]>,
    /// One for each claim.
    targets: SmallVec<[Target; 4]>,
}

struct Target {
    fingerprint: Fingerprint,
    /// The index of the locked shard.
    shard: usize,
    /// Valid until a meter is removed or inserted.
    place: Option<SlotIndex>,
}

impl<'s, 'c> Slice<'s, 'c> {
    /// Locks the shards, each once and in the order of their numbers. A thread that waits for one holds none with a
    /// higher number, so there is no deadlock.
    #[inline]
    pub(crate) fn hold(
        shards: &'s Shards,
        claims: Claims<'c>,
        fingerprints: impl Iterator<Item = Fingerprint>,
    ) -> Self {
        let mut slice = Self { now: claims.now(), claims, targets: SmallVec::new(), shards: SmallVec::new() };
        let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
        for fingerprint in fingerprints {
            let number = shards.number_of(fingerprint);
            numbers.push(number);
            // For now, this is the number of the shard.
            slice.targets.push(Target { fingerprint, shard: number, place: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            slice.shards.push(shards.lock(*number));
        }
        for target in &mut slice.targets {
            target.shard = numbers.partition_point(|other| *other < target.shard);
            target.place = slice.shards[target.shard].find(target.fingerprint);
        }
        slice
    }

    fn demand<'m>(&self, claim: &'m Claim<'_>) -> Demand<'m> {
        Demand::new(claim, self.now, self.claims.mode())
    }

    /// Whether all of the claims fit.
    pub(crate) fn fits(&self) -> bool {
        self.claims.mode() == Mode::Force
            || self
                .claims
                .iter()
                .zip(&self.targets)
                .all(|(claim, target)| self.shards[target.shard].fits(target.place, self.demand(claim)))
    }

    /// Makes room for new meters. If that is not possible, the caller must charge nothing.
    pub(crate) fn make_room(&mut self, bound: Bound) -> Room {
        let mut all = Room { is_made: true, evicted: 0 };
        let fingerprints: SmallVec<[Fingerprint; 4]> =
            self.targets.iter().map(|target| target.fingerprint).collect();
        for number in 0..self.shards.len() {
            let is_new = |(claim, target): (&Claim<'_>, &Target)| {
                target.shard == number && target.place.is_none() && claim.cost > 0
            };
            let wanted = self.claims.iter().zip(&self.targets).filter(|pair| is_new(*pair)).count();
            if wanted == 0 {
                continue;
            }
            let room = self.shards[number].make_room(wanted, bound, self.now, &fingerprints);
            all = Room { is_made: room.is_made, evicted: all.evicted + room.evicted };
            if !all.is_made {
                break;
            }
        }
        all
    }

    /// Charges every claim with a cost. Returns whether a sweep is due.
    pub(crate) fn charge(&mut self, verdicts: &mut Verdicts, tidy_every: u32) -> bool {
        let mut tidy = false;
        for (claim, target) in self.claims.iter().zip(&self.targets) {
            let shard = &mut self.shards[target.shard];
            // Meters may have moved to make room.
            let place = shard.find(target.fingerprint);
            let demand = Demand::new(claim, self.now, Mode::Force);
            if claim.cost == 0 {
                verdicts.push(shard.verdict(place, demand));
                continue;
            }
            let (_, verdict) = match place {
                Some(place) => shard.claim(place, demand),
                None => shard.claim_new(target.fingerprint, demand),
            };
            verdicts.push(verdict);
            tidy |= place.is_none() || shard.is_time(tidy_every);
        }
        tidy
    }

    /// Returns the verdicts without charging.
    pub(crate) fn verdicts(&self, verdicts: &mut Verdicts) {
        for (claim, target) in self.claims.iter().zip(&self.targets) {
            verdicts.push(self.shards[target.shard].verdict(target.place, self.demand(claim)));
        }
    }
}
