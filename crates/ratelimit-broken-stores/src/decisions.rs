//! Stores that decide wrongly.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ratelimit_core::meter::{Meter, State, Window, WindowState, decide};
use ratelimit_core::store::{Answer, Claims, Decisions, Mode};

use super::broken_store::BrokenStore;
use super::flaw::Flaw;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::new::<ChargesRefusals>(
            "charges-refusals",
            "refusals are charged, too",
            "worked-examples/only-successes-count",
        ),
        BrokenStore::new::<PartialSlices>(
            "partial-slices",
            "what fits of a refused slice is charged",
            "all-or-nothing/refusal-charges-no-other-limit-fixed",
        ),
        BrokenStore::new::<FloatWeights>(
            "float-weights",
            "the previous window is weighted in floating point",
            "numbers/weights-are-exact",
        ),
        BrokenStore::new::<UnboundedCost>(
            "unbounded-cost",
            "a new key is admitted at any cost",
            "numbers/cost-above-the-limit-fixed",
        ),
        BrokenStore::new::<InventsFigures>(
            "invents-figures",
            "a cost above the limit is answered without looking",
            "decisions/never-fits-tells-the-truth-fixed",
        ),
        BrokenStore::new::<PeeksWrite>(
            "peeks-write",
            "peeks charge",
            "all-or-nothing/peek-changes-nothing-bucket",
        ),
        BrokenStore::new::<RefusesForced>(
            "refuses-forced",
            "forced charges that do not fit are refused",
            "all-or-nothing/forced-slice",
        ),
        BrokenStore::new::<ForgetsOnChange>(
            "forgets-on-change",
            "a changed limit starts a new count",
            "changes/raised-log",
        ),
        BrokenStore::new::<ForgetsPrevious>(
            "forgets-previous",
            "the remaining units ignore the previous window",
            "field-bugs/remaining-counts-the-previous-window",
        ),
        BrokenStore::new::<WaitsForTheEnd>(
            "waits-for-the-end",
            "retry-after is the reset instant",
            "field-bugs/retry-after-is-not-the-end-of-the-window",
        ),
        BrokenStore::new::<Understates>(
            "understates",
            "as a conservative store it always reports one remaining unit too few",
            "same-decisions/random-sliding",
        ),
        BrokenStore::new::<OneMore>(
            "one-more",
            "one unit beyond the limit fits",
            "boundaries/the-quota-and-not-one-more-queue",
        ),
    ]
}

#[derive(Debug, Default)]
struct ChargesRefusals;

impl Flaw for ChargesRefusals {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let answer = decide(claims, states);
        if !answer.admitted && claims.mode() == Mode::Charge {
            decide(&claims.with_mode(Mode::Force), states);
        }
        answer
    }

    fn writes(&self, _: &Answer) -> bool {
        true
    }
}

#[derive(Debug, Default)]
struct PartialSlices;

impl Flaw for PartialSlices {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let answer = decide(claims, states);
        if !answer.admitted && claims.mode() == Mode::Charge {
            for (claim, state) in claims.iter().zip(states) {
                let alone = [*claim];
                if let Ok(alone) = Claims::new(claims.now(), Mode::Charge, &alone) {
                    decide(&alone, std::slice::from_mut(state));
                }
            }
        }
        answer
    }

    fn writes(&self, _: &Answer) -> bool {
        true
    }
}

#[derive(Debug, Default)]
struct FloatWeights;

impl FloatWeights {
    #[allow(clippy::cast_precision_loss)] // which is the flaw
    fn fits(window: &Window, state: &WindowState, claims: &Claims<'_>, cost: u64) -> bool {
        let (index, elapsed) = window.place(claims.now());
        let (current, previous) = match index - window.place(state.at).0 {
            0 => (state.counts[0], state.counts[1]),
            1 => (0, state.counts[0]),
            _ => (0, 0),
        };
        let covered = 1.0 - elapsed as f64 / window.segment() as f64;
        previous as f64 * covered + current as f64 + cost as f64 <= window.limit() as f64
    }
}

impl Flaw for FloatWeights {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let fits = match (&**claims, &*states) {
            ([claim], [Some(State::Window(state))]) => match claim.meter {
                Meter::Window(window)
                    if window.carried() == 1 && claims.now() >= state.at && claim.cost > 0 =>
                {
                    Self::fits(&window, state, claims, claim.cost)
                }
                _ => return decide(claims, states),
            },
            _ => return decide(claims, states),
        };
        let mode = match (fits, claims.mode()) {
            (true, Mode::Charge) => Mode::Force,
            (false, Mode::Charge) => Mode::Peek,
            (_, mode) => mode,
        };
        let mut answer = decide(&claims.with_mode(mode), states);
        answer.admitted = fits;
        answer
    }
}

#[derive(Debug, Default)]
struct UnboundedCost;

impl Flaw for UnboundedCost {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let new = states.iter().all(Option::is_none) && claims.mode() == Mode::Charge;
        decide(&claims.with_mode(if new { Mode::Force } else { claims.mode() }), states)
    }
}

#[derive(Debug, Default)]
struct InventsFigures;

impl Flaw for InventsFigures {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        if claims.mode() != Mode::Force && claims.iter().any(|claim| claim.cost > claim.meter.limit()) {
            return decide(claims, &mut vec![None; states.len()]);
        }
        decide(claims, states)
    }
}

#[derive(Debug, Default)]
struct PeeksWrite;

impl Flaw for PeeksWrite {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mode = if claims.mode() == Mode::Peek { Mode::Charge } else { claims.mode() };
        decide(&claims.with_mode(mode), states)
    }
}

#[derive(Debug, Default)]
struct RefusesForced;

impl Flaw for RefusesForced {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mode = if claims.mode() == Mode::Force { Mode::Charge } else { claims.mode() };
        decide(&claims.with_mode(mode), states)
    }
}

#[derive(Debug, Default)]
struct ForgetsOnChange {
    limits: Mutex<HashMap<Vec<u8>, Meter>>,
}

impl Flaw for ForgetsOnChange {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        for (claim, state) in claims.iter().zip(states.iter_mut()) {
            let former = limits.insert(claim.id.to_bytes(), claim.meter);
            if former.is_some_and(|former| former != claim.meter) {
                *state = None;
            }
        }
        decide(claims, states)
    }
}

#[derive(Debug, Default)]
struct ForgetsPrevious;

impl Flaw for ForgetsPrevious {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mut answer = decide(claims, states);
        for ((claim, state), verdict) in claims.iter().zip(&*states).zip(&mut answer.verdicts) {
            if let (Meter::Window(window), Some(State::Window(state))) = (claim.meter, state)
                && window.carried() == 1
            {
                verdict.remaining = window.limit().saturating_sub(state.counts[0]);
            }
        }
        answer
    }
}

#[derive(Debug, Default)]
struct WaitsForTheEnd;

impl Flaw for WaitsForTheEnd {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mut answer = decide(claims, states);
        for verdict in &mut answer.verdicts {
            if !verdict.fits {
                verdict.fits_at = verdict.fits_at.map(|_| verdict.reset_at);
            }
        }
        answer
    }
}

#[derive(Debug, Default)]
struct Understates;

impl Flaw for Understates {
    const DECISIONS: Decisions = Decisions::Conservative;

    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let mut answer = decide(claims, states);
        for verdict in &mut answer.verdicts {
            verdict.remaining = verdict.remaining.saturating_sub(1);
        }
        answer
    }
}

#[derive(Debug, Default)]
struct OneMore;

impl Flaw for OneMore {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        let one_less: Vec<_> = claims
            .iter()
            .map(|claim| ratelimit_core::store::Claim { cost: claim.cost.saturating_sub(1), ..*claim })
            .collect();
        match Claims::new(claims.now(), Mode::Peek, &one_less) {
            Ok(less) if claims.mode() == Mode::Charge && decide(&less, states).admitted => {
                decide(&claims.with_mode(Mode::Force), states)
            }
            _ => decide(claims, states),
        }
    }
}
