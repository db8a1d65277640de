//! The model: the answers that every store must give.

use std::collections::HashMap;

use ratelimit_core::{Answer, CLOCK_SLACK, Claims, Refund, State, Timestamp, decide, refund};

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
                        let forget_at = claim.meter.forget_at(&state);
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
        for given in refunds {
            let name = given.id.to_bytes();
            let mut state = self.meters.remove(&name).map(|kept| kept.state);
            refund(&given.meter, &mut state, given.cost, given.receipt, now);
            if let Some(state) = state {
                let forget_at = given.meter.forget_at(&state);
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
