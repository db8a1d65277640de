//! A map behind a lock that a flaw can change in many places.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::flaw::{Call, Flaw, Look, Write};
use super::forgotten::forget_at;

/// A store in memory with one [`Flaw`]: meters in a map behind a lock.
#[derive(Default)]
pub struct TableStore<F> {
    flaw: F,
    table: Mutex<Table>,
    latch: AtomicBool,
}

#[derive(Default)]
struct Table {
    meters: HashMap<Vec<u8>, Kept>,
    /// Names in the order of insertion, if the number of meters is limited.
    order: VecDeque<Vec<u8>>,
    writes: usize,
    /// When the server removes what was stored last under a name, even after a reset.
    expiries: HashMap<Vec<u8>, Instant>,
}

struct Kept {
    state: State,
    forget_at: Timestamp,
    until: Timestamp,
    expires: Option<Instant>,
}

impl Kept {
    /// Whether the server has not removed it.
    fn is_there(&self) -> bool {
        self.expires.is_none_or(|expires| expires > Instant::now())
    }
}

/// The minimum number of writes between two sweeps.
const SWEEP_EVERY: usize = 32;

/// When the debts of the fastest and of the slowest rate of a bucket end.
fn tats(state: &State) -> [Option<Timestamp>; 2] {
    match state {
        State::Bucket(bucket) => {
            [bucket.debts.first(), bucket.debts.last()].map(|debt| debt.map(|debt| debt.tat))
        }
        State::Window(_) | State::Log(_) => [None, None],
    }
}

impl Table {
    fn read(&self, name: &[u8], now: Timestamp) -> Option<State> {
        let kept = self.meters.get(name).filter(|kept| kept.until >= now && kept.is_there());
        kept.map(|kept| kept.state.clone())
    }

    fn expiry(&self, name: &[u8]) -> Option<Instant> {
        self.meters.get(name).filter(|kept| kept.is_there())?.expires
    }

    fn latest_expiry(&self, name: &[u8]) -> Option<Instant> {
        self.expiries.get(name).copied().filter(|expiry| *expiry > Instant::now())
    }

    fn is_expired(&self, name: &[u8], now: Timestamp) -> bool {
        self.meters.get(name).is_some_and(|kept| kept.until < now)
    }

    fn write(&mut self, name: Vec<u8>, kept: Kept, most: usize) {
        if most < usize::MAX && !self.meters.contains_key(&name) {
            self.order.push_back(name.clone());
        }
        if let Some(expires) = kept.expires {
            self.expiries.insert(name.clone(), expires);
        }
        self.meters.insert(name, kept);
        while self.meters.len() > most {
            let Some(oldest) = self.order.pop_front() else { break };
            self.meters.remove(&oldest);
        }
        self.writes += 1;
    }

    /// Removes expired meters after as many writes as there are meters.
    fn sweep(&mut self, now: Timestamp) {
        if self.writes > self.meters.len().max(SWEEP_EVERY) {
            self.meters.retain(|_, kept| kept.until >= now);
            self.writes = 0;
        }
    }
}

/// What a refund of units of this meter writes. A claim sets its call and mode in it.
fn write_of(
    table: &Table,
    name: &[u8],
    state: &State,
    (place, cost, meter): (usize, u64, Meter),
    now: Timestamp,
) -> Write {
    let kept = table.meters.get(name);
    let forget_at = forget_at(&meter, state, kept.map(|kept| kept.forget_at));
    let [tat, slowest_tat] = tats(state);
    Write {
        call: Call::Refund,
        mode: Mode::Charge,
        charged: false,
        place,
        cost,
        meter,
        now,
        forget_at,
        own_forget_at: meter.forget_at(state),
        tat,
        slowest_tat,
        first_forget_at: forget_at,
        last_forget_at: forget_at,
        former: kept.map(|kept| kept.until),
        former_expiry: table.expiry(name),
        latest_expiry: table.latest_expiry(name),
    }
}

impl<F: Flaw> TableStore<F> {
    /// The number of stored meters.
    pub fn len(&self) -> u64 {
        self.table().meters.len() as u64
    }

    /// Whether no meter is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A case that panics must not fail the others.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self, call: Call, claims: &Claims<'_>) -> Vec<Vec<u8>> {
        claims.iter().map(|claim| self.flaw.name_in(call, &claim.id)).collect()
    }

    fn write(
        &self,
        call: Call,
        table: &mut Table,
        claims: &Claims<'_>,
        charged: bool,
        states: Vec<Option<State>>,
    ) {
        let forget = |(claim, state): (&ratelimit_core::store::Claim<'_>, &Option<State>)| {
            state.as_ref().map(|state| claim.meter.forget_at(state))
        };
        let first = claims.iter().zip(&states).find_map(forget);
        let last = claims.iter().zip(&states).rev().find_map(forget);
        let parts = claims.iter().zip(self.names(call, claims)).zip(states).enumerate();
        for (place, ((claim, name), state)) in parts {
            let Some(state) = state else { continue };
            let plain = write_of(table, &name, &state, (place, claim.cost, claim.meter), claims.now());
            let write = Write {
                call,
                mode: claims.mode(),
                charged,
                first_forget_at: first.unwrap_or(plain.forget_at),
                last_forget_at: last.unwrap_or(plain.forget_at),
                ..plain
            };
            self.put(table, name, state, &write);
        }
        table.sweep(claims.now());
    }

    fn put(&self, table: &mut Table, name: Vec<u8>, state: State, write: &Write) {
        let (until, expires) = (self.flaw.keep_until(write), self.flaw.expires(write));
        let kept = Kept { state: self.flaw.kept(state), forget_at: write.forget_at, until, expires };
        table.write(name, kept, F::MOST_METERS);
    }

    async fn take_latch(&self, call: Call) {
        if self.flaw.latched(call) {
            while self.latch.swap(true, Ordering::SeqCst) {
                yield_now().await;
            }
            yield_now().await;
        }
    }

    fn give_latch_back(&self, call: Call) {
        if self.flaw.latched(call) {
            self.latch.store(false, Ordering::SeqCst);
        }
    }

    /// The answer, or the states if other calls come between reading and writing.
    fn decide(&self, call: Call, claims: &Claims<'_>) -> Result<Answer, Vec<Option<State>>> {
        let mut table = self.table();
        let names = self.names(call, claims);
        let mut states: Vec<_> = names.iter().map(|name| table.read(name, claims.now())).collect();
        let expired = names.iter().any(|name| table.is_expired(name, claims.now()));
        if self.flaw.torn(&Look { call, claims, states: &states, expired }) {
            return Err(states);
        }
        let answer = self.flaw.decide(claims, &mut states);
        if self.flaw.writes(&answer) {
            self.write(call, &mut table, claims, answer.charged, states);
        }
        Ok(answer)
    }

    async fn decide_torn(&self, call: Call, claims: &Claims<'_>, mut states: Vec<Option<State>>) -> Answer {
        yield_now().await;
        let mut table = self.table();
        for ((claim, name), state) in claims.iter().zip(self.names(call, claims)).zip(&mut states) {
            if !self.flaw.stale(claim) {
                *state = table.read(&name, claims.now());
            }
        }
        let answer = self.flaw.decide(claims, &mut states);
        if self.flaw.writes(&answer) {
            self.write(call, &mut table, claims, answer.charged, states);
        }
        answer
    }

    async fn answer(&self, call: Call, claims: &Claims<'_>) -> Answer {
        let claims = claims.at(self.flaw.instant_in(call, claims.mode(), claims.now()));
        self.take_latch(call).await;
        let answer = match self.decide(call, &claims) {
            Ok(answer) => answer,
            Err(states) => self.decide_torn(call, &claims, states).await,
        };
        self.give_latch_back(call);
        answer
    }

    fn give(&self, place: usize, refunds: &[Refund<'_>], now: Timestamp, state: &mut Option<State>) -> bool {
        let known = state.is_some();
        self.flaw.refund_among(refunds, place, state, now);
        self.flaw.goes_on(Call::Refund, place, known, refunds[place].cost)
    }

    fn put_refund(&self, table: &mut Table, place: usize, refund: &Refund<'_>, now: Timestamp, state: State) {
        let name = self.flaw.name_in(Call::Refund, &refund.id);
        let write = write_of(table, &name, &state, (place, refund.cost, refund.meter), now);
        self.put(table, name, state, &write);
    }

    fn read_refund(&self, table: &Table, refund: &Refund<'_>, now: Timestamp) -> Option<State> {
        table.read(&self.flaw.name_in(Call::Refund, &refund.id), now)
    }

    /// Refunds units. Returns `false` if other calls come between reading and writing.
    fn refund_all(&self, now: Timestamp, refunds: &[Refund<'_>]) -> bool {
        let mut table = self.table();
        let torn = |refund| self.flaw.torn_refund_of(refund, &self.read_refund(&table, refund, now), now);
        if self.flaw.torn_refunds(refunds) || refunds.iter().any(torn) {
            return false;
        }
        for (place, refund) in refunds.iter().enumerate() {
            let mut state = self.read_refund(&table, refund, now);
            let goes_on = self.give(place, refunds, now, &mut state);
            if let Some(state) = state {
                self.put_refund(&mut table, place, refund, now, state);
            }
            if !goes_on {
                break;
            }
        }
        true
    }

    fn reset_all(&self, claims: &Claims<'_>) {
        let mut table = self.table();
        for (place, name) in self.names(Call::Reset, claims).iter().enumerate() {
            let known = table.meters.contains_key(name);
            if table.meters.get(name).is_some_and(|kept| self.flaw.resets(&kept.state, claims.now())) {
                table.meters.remove(name);
            }
            if F::RESETS_PREFIXES {
                table.meters.retain(|other, _| !other.starts_with(name));
            }
            if !self.flaw.goes_on(Call::Reset, place, known, 0) {
                break;
            }
        }
    }

    async fn refund_torn(&self, now: Timestamp, refunds: &[Refund<'_>]) {
        let read = |refund| self.read_refund(&self.table(), refund, now);
        let states: Vec<_> = refunds.iter().map(read).collect();
        yield_now().await;
        for (place, (refund, mut state)) in refunds.iter().zip(states).enumerate() {
            self.give(place, refunds, now, &mut state);
            if let Some(state) = state {
                self.put_refund(&mut self.table(), place, refund, now, state);
            }
        }
    }
}

impl<F: Flaw> fmt::Debug for TableStore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableStore").field("flaw", &self.flaw).field("len", &self.len()).finish()
    }
}

impl<F: Flaw> CounterStore for TableStore<F> {
    fn promises(&self) -> Promises {
        Promises::new(F::DECISIONS, F::TIME)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        Ok(self.answer(Call::Claim, &claims).await)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers: Vec<Option<Result<Answer, StoreError>>> = slices.iter().map(|_| None).collect();
        for place in self.flaw.order(slices.len()) {
            answers[place] = Some(Ok(self.answer(Call::Batch, &slices[place]).await));
        }
        answers.into_iter().flatten().collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let now = self.flaw.instant(Call::Refund, now);
        self.take_latch(Call::Refund).await;
        if !self.refund_all(now, refunds) {
            self.refund_torn(now, refunds).await;
        }
        self.give_latch_back(Call::Refund);
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.take_latch(Call::Reset).await;
        self.reset_all(&claims);
        self.give_latch_back(Call::Reset);
        Ok(())
    }
}
