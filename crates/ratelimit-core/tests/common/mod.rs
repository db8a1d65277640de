//! A store for tests: one map behind one lock.
#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::{
    Answer, Claims, CounterStore, Decisions, Promises, Refund, State, StoreError, Time, Timestamp, decide,
    refund,
};

#[derive(Debug, Default)]
pub(crate) struct MapStore {
    states: Mutex<HashMap<Vec<u8>, State>>,
    /// Number of claims that reached the store.
    pub(crate) asked: AtomicU64,
}

impl CounterStore for MapStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut map = self.states.lock().unwrap();
        let mut states: Vec<_> = claims.iter().map(|claim| map.get(&claim.id.to_bytes()).cloned()).collect();
        let answer = decide(&claims, &mut states);
        if answer.charged {
            for (claim, state) in claims.iter().zip(states) {
                if let Some(state) = state {
                    map.insert(claim.id.to_bytes(), state);
                }
            }
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut map = self.states.lock().unwrap();
        for given in refunds {
            let mut state = map.remove(&given.id.to_bytes());
            refund(&given.meter, &mut state, given.cost, given.receipt, now);
            if let Some(state) = state {
                map.insert(given.id.to_bytes(), state);
            }
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let mut map = self.states.lock().unwrap();
        for claim in claims.iter() {
            map.remove(&claim.id.to_bytes());
        }
        Ok(())
    }
}
