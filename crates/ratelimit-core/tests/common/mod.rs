//! For tests: a store that is one map behind one lock, a store that can be away, random numbers.
#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::meter::{State, decide, refund};
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct MapStore {
    pub(crate) states: Mutex<HashMap<Vec<u8>, State>>,
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
        for to_refund in refunds {
            let mut state = map.remove(&to_refund.id.to_bytes());
            refund(&to_refund.meter, &mut state, to_refund.cost, to_refund.receipt, now);
            if let Some(state) = state {
                map.insert(to_refund.id.to_bytes(), state);
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

/// What a store does with calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Answers,
    /// Fails with this kind of error, and does nothing.
    Fails(ErrorKind),
    /// Does what it is asked, and fails all the same: the answer got lost.
    LosesAnswers,
    /// Never answers, and does nothing.
    Hangs,
    /// Does what it is asked, and never answers.
    HangsAfterwards,
}

pub(crate) const AWAY: Mood = Mood::Fails(ErrorKind::Unreachable);

/// A store that can be away. Clones are the same store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsteady {
    pub(crate) store: Arc<MapStore>,
    /// The mood of the next call, and of those after it.
    moods: Arc<Mutex<[Mood; 2]>>,
    /// Number of calls of all kinds.
    pub(crate) calls: Arc<AtomicU64>,
}

impl Unsteady {
    /// A connection to a store that others use as well.
    pub(crate) fn of(store: Arc<MapStore>) -> Self {
        Self { store, ..Self::default() }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.set_once(mood, mood);
    }

    /// Sets the mood of the next call, and of those after it.
    pub(crate) fn set_once(&self, next: Mood, then: Mood) {
        *self.moods.lock().unwrap_or_else(PoisonError::into_inner) = [next, then];
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mood = {
            let mut moods = self.moods.lock().unwrap_or_else(PoisonError::into_inner);
            let [_, then] = *moods;
            std::mem::replace(&mut moods[0], then)
        };
        match mood {
            Mood::Answers => call.await,
            Mood::Fails(kind) => Err(StoreError::new("unsteady", kind, "on purpose").not_applied()),
            Mood::LosesAnswers => {
                call.await?;
                Err(StoreError::new("unsteady", ErrorKind::Timeout, "the answer got lost"))
            }
            Mood::Hangs => std::future::pending().await,
            Mood::HangsAfterwards => {
                call.await?;
                std::future::pending().await
            }
        }
    }
}

impl CounterStore for Unsteady {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.call(self.store.claim(claims)).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        match self.call(async { Ok(self.store.claim_many(slices).await) }).await {
            Ok(answers) => answers,
            Err(error) => slices.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.call(self.store.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.call(self.store.reset(claims)).await
    }
}

/// A small generator, so that a failure can be repeated by its seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The seed is not zero.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
