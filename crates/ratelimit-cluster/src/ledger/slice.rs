//! Slices of several claims: all their shards are held at once.

use ratelimit_core::{Answer, Claim, Claims, Mode, State, StoreError};
use smallvec::SmallVec;

use super::print::Print;
use super::{Ledger, full};
use crate::names::Name;

/// Decides several claims as one step.
pub(super) fn decide(ledger: &Ledger, claims: Claims<'_>) -> Result<Answer, StoreError> {
    let prints: SmallVec<[Print; 4]> = claims.iter().map(|claim| ledger.prints.of(&claim.id)).collect();
    // Each once and in the order of their numbers: who waits for one holds none that comes after it.
    let mut numbers: SmallVec<[usize; 4]> =
        prints.iter().map(|print| print.shard(ledger.lots.len())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut shards: SmallVec<[_; 4]> = numbers.iter().map(|number| ledger.lots.hold(*number)).collect();
    let place = |print: &Print| numbers.partition_point(|number| *number < print.shard(ledger.lots.len()));

    let state = |(claim, print): (&Claim<'_>, &Print)| shards[place(print)].state_for(*print, &claim.meter);
    let mut states: SmallVec<[Option<State>; 4]> = claims.iter().zip(&prints).map(state).collect();
    let answer = ratelimit_core::decide(&claims, &mut states);
    if !answer.charged || claims.mode() == Mode::Peek {
        return Ok(answer);
    }
    let charged = || claims.iter().zip(&prints).enumerate().filter(|(_, (claim, _))| claim.cost > 0);
    let mut made: SmallVec<[Print; 4]> = SmallVec::new();
    for (_, (claim, print)) in charged() {
        let shard = &mut shards[place(print)];
        if shard.is_known(*print) {
            continue;
        }
        if !shard.make(*print, || Name::new(&claim.id), &claim.meter, &ledger.room) {
            for print in made {
                shards[place(&print)].remove(print, &ledger.room);
            }
            return Err(full());
        }
        made.push(*print);
    }
    for (nth, (claim, print)) in charged() {
        if let (Some(state), Some(verdict)) = (states[nth].take(), answer.verdicts.get(nth)) {
            shards[place(print)].open(*print, |entry, tellings| {
                entry.change(claim.meter, tellings);
                entry.state = state;
                entry.charged(claim, verdict, tellings);
            });
        }
    }
    Ok(answer)
}
