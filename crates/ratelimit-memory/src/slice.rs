//! Slices of several claims: all their shards are held at once.

use ratelimit_core::{Claim, Claims, Mode, Timestamp, Verdicts};
use smallvec::SmallVec;

use crate::ask::Ask;
use crate::fingerprint::Fingerprint;
use crate::lots::{Held, Lots};
use crate::shard::Bound;

/// A slice of claims whose shards are held.
pub(crate) struct Slice<'s, 'c> {
    claims: Claims<'c>,
    now: Timestamp,
    shards: SmallVec<[Held<'s>; 4]>,
    /// One for each claim.
    targets: SmallVec<[Target; 4]>,
    /// Whether meters may have moved since they were found.
    is_moved: bool,
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
    #[inline]
    pub(crate) fn hold(
        lots: &'s Lots,
        claims: Claims<'c>,
        prints: impl Iterator<Item = Fingerprint>,
    ) -> Self {
        let mut slice = Self {
            now: claims.now(),
            claims,
            targets: SmallVec::new(),
            shards: SmallVec::new(),
            is_moved: false,
        };
        let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
        for print in prints {
            let number = lots.number_of(print);
            numbers.push(number);
            // The number of the shard for now.
            slice.targets.push(Target { print, shard: number, place: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            slice.shards.push(lots.lock(*number));
        }
        for target in &mut slice.targets {
            target.shard = numbers.partition_point(|other| *other < target.shard);
            target.place = slice.shards[target.shard].find(target.print);
        }
        slice
    }

    fn ask<'m>(&self, claim: &'m Claim<'_>) -> Ask<'m> {
        Ask::new(claim, self.now, self.claims.mode())
    }

    /// Whether the slice is admitted.
    pub(crate) fn fits(&self) -> bool {
        self.claims.mode() == Mode::Force
            || self
                .claims
                .iter()
                .zip(&self.targets)
                .all(|(claim, target)| self.shards[target.shard].fits(target.place, self.ask(claim)))
    }

    /// Makes room for the meters that are not known yet; `false` if it cannot, and then nothing is charged.
    pub(crate) fn make_room(&mut self, bound: Bound) -> bool {
        let prints: SmallVec<[Fingerprint; 4]> = self.targets.iter().map(|target| target.print).collect();
        for number in 0..self.shards.len() {
            let is_new = |(claim, target): (&Claim<'_>, &Target)| {
                target.shard == number && target.place.is_none() && claim.cost > 0
            };
            let wanted = self.claims.iter().zip(&self.targets).filter(|pair| is_new(*pair)).count();
            if wanted == 0 {
                continue;
            }
            self.is_moved = true;
            if !self.shards[number].make_room(wanted, bound, self.now, &prints) {
                return false;
            }
        }
        true
    }

    /// Charges every claim that costs something. Gives whether it is time to tidy up.
    pub(crate) fn charge(&mut self, verdicts: &mut Verdicts, tidy_every: u32) -> bool {
        let mut tidy = false;
        for (claim, target) in self.claims.iter().zip(&self.targets) {
            let shard = &mut self.shards[target.shard];
            let place = if self.is_moved { shard.find(target.print) } else { target.place };
            let ask = Ask::new(claim, self.now, Mode::Force);
            if claim.cost == 0 {
                verdicts.push(shard.look(place, ask));
                continue;
            }
            let (_, verdict) = match place {
                Some(place) => shard.claim(place, ask),
                None => shard.claim_new(target.print, ask),
            };
            verdicts.push(verdict);
            tidy |= place.is_none() || shard.is_time(tidy_every);
        }
        tidy
    }

    /// Charges nothing.
    pub(crate) fn look(&self, verdicts: &mut Verdicts) {
        for (claim, target) in self.claims.iter().zip(&self.targets) {
            verdicts.push(self.shards[target.shard].look(target.place, self.ask(claim)));
        }
    }
}
