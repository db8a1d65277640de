//! The model: the answers that every store must give.

use std::collections::HashMap;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State, decide, refund};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claims, Refund};

/// States in a map, decided by [`decide`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    meters: HashMap<Vec<u8>, Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    state: State,
    /// The instant from which on the state equals a new one.
    forget_at: Timestamp,
}

impl Model {
    /// Decides a slice, and charges it if it is admitted and the mode says so.
    pub(crate) fn claim(&mut self, claims: &Claims<'_>) -> Answer {
        let names: Vec<_> = claims.iter().map(|claim| claim.id.to_bytes()).collect();
        let state = |name: &Vec<u8>| self.meters.get(name).map(|kept| kept.state.clone());
        let mut states: Vec<_> = names.iter().map(state).collect();
        let answer = decide(claims, &mut states);
        if answer.charged {
            for ((claim, name), state) in claims.iter().zip(names).zip(states) {
                match state {
                    Some(state) => {
                        let former = self.meters.get(&name).map(|kept| kept.forget_at);
                        let forget_at = forget_at(&claim.meter, &state, former);
                        self.meters.insert(name, Kept { state, forget_at });
                    }
                    None => drop(self.meters.remove(&name)),
                }
            }
        }
        answer
    }

    /// Gives units back. Returns whether a meter is as good as new after it, so that a store may have forgotten it.
    pub(crate) fn refund(&mut self, now: Timestamp, refunds: &[Refund<'_>]) -> bool {
        let mut as_new = false;
        for refunded in refunds {
            let name = refunded.id.to_bytes();
            let (mut state, former) =
                self.meters.remove(&name).map(|kept| (kept.state, kept.forget_at)).unzip();
            refund(&refunded.meter, &mut state, refunded.cost, refunded.receipt, now);
            if let Some(state) = state {
                let forget_at = forget_at(&refunded.meter, &state, former);
                as_new |= forget_at <= now;
                self.meters.insert(name, Kept { state, forget_at });
            }
        }
        as_new
    }

    /// Forgets the meters of these claims.
    pub(crate) fn reset(&mut self, claims: Claims<'_>) {
        for claim in claims.iter() {
            self.meters.remove(&claim.id.to_bytes());
        }
    }

    /// Forgets the meters that have expired.
    pub(crate) fn forget(&mut self, now: Timestamp) {
        self.meters.retain(|_, kept| kept.forget_at + CLOCK_SLACK >= now);
    }

    /// The number of meters.
    pub(crate) fn len(&self) -> usize {
        self.meters.len()
    }
}

/// The instant from which on a state that was written by this meter equals a new one, for other meters as well: the units of a
/// log count for longer under a longer lease.
fn forget_at(meter: &Meter, state: &State, former: Option<Timestamp>) -> Timestamp {
    let forgotten_at = meter.forget_at(state);
    match (state, former) {
        (State::Log(log), Some(former)) if !log.units.is_empty() => forgotten_at.max(former),
        _ => forgotten_at,
    }
}
