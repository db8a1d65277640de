//! Decides slices of several claims, with all their shards locked.

use ratelimit_core::StoreError;
use ratelimit_core::meter::State;
use ratelimit_core::store::{Answer, Claim, Claims, Mode};
use ratelimit_memory::kit::Fingerprint;
use smallvec::SmallVec;

use super::Ledger;
use super::capacity::full;

impl Ledger {
    /// Decides several claims as one step.
    pub(super) fn claim_all(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let targets: SmallVec<[Fingerprint; 4]> =
            claims.iter().map(|claim| self.fingerprints.of(&claim.id)).collect();
        // Each shard is locked once, in ascending order, so that there is no deadlock.
        let number = |fingerprint: &Fingerprint| fingerprint.shard(self.shards.len());
        let mut numbers: SmallVec<[usize; 4]> = targets.iter().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards: SmallVec<[_; 4]> = numbers.iter().map(|number| self.shards[*number].lock()).collect();
        let place = |fingerprint: &Fingerprint| numbers.partition_point(|other| *other < number(fingerprint));

        let mut states: SmallVec<[Option<State>; 4]> =
            targets.iter().map(|fingerprint| shards[place(fingerprint)].state(*fingerprint)).collect();
        let answer = ratelimit_core::meter::decide(&claims, &mut states);
        if !answer.charged {
            let verdicts = answer.verdicts.iter().zip(&targets);
            let refused = verdicts.filter(|(verdict, _)| claims.mode() == Mode::Charge && !verdict.fits);
            refused.for_each(|(_, fingerprint)| shards[place(fingerprint)].refused(*fingerprint));
            return Ok(answer);
        }
        let charged = || claims.iter().zip(&targets).enumerate().filter(|(_, (claim, _))| claim.cost > 0);
        let mut inserted: SmallVec<[Fingerprint; 4]> = SmallVec::new();
        for (_, (claim, fingerprint)) in charged() {
            let shard = &mut shards[place(fingerprint)];
            if shard.contains(*fingerprint) {
                continue;
            }
            if !shard.insert(*fingerprint, &claim.id, &claim.meter, &self.capacity) {
                for fingerprint in inserted {
                    shards[place(&fingerprint)].remove(fingerprint, true, &self.capacity);
                }
                return Err(full());
            }
            inserted.push(*fingerprint);
        }
        for (nth, (Claim { cost, meter, .. }, fingerprint)) in charged() {
            if let (Some(state), Some(verdict)) = (states[nth].take(), answer.verdicts.get(nth)) {
                shards[place(fingerprint)].open(*fingerprint, |entry| {
                    entry.state = state;
                    entry.record_charge(meter, *cost, verdict);
                });
                shards[place(fingerprint)].prune();
            }
        }
        Ok(answer)
    }
}
