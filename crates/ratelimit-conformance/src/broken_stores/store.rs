//! A map under a lock, with the places at which a store can go wrong.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratelimit_core::{
    Answer, CLOCK_SLACK, Claims, CounterStore, Decisions, Meter, MeterId, Promises, Refund, State,
    StoreError, Time, Timestamp, decide, refund,
};
use tokio::task::yield_now;

/// The places at which a store can go wrong. As they stand here they are right.
pub trait Flaw: fmt::Debug + Default + Send + Sync + 'static {
    /// Reads and writes as two steps, with others between them.
    const TORN: bool = false;
    /// Takes a lock that a dropped future does not give back.
    const LATCHED: bool = false;
    /// What it promises of its decisions.
    const DECISIONS: Decisions = Decisions::Exact;

    /// Under which name a meter is stored.
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        id.to_bytes()
    }

    /// The instant at which claims are decided.
    fn instant(&self, now: Timestamp) -> Timestamp {
        now
    }

    /// Decides a slice.
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        decide(claims, states)
    }

    /// Whether the states are written back.
    fn writes(&self, answer: &Answer) -> bool {
        answer.charged
    }

    /// Until when a meter is kept that was written `now` and cannot influence anything from `forget_at`.
    fn keep_until(&self, _now: Timestamp, forget_at: Timestamp) -> Timestamp {
        forget_at + CLOCK_SLACK
    }

    /// Gives units back.
    fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
        refund(&given.meter, state, given.cost, given.receipt, now);
    }

    /// Whether a reset of `name` forgets the meter stored as `other`.
    fn resets(&self, name: &[u8], other: &[u8]) -> bool {
        name == other
    }

    /// In which order the slices of a batch are decided.
    fn order(&self, count: usize) -> Vec<usize> {
        (0..count).collect()
    }
}

/// No flaw at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Flaw for Sound {}

/// Meters in a map under a lock, with a flaw.
#[derive(Default)]
pub struct TableStore<F> {
    flaw: F,
    table: Mutex<Table>,
    latch: AtomicBool,
}

#[derive(Default)]
struct Table {
    meters: HashMap<Vec<u8>, Kept>,
    writes: usize,
}

struct Kept {
    state: State,
    until: Timestamp,
}

/// Fewer writes than this never lead to a sweep.
const SWEEP_EVERY: usize = 32;

impl Table {
    fn read(&self, name: &[u8], now: Timestamp) -> Option<State> {
        let kept = self.meters.get(name).filter(|kept| kept.until >= now);
        kept.map(|kept| kept.state.clone())
    }

    fn write(&mut self, name: Vec<u8>, state: State, until: Timestamp) {
        self.meters.insert(name, Kept { state, until });
        self.writes += 1;
    }

    /// Drops what has expired, each time that as much has been written as there is.
    fn sweep(&mut self, now: Timestamp) {
        if self.writes > self.meters.len().max(SWEEP_EVERY) {
            self.meters.retain(|_, kept| kept.until >= now);
            self.writes = 0;
        }
    }
}

impl<F: Flaw> TableStore<F> {
    /// How many meters are stored.
    pub fn len(&self) -> u64 {
        self.table().meters.len() as u64
    }

    /// Whether none is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A case that panics must not spoil the others.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, table: &Table, claims: &Claims<'_>) -> Vec<Option<State>> {
        claims.iter().map(|claim| table.read(&self.flaw.name(&claim.id), claims.now())).collect()
    }

    fn write(&self, table: &mut Table, claims: &Claims<'_>, states: Vec<Option<State>>) {
        for (claim, state) in claims.iter().zip(states) {
            if let Some(state) = state {
                self.put(table, &claim.id, &claim.meter, state, claims.now());
            }
        }
        table.sweep(claims.now());
    }

    fn put(&self, table: &mut Table, id: &MeterId<'_>, meter: &Meter, state: State, now: Timestamp) {
        let until = self.flaw.keep_until(now, meter.forget_at(&state));
        table.write(self.flaw.name(id), state, until);
    }

    async fn take_latch(&self) {
        while self.latch.swap(true, Ordering::SeqCst) {
            yield_now().await;
        }
        yield_now().await;
    }

    fn decide(&self, claims: &Claims<'_>) -> Answer {
        let mut table = self.table();
        let mut states = self.read(&table, claims);
        let answer = self.flaw.decide(claims, &mut states);
        if self.flaw.writes(&answer) {
            self.write(&mut table, claims, states);
        }
        answer
    }

    async fn decide_torn(&self, claims: &Claims<'_>) -> Answer {
        let mut states = self.read(&self.table(), claims);
        yield_now().await;
        let answer = self.flaw.decide(claims, &mut states);
        if self.flaw.writes(&answer) {
            self.write(&mut self.table(), claims, states);
        }
        answer
    }
}

impl<F: Flaw> fmt::Debug for TableStore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableStore").field("flaw", &self.flaw).field("len", &self.len()).finish()
    }
}

impl<F: Flaw> CounterStore for TableStore<F> {
    fn promises(&self) -> Promises {
        Promises { decisions: F::DECISIONS, time: Time::Caller }
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let claims = claims.at(self.flaw.instant(claims.now()));
        if F::TORN {
            return Ok(self.decide_torn(&claims).await);
        }
        if F::LATCHED {
            self.take_latch().await;
        }
        let answer = self.decide(&claims);
        self.latch.store(false, Ordering::SeqCst);
        Ok(answer)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers: Vec<Option<Result<Answer, StoreError>>> = slices.iter().map(|_| None).collect();
        for place in self.flaw.order(slices.len()) {
            answers[place] = Some(self.claim(slices[place]).await);
        }
        answers.into_iter().flatten().collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut table = self.table();
        for given in refunds {
            let mut state = table.read(&self.flaw.name(&given.id), now);
            self.flaw.refund(given, &mut state, now);
            if let Some(state) = state {
                self.put(&mut table, &given.id, &given.meter, state, now);
            }
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let mut table = self.table();
        for claim in claims.iter() {
            let name = self.flaw.name(&claim.id);
            table.meters.retain(|other, _| !self.flaw.resets(&name, other));
        }
        Ok(())
    }
}
