//! Slices of several claims: all their shards are held at once.

use ratelimit_core::{Answer, Claims, Mode, Timestamp, Verdict};
use smallvec::SmallVec;

use crate::fingerprint::Fingerprint;
use crate::lot::{Held, Lot};
use crate::shard::Bound;

/// A slice of claims whose shards are held.
pub(crate) struct Slice<'s, 'c> {
    claims: Claims<'c>,
    now: Timestamp,
    shards: SmallVec<[Held<'s>; 4]>,
    /// One for each claim.
    targets: SmallVec<[Target; 4]>,
}

struct Target {
    print: Fingerprint,
    /// Which of the held shards.
    shard: usize,
    place: Option<usize>,
}

impl<'s, 'c> Slice<'s, 'c> {
    /// Locks the shards, each once and in the order of their numbers: who waits for one holds none that comes after
    /// it, so nobody waits in a circle.
    pub(crate) fn hold(
        lots: &'s [Lot],
        claims: Claims<'c>,
        prints: impl Iterator<Item = Fingerprint> + Clone,
    ) -> Self {
        let number = |print: Fingerprint| print.shard(lots.len());
        let mut numbers: SmallVec<[usize; 4]> = prints.clone().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards: SmallVec<[Held<'s>; 4]> = numbers.iter().map(|number| lots[*number].lock()).collect();
        let targets = prints.map(|print| {
            let shard = numbers.partition_point(|other| *other < number(print));
            Target { print, shard, place: shards[shard].find(print) }
        });
        Self { now: claims.now(), claims, targets: targets.collect(), shards }
    }

    /// Whether the slice is admitted.
    pub(crate) fn fits(&self) -> bool {
        self.claims.mode() == Mode::Force
            || self
                .claims
                .iter()
                .zip(&self.targets)
                .all(|(claim, target)| self.shards[target.shard].fits(target.place, claim, self.now))
    }

    /// Makes room for the meters that are not known yet; `false` if it cannot, and then nothing is charged.
    pub(crate) fn make_room(&mut self, bound: Bound) -> bool {
        let prints: SmallVec<[Fingerprint; 4]> = self.targets.iter().map(|target| target.print).collect();
        for number in 0..self.shards.len() {
            let is_new = |(claim, target): (&ratelimit_core::Claim<'_>, &Target)| {
                target.shard == number && target.place.is_none() && claim.cost > 0
            };
            let wanted = self.claims.iter().zip(&self.targets).filter(|pair| is_new(*pair)).count();
            if wanted > 0 && !self.shards[number].make_room(wanted, bound, self.now, &prints) {
                return false;
            }
        }
        true
    }

    /// Charges every claim that costs something. Gives the answer, and whether it is time to tidy up.
    pub(crate) fn charge(mut self, tidy_every: u32) -> (Answer, bool) {
        let mut tidy = false;
        let mut verdicts = ratelimit_core::Verdicts::new();
        for (claim, target) in self.claims.iter().zip(&self.targets) {
            let shard = &mut self.shards[target.shard];
            // Found again: making room may have moved it.
            let place = shard.find(target.print);
            if claim.cost == 0 {
                verdicts.push(shard.look(place, claim, self.now));
                continue;
            }
            let at = place.unwrap_or_else(|| shard.insert(target.print, &claim.meter));
            verdicts.push(shard.claim(at, claim, self.now, Mode::Force).1);
            tidy |= place.is_none() || shard.is_time(tidy_every);
        }
        (Answer { admitted: true, charged: true, now: self.now, verdicts }, tidy)
    }

    /// Charges nothing.
    pub(crate) fn look(self, admitted: bool) -> Answer {
        let verdict = |(claim, target): (&ratelimit_core::Claim<'_>, &Target)| -> Verdict {
            self.shards[target.shard].look(target.place, claim, self.now)
        };
        let verdicts = self.claims.iter().zip(&self.targets).map(verdict).collect();
        Answer { admitted, charged: false, now: self.now, verdicts }
    }
}
