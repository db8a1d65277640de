//! Stores that read and write in two steps, with other calls between them: always, or only in rare situations.

use ratelimit_core::{Answer, Claim, Meter, Mode, State};

use super::flaw::{Call, Look};

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
}
