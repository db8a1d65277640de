//! The model: what every store must answer.

use std::collections::HashMap;

use ratelimit_core::{Answer, Claims, Refund, State, Timestamp, decide, refund};

/// States in a map that nobody else sees, decided by [`decide`].
#[derive(Debug, Default)]
pub(crate) struct Model {
    states: HashMap<Vec<u8>, State>,
}

impl Model {
    /// Decides a slice, and charges it if it is admitted and the mode says so.
    pub(crate) fn claim(&mut self, claims: &Claims<'_>) -> Answer {
        let names: Vec<_> = claims.iter().map(|claim| claim.id.to_bytes()).collect();
        let mut states: Vec<_> = names.iter().map(|name| self.states.get(name).cloned()).collect();
        let answer = decide(claims, &mut states);
        if answer.charged {
            for (name, state) in names.into_iter().zip(states) {
                match state {
                    Some(state) => self.states.insert(name, state),
                    None => self.states.remove(&name),
                };
            }
        }
        answer
    }

    /// Gives units back. Says whether a meter is as new after it, so that a store may have forgotten it.
    pub(crate) fn refund(&mut self, now: Timestamp, refunds: &[Refund<'_>]) -> bool {
        let mut as_new = false;
        for given in refunds {
            let name = given.id.to_bytes();
            let mut state = self.states.remove(&name);
            refund(&given.meter, &mut state, given.cost, given.receipt, now);
            if let Some(state) = state {
                as_new |= given.meter.forget_at(&state) <= now;
                self.states.insert(name, state);
            }
        }
        as_new
    }

    /// Forgets the meters of these claims.
    pub(crate) fn reset(&mut self, claims: Claims<'_>) {
        for claim in claims.iter() {
            self.states.remove(&claim.id.to_bytes());
        }
    }
}
