//! Decides slices of several claims, with all their shards locked.

use ratelimit_core::{Answer, Claim, Claims, Mode, State, StoreError};
use ratelimit_memory::kit::Fingerprints;
use smallvec::SmallVec;

use super::capacity::{Capacity, full};
use super::fingerprint::Fingerprint;
use super::shards::Shards;
use ratelimit_core::kit::OwnedName;

/// Decides several claims as one step.
pub(super) fn decide(
    all: &Shards,
    fingerprints: &Fingerprints,
    capacity: &Capacity,
    claims: Claims<'_>,
) -> Result<Answer, StoreError> {
    let targets: SmallVec<[Fingerprint; 4]> =
        claims.iter().map(|claim| Fingerprint::of(fingerprints, &claim.id)).collect();
    // Each shard is locked once, in ascending order, so that there is no deadlock.
    let mut numbers: SmallVec<[usize; 4]> =
        targets.iter().map(|fingerprint| fingerprint.shard(all.len())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut shards: SmallVec<[_; 4]> = numbers.iter().map(|number| all.lock(*number)).collect();
    let place =
        |fingerprint: &Fingerprint| numbers.partition_point(|number| *number < fingerprint.shard(all.len()));

    let state = |(claim, fingerprint): (&Claim<'_>, &Fingerprint)| {
        shards[place(fingerprint)].state_for(*fingerprint, &claim.meter)
    };
    let mut states: SmallVec<[Option<State>; 4]> = claims.iter().zip(&targets).map(state).collect();
    let answer = ratelimit_core::decide(&claims, &mut states);
    if !answer.charged || claims.mode() == Mode::Peek {
        return Ok(answer);
    }
    let charged = || claims.iter().zip(&targets).enumerate().filter(|(_, (claim, _))| claim.cost > 0);
    let mut inserted: SmallVec<[Fingerprint; 4]> = SmallVec::new();
    for (_, (claim, fingerprint)) in charged() {
        let shard = &mut shards[place(fingerprint)];
        if shard.contains(*fingerprint) {
            continue;
        }
        if !shard.insert(*fingerprint, || OwnedName::new(&claim.id), &claim.meter, capacity) {
            for fingerprint in inserted {
                shards[place(&fingerprint)].remove(fingerprint, capacity);
            }
            return Err(full());
        }
        inserted.push(*fingerprint);
    }
    for (nth, (claim, fingerprint)) in charged() {
        if let (Some(state), Some(verdict)) = (states[nth].take(), answer.verdicts.get(nth)) {
            shards[place(fingerprint)].open(*fingerprint, |entry, outgoing| {
                entry.change_meter(claim.meter, outgoing);
                entry.state = state;
                entry.record_charge(claim, verdict, outgoing);
            });
        }
    }
    Ok(answer)
}
