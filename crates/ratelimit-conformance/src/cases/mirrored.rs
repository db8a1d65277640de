//! The store beside the model: both receive the same calls, and every answer must be that of the model.

use std::time::Duration;

use ratelimit_core::store::{
    Answer, Claim, Claims, Decisions, MeterId, Mode, Promises, Receipt, Refund, Time,
};
use ratelimit_core::{Clock, CounterStore, Limit, StoreError, SystemClock, Timestamp};

use tokio::time::Instant;

use super::contended::{done, on_several_keys};
use super::sequence_parts::is_conservative;
use crate::bench::Bench;
use crate::clock::START;
use crate::describe::differences;
use crate::failure::{CaseResult, Failure, ensure_eq};
use crate::in_time::{in_time, is_long_ago};
use crate::model::Model;
use crate::subject::Handle;

/// Units of one meter.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) namespace: String,
    pub(super) limit: Limit,
    pub(super) key: Vec<u8>,
    pub(super) cost: u64,
}

impl Part {
    /// Units of this key, in the empty namespace.
    pub(super) fn new(limit: &Limit, key: impl AsRef<[u8]>, cost: u64) -> Self {
        Self { namespace: String::new(), limit: limit.clone(), key: key.as_ref().to_vec(), cost }
    }

    /// The same units in this namespace.
    pub(super) fn within(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// The same meter with this number of units.
    pub(super) fn of(&self, cost: u64) -> Self {
        Self { cost, ..self.clone() }
    }

    fn id(&self) -> MeterId<'_> {
        MeterId { namespace: &self.namespace, scope: self.limit.scope(), key: &self.key }
    }

    pub(super) fn claim(&self) -> Claim<'_> {
        Claim { id: self.id(), cost: self.cost, meter: self.limit.meter_for(&self.key) }
    }

    pub(super) fn refund(&self, receipt: Receipt) -> Refund<'_> {
        Refund { id: self.id(), cost: self.cost, meter: self.limit.meter_for(&self.key), receipt }
    }

    fn describe(&self) -> String {
        let shown = self.key[..self.key.len().min(40)].escape_ascii();
        format!("{} of {} for {shown} in {:?}", self.cost, self.limit, self.namespace)
    }
}

/// Parts that are decided together.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) now: Timestamp,
    pub(super) mode: Mode,
    pub(super) parts: Vec<Part>,
}

impl Slice {
    pub(super) fn describe(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::describe).collect();
        format!("{:?} {:?} after the start: {}", self.mode, self.now.since(START), parts.join(" + "))
    }
}

/// Sends a slice of claims to a store, which has to answer in time.
pub(super) async fn put(
    store: &Handle,
    now: Timestamp,
    mode: Mode,
    parts: &[Part],
) -> CaseResult<Result<Answer, StoreError>> {
    let claims: Vec<Claim<'_>> = parts.iter().map(Part::claim).collect();
    let claims = Claims::new(now, mode, &claims)?;
    in_time("a claim", async { Ok(store.claim(claims).await) }).await
}

/// Sends slices to a store in one batch.
pub(super) async fn put_many(
    store: &Handle,
    slices: &[Slice],
) -> CaseResult<Vec<Result<Answer, StoreError>>> {
    let claims: Vec<Vec<Claim<'_>>> =
        slices.iter().map(|slice| slice.parts.iter().map(Part::claim).collect()).collect();
    let mut batch = Vec::with_capacity(slices.len());
    for (slice, claims) in slices.iter().zip(&claims) {
        batch.push(Claims::new(slice.now, slice.mode, claims)?);
    }
    let answers = store.claim_many(&batch).await;
    ensure_eq!(answers.len(), slices.len(), "answers to the slices of a batch");
    Ok(answers)
}

/// Refunds units on a store, again if it may be contended.
pub(super) async fn give_back(
    store: &Handle,
    now: Timestamp,
    charged: &[(Part, Receipt)],
) -> CaseResult<Result<(), StoreError>> {
    let refunds: Vec<Refund<'_>> = charged.iter().map(|(part, receipt)| part.refund(*receipt)).collect();
    let promises = promises_with(store, charged.iter().map(|(part, _)| part));
    done(promises, || store.refund(now, &refunds)).await
}

/// Resets meters on a store, again if it may be contended.
pub(super) async fn forget(
    store: &Handle,
    now: Timestamp,
    parts: &[Part],
) -> CaseResult<Result<(), StoreError>> {
    let claims: Vec<Claim<'_>> = parts.iter().map(Part::claim).collect();
    let claims = Claims::new(now, Mode::Charge, &claims)?;
    done(promises_with(store, parts), || store.reset(claims)).await
}

/// What a store promises for calls with these parts.
pub(super) fn promises_with<'p>(store: &Handle, parts: impl IntoIterator<Item = &'p Part>) -> Promises {
    let promises = store.dyn_promises();
    let mut parts = parts.into_iter();
    let first = parts.next();
    let has_one_key = parts.all(|part| first.is_some_and(|first| first.key == part.key));
    if has_one_key { promises } else { on_several_keys(promises) }
}

/// The store and the model.
pub(super) struct Mirrored {
    handle: Handle,
    model: Model,
    conservative: bool,
    server_time: bool,
    now: Timestamp,
}

impl Mirrored {
    /// An empty store and an empty model, at [`START`].
    pub(super) fn new(bench: &Bench) -> Self {
        let promises = bench.promises();
        Self {
            handle: bench.store.clone(),
            model: Model::default(),
            conservative: promises.decisions == Decisions::Conservative,
            server_time: promises.time == Time::Server,
            now: START,
        }
    }

    /// Sends the next calls through this handle.
    pub(super) fn on(&mut self, handle: &Handle) -> &mut Self {
        self.handle = handle.clone();
        self
    }

    /// Sets the time of the next calls, relative to [`START`].
    pub(super) fn at(&mut self, since_start: Duration) -> &mut Self {
        self.set(START + since_start)
    }

    /// Sets the time of the next calls.
    pub(super) fn set(&mut self, now: Timestamp) -> &mut Self {
        self.now = now;
        self
    }

    /// Whether the store decides by its server's time. Then the model uses that time, too.
    pub(super) fn has_server_time(&self) -> bool {
        self.server_time
    }

    /// The time of the next calls.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Makes claims in this mode, and compares the answer with that of the model.
    pub(super) async fn claim(&mut self, mode: Mode, parts: &[Part]) -> CaseResult<Answer> {
        let found = put(&self.handle, self.now, mode, parts).await??;
        self.check(&Slice { now: self.now, mode, parts: parts.to_vec() }, found)
    }

    /// Sends slices in one batch, and compares the answers with those of the model. Sends them one by one to a conservative
    /// store, where the slices of a batch contend with each other.
    pub(super) async fn many(&mut self, slices: &[Slice]) -> CaseResult<Vec<Answer>> {
        let size = if self.conservative { 1 } else { slices.len().max(1) };
        let mut answers = Vec::new();
        for batch in slices.chunks(size) {
            for (slice, found) in batch.iter().zip(put_many(&self.handle, batch).await?) {
                answers.push(self.check(slice, found?)?);
            }
        }
        Ok(answers)
    }

    /// Refunds units. Returns whether a meter is as good as new after it, so that a store may have removed it.
    pub(super) async fn refund(&mut self, charged: &[(Part, Receipt)]) -> CaseResult<bool> {
        give_back(&self.handle, self.now, charged).await??;
        let refunds: Vec<Refund<'_>> = charged.iter().map(|(part, receipt)| part.refund(*receipt)).collect();
        Ok(self.model.refund(self.now, &refunds))
    }

    /// Resets these meters.
    pub(super) async fn reset(&mut self, parts: &[Part]) -> CaseResult {
        forget(&self.handle, self.now, parts).await??;
        let claims: Vec<Claim<'_>> = parts.iter().map(Part::claim).collect();
        self.model.reset(Claims::new(self.now, Mode::Charge, &claims)?);
        Ok(())
    }

    /// Compares the state of these meters with the model.
    pub(super) async fn stands(&mut self, parts: &[Part], when: &str) -> CaseResult {
        for part in parts {
            for cost in [0, 1] {
                let peeked = self.claim(Mode::Peek, &[part.of(cost)]).await;
                peeked.map_err(|failure| after(when, failure))?;
            }
        }
        Ok(())
    }

    /// Compares the state of these meters with the model, each at the instant of the system clock. A difference proves nothing
    /// if the answer took so long that the store may have removed the meter by its server's clock.
    pub(super) async fn stands_now(&mut self, parts: &[Part], when: &str) -> CaseResult {
        for (part, cost) in parts.iter().flat_map(|part| [(part, 0), (part, 1)]) {
            let now = SystemClock::new().now();
            let compared = self.claim_as_of(now, Mode::Peek, part.of(cost), false).await;
            compared.map_err(|failure| after(when, failure))?;
        }
        Ok(())
    }

    /// Makes a claim at `now`, the present, as a batch of one if `in_batch`, and compares the answer with that of the model.
    /// Returns `false` if they differ but the answer took so long that the store may have removed the meter by its server's
    /// clock.
    pub(super) async fn claim_as_of(
        &mut self,
        now: Timestamp,
        mode: Mode,
        part: Part,
        in_batch: bool,
    ) -> CaseResult<bool> {
        let asked = Instant::now();
        let slice = [Slice { now, mode, parts: vec![part] }];
        let mut found = if in_batch {
            in_time("a batch", put_many(&self.handle, &slice)).await?
        } else {
            vec![put(&self.handle, now, mode, &slice[0].parts).await?]
        };
        match self.set(now).check(&slice[0], found.remove(0)?) {
            Err(_) if is_long_ago(asked) => Ok(false),
            compared => compared.map(|_| true),
        }
    }

    fn check(&mut self, slice: &Slice, found: Answer) -> CaseResult<Answer> {
        let claims: Vec<Claim<'_>> = slice.parts.iter().map(Part::claim).collect();
        if self.server_time {
            self.now = found.now; // the model decides by it, too
        }
        let now = if self.server_time { found.now } else { slice.now };
        let claims = Claims::new(now, slice.mode, &claims)?;
        let expected = self.model.claim(&claims);
        if found == expected || (self.conservative && is_conservative(&claims, &expected, &found)) {
            return Ok(found);
        }
        let names: Vec<String> = slice.parts.iter().map(Part::describe).collect();
        let what = differences(&expected, &found, &names);
        Err(Failure::new(format!("{}: {what}", slice.describe())))
    }
}

/// The failure, with `what` preceded it.
pub(super) fn after(what: &str, failure: Failure) -> Failure {
    let outcome = failure.into_outcome();
    Failure::new(format!("after {what}: {}", outcome.reason().unwrap_or_default()))
}

/// An instant minus a duration.
pub(super) fn earlier(instant: Timestamp, by: Duration) -> Timestamp {
    let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_nanos(instant.as_nanos().saturating_sub(nanos))
}
