//! Stores that read and write in two steps, with other calls between them: always, or only in rare situations.

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Meter, State};
use ratelimit_core::store::{Answer, Claim, Mode, Refund};

use super::flaw::{Call, Look};
use super::late::{is_late, late};

/// Whether a window has ended since its last charge.
fn turned(look: &Look<'_>) -> bool {
    look.claims.iter().zip(look.states).any(|(claim, state)| match (claim.meter, state) {
        (Meter::Window(window), Some(State::Window(state))) => {
            window.place(look.claims.now()).0 > window.place(state.at).0
        }
        _ => false,
    })
}

/// Whether a meter is as good as new.
fn drained(look: &Look<'_>) -> bool {
    let as_new = |(claim, state): (&Claim<'_>, &Option<State>)| {
        state.as_ref().is_some_and(|state| claim.meter.forget_at(state) <= look.claims.now())
    };
    look.claims.iter().zip(look.states).any(as_new)
}

/// Whether one of the meters is such a bucket.
fn any_bucket(look: &Look<'_>, is: impl Fn(&Bucket) -> bool) -> bool {
    look.claims.iter().any(|claim| matches!(&claim.meter, Meter::Bucket(bucket) if is(bucket)))
}

flaws! {
    LostUpdates "lost-updates": "reads and writes in two steps", "atomic/burst-of-many-fixed" {
        fn torn(&self, _: &Look<'_>) -> bool {
            true
        }
    }
    TornRates "torn-rates": "a bucket of several rates is written in a second step", "storms/two-rates" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.states.iter().any(|state| matches!(state, Some(State::Bucket(bucket)) if bucket.debts.len() > 1))
        }
    }
    TornNew "torn-new": "a new meter is written in a second step", "atomic/first-claims" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.states.iter().any(Option::is_none)
        }
    }
    TornTurn "torn-turn": "the first claim of a window is written in a second step", "storms/at-a-turn" {
        fn torn(&self, look: &Look<'_>) -> bool {
            turned(look)
        }
    }
    TornDrained "torn-drained": "a drained meter is replaced in a second step", "storms/expired" {
        fn torn(&self, look: &Look<'_>) -> bool {
            drained(look)
        }
    }
    TornExpired "torn-expired": "a meter whose lifetime is over is replaced in a second step",
        "storms/while-meters-expire" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.expired
        }
    }
    TornSlices "torn-slices": "slices of several claims are written in a second step", "atomic/several-limits" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.len() > 1
        }
    }
    TornLargest "torn-largest-slices": "slices of more than eight claims are written in a second step",
        "atomic/largest-slices" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.len() > 8
        }
    }
    TornBatches "torn-batches": "slices of a batch are written in a second step", "atomic/batches" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.call == Call::Batch
        }
    }
    TornForced "torn-forced": "forced charges are written in a second step", "atomic/forced-charges" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.mode() == Mode::Force
        }
    }
    TornRefunds "torn-refunds": "refunds are written in a second step", "atomic/refunds-race-claims" {
        fn torn_refund(&self) -> bool {
            true
        }
    }
    TornPeeks "torn-peeks": "a peek writes back what it has read", "storms/of-everything-on-a-busy-meter" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.mode() == Mode::Peek
        }
        fn writes(&self, _: &Answer) -> bool {
            true
        }
    }
    TornPeeksInBatches "torn-peeks-in-batches": "a peek in a batch writes back what it has read",
        "storms/of-everything-on-a-busy-meter" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.call == Call::Batch && look.claims.mode() == Mode::Peek
        }
        fn writes(&self, _: &Answer) -> bool {
            true
        }
    }
    TornForcedInBatches "torn-forced-in-batches": "forced charges of a batch are written in a second step",
        "storms/of-everything-on-a-busy-meter" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.call == Call::Batch && look.claims.mode() == Mode::Force
        }
    }
    TornZeros "torn-zeros": "a claim of cost zero writes back what it has read", "atomic/zero-next-to-charges" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.len() > 1 && look.claims.iter().any(|claim| claim.cost == 0)
        }
        fn stale(&self, claim: &Claim<'_>) -> bool {
            claim.cost == 0
        }
    }
    TornCosts "torn-costs": "costs above one are written in a second step", "atomic/costs-sliding" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.iter().any(|claim| claim.cost > 1)
        }
    }
    TornBusy "torn-busy": "a meter that is half full is written in a second step", "storms/busy" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.iter().zip(look.states).any(|(claim, state)| {
                let left = state.as_ref().map(|state| {
                    claim.meter.verdict(state, 0, look.claims.now(), None).remaining
                });
                left.is_some_and(|left| left <= claim.meter.limit() / 2)
            })
        }
    }
    TornManyRates "torn-many-rates": "a bucket of more than two rates is written in a second step",
        "storms/three-rates" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.states.iter().any(|state| matches!(state, Some(State::Bucket(bucket)) if bucket.debts.len() > 2))
        }
    }
    TornSegments "torn-segments": "windows of more than eight segments are written in a second step",
        "atomic/burst-on-other-kinds" {
        fn torn(&self, look: &Look<'_>) -> bool {
            let has_many = |claim: &Claim<'_>| matches!(claim.meter, Meter::Window(window) if window.carried() > 8);
            look.claims.iter().any(has_many)
        }
    }
    TornTurns "torn-turns": "queues with immediate units are written in a second step",
        "atomic/burst-on-other-kinds" {
        fn torn(&self, look: &Look<'_>) -> bool {
            any_bucket(look, |bucket| bucket.is_queue() && bucket.immediate() > 1)
        }
    }
    TornLongKeys "torn-long-keys": "meters of keys of more than 255 bytes are written in a second step",
        "atomic/burst-on-other-kinds" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.iter().any(|claim| claim.id.key.len() > 255)
        }
    }
    TornStepsInBatches "torn-steps-in-batches": "buckets in steps are written in a second step by a batch",
        "storms/of-everything-on-other-kinds" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.call == Call::Batch && any_bucket(look, |bucket| bucket.step() > 0)
        }
    }
    TornForcedSteps "torn-forced-steps": "forced charges of buckets in steps are written in a second step",
        "storms/of-everything-on-other-kinds" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.mode() == Mode::Force && any_bucket(look, |bucket| bucket.step() > 0)
        }
    }
    TornLateForced "torn-late-forced": "forced charges by late callers are written in a second step",
        "storms/of-everything-by-late-callers" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.mode() == Mode::Force && is_late(look)
        }
    }
    TornLateBatches "torn-late-batches": "a batch of a late caller is written in a second step",
        "storms/of-everything-by-late-callers" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.call == Call::Batch && is_late(look)
        }
    }
    TornLateSlices "torn-late-slices": "slices of late callers are written in a second step",
        "storms/of-everything-by-late-callers" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.len() > 1 && is_late(look)
        }
    }
    TornOlderRefunds "torn-older-refunds": "refunds into a previous window are written in a second step",
        "atomic/refunds-of-older-units" {
        fn torn_refund_of(&self, refund: &Refund<'_>, state: &Option<State>, _: Timestamp) -> bool {
            match (refund.meter, state) {
                (Meter::Window(window), Some(State::Window(state))) => {
                    window.place(state.at).0 > window.place(refund.receipt.instant()).0
                }
                _ => false,
            }
        }
    }
    TornRefundsOfRates "torn-refunds-of-rates": "refunds to a bucket of several rates are written in a second step",
        "atomic/refunds-of-older-units" {
        fn torn_refund_of(&self, _: &Refund<'_>, state: &Option<State>, _: Timestamp) -> bool {
            matches!(state, Some(State::Bucket(bucket)) if bucket.debts.len() > 1)
        }
    }
    TornRefundsOfSteps "torn-refunds-of-steps": "refunds to a bucket in steps are written in a second step",
        "atomic/refunds-of-older-units" {
        fn torn_refund_of(&self, refund: &Refund<'_>, _: &Option<State>, _: Timestamp) -> bool {
            matches!(refund.meter, Meter::Bucket(bucket) if bucket.step() > 0)
        }
    }
    TornLateRefunds "torn-late-refunds": "refunds by late callers are written in a second step",
        "storms/of-everything-by-late-callers" {
        fn torn_refund_of(&self, _: &Refund<'_>, state: &Option<State>, now: Timestamp) -> bool {
            state.as_ref().is_some_and(|state| late(state, now) > Duration::ZERO)
        }
    }
}
