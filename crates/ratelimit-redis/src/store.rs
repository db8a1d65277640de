//! The store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{
    Answer, BatchConfig, Batched, Claims, CounterStore, Decisions, Promises, Refund, StoreError, Time,
    Timestamp,
};
use redis::cmd;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::config::{RedisConfig, TimeSource};
use crate::error::Failure;
use crate::fast::{self, Single};
use crate::keys::key_of;
use crate::link::Link;
use crate::script::{CLAIM, REFUND};
use crate::wire::{self, GiveBack, Slice};

/// The most slices in one call of [`CounterStore::claim_many`]: a server does nothing else while a script runs.
const BATCH: usize = 256;

/// Keeps meters on Redis, Valkey or KeyDB: one server, or a [cluster](Self::connect_cluster).
///
/// A slice of claims is one script call; so is a batch of slices
/// ([`check_many`](ratelimit_core::RateLimiter::check_many)), up to 256 of them, and on a cluster up to 256 for each slot.
/// Checks that come while others are under way go together in the next call ([`RedisConfig::batch`]).
/// No call takes longer than [`RedisConfig::timeout`]. A connection that breaks or falls silent is replaced by the next
/// call.
///
/// Cloning is cheap; clones share the connections. It needs a tokio runtime.
#[derive(Clone)]
pub struct RedisStore {
    direct: Direct,
    /// The same, where checks share calls.
    batched: Option<Batched<Direct>>,
}

/// The store without sharing: each slice, and each batch of slices, is a call of its own.
#[derive(Clone)]
struct Direct {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) link: Link,
    prefix: String,
    time: TimeSource,
    slack_millis: u64,
    timeout: Duration,
}

impl RedisStore {
    /// Connects to the server at `url`, everything else as in [`RedisConfig::default`].
    ///
    /// # Errors
    /// If the address is not valid, or if there is no connection within the time limit.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(RedisConfig::new(url)).await
    }

    /// Connects to one server.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(config: RedisConfig) -> Result<Self, StoreError> {
        Self::lazy(config)?.connected().await
    }

    /// A store that connects with its first call: for a program that has to start while the server is down.
    ///
    /// # Errors
    /// If the address is not valid.
    #[allow(clippy::needless_pass_by_value)] // what other constructors take
    pub fn lazy(config: RedisConfig) -> Result<Self, StoreError> {
        let link = Link::to_one_server(&config).map_err(Failure::into_store_error)?;
        let direct = Direct::new(link, &config);
        let share =
            |batch| Batched::with_config(direct.clone(), BatchConfig { patience: config.timeout, ..batch });
        Ok(Self { batched: config.batch.map(share), direct })
    }

    /// Connects to the cluster that the nodes of `config` belong to.
    ///
    /// Slices whose keys are in several slots may be refused under contention although they would have fitted, and take a
    /// second trip if they fit; all limits of one key are in one slot. See [`Decisions::ExactPerKey`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_cluster(config: RedisConfig) -> Result<Self, StoreError> {
        Self::lazy_cluster(config)?.connected().await
    }

    /// A store on a cluster that looks for the nodes with its first call.
    ///
    /// # Errors
    /// If an address is not valid.
    #[allow(clippy::needless_pass_by_value)] // what other constructors take
    pub fn lazy_cluster(config: RedisConfig) -> Result<Self, StoreError> {
        let link = Link::to_cluster(&config).map_err(Failure::into_store_error)?;
        // A shared call would wait for the slowest of all nodes.
        Ok(Self { direct: Direct::new(link, &config), batched: None })
    }

    async fn connected(self) -> Result<Self, StoreError> {
        let inner = &self.direct.inner;
        inner.link.connect(inner.deadline()).await.map_err(Failure::into_store_error)?;
        Ok(self)
    }
}

impl Direct {
    fn new(link: Link, config: &RedisConfig) -> Self {
        let inner = Inner {
            link,
            prefix: config.prefix.clone(),
            time: config.time,
            slack_millis: config.slack_millis(),
            timeout: config.timeout,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The claims of these slices, if the short way decides them on one server.
    fn singles<'a>(&self, slices: &'a [Claims<'a>]) -> Option<SmallVec<[Single<'a>; 1]>> {
        if self.inner.link.has_slots() {
            return None;
        }
        slices.iter().map(|claims| Single::of_claims(claims, self.inner.time)).collect()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.direct.fmt(f)
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.inner.link.address())
            .field("prefix", &self.inner.prefix)
            .field("time", &self.inner.time)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// When a call that begins now has to be over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Decides slices whose keys may travel together.
    pub(crate) async fn decide_all(
        &self,
        slices: &[Slice],
        deadline: Instant,
    ) -> Result<Vec<Result<Answer, Failure>>, Failure> {
        let singles: Option<Vec<_>> = slices.iter().map(|slice| Single::of_slice(slice, self.time)).collect();
        if let Some(singles) = singles {
            return self.decide_singles(&singles, deadline, |failure| failure).await;
        }
        let call = wire::claim_call(slices, self.time, self.slack_millis);
        let key = slices.iter().flat_map(|slice| &slice.asks).next().map_or(&[][..], |ask| &ask.key);
        let reply = self.link.run(&CLAIM, call, key, deadline).await?;
        let address = self.link.address();
        let mut answers = wire::answers(slices, self.time, reply).map_err(|failure| failure.at(address))?;
        for failure in answers.iter_mut().filter_map(|answer| answer.as_mut().err()) {
            *failure = failure.clone().at(address);
        }
        Ok(answers)
    }

    /// The same by the short way. On a cluster keys are made already, elsewhere nobody needs them.
    async fn decide_singles<E>(
        &self,
        singles: &[Single<'_>],
        deadline: Instant,
        fail: impl Fn(Failure) -> E,
    ) -> Result<Vec<Result<Answer, E>>, Failure> {
        let call = fast::claim_call(singles, &self.prefix, self.slack_millis);
        let key = singles.first().and_then(Single::key).unwrap_or_default();
        let reply = self.link.run(&CLAIM, call, key, deadline).await?;
        let address = self.link.address();
        fast::answers(singles, &reply, |failure| fail(failure.at(address)))
            .map_err(|failure| failure.at(address))
    }

    /// Decides one slice whose keys may travel together.
    pub(crate) async fn decide(&self, slice: Slice, deadline: Instant) -> Result<Answer, Failure> {
        let mut answers = self.decide_all(std::slice::from_ref(&slice), deadline).await?;
        answers.pop().unwrap_or_else(|| Err(Failure::strange_reply()))
    }

    /// Decides slices batch by batch. A batch that gets no answer fails as a whole.
    pub(crate) async fn decide_batches(
        &self,
        slices: &[Slice],
        deadline: Instant,
    ) -> Vec<Result<Answer, Failure>> {
        let mut answers = Vec::new();
        for batch in slices.chunks(BATCH) {
            add(&mut answers, batch.len(), self.decide_all(batch, deadline).await, |failure| failure);
        }
        answers
    }

    /// The same by the short way.
    async fn decide_batches_of_singles(
        &self,
        singles: &[Single<'_>],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut answers = Vec::new();
        for batch in singles.chunks(BATCH) {
            let decided = self.decide_singles(batch, deadline, Failure::into_store_error).await;
            add(&mut answers, batch.len(), decided, Failure::into_store_error);
        }
        answers
    }

    /// Gives back units of meters whose keys may travel together.
    pub(crate) async fn give_back(
        &self,
        now: Timestamp,
        refunds: &[GiveBack],
        deadline: Instant,
    ) -> Result<(), Failure> {
        let Some(first) = refunds.first() else { return Ok(()) };
        let call = wire::refund_call(now, refunds, self.time);
        let reply = self.link.run(&REFUND, call, &first.ask.key, deadline).await?;
        match reply {
            redis::Value::Int(1) => Ok(()),
            redis::Value::Int(_) => Err(Failure::corrupt().at(self.link.address())),
            _ => Err(Failure::strange_reply().at(self.link.address())),
        }
    }

    /// Groups what may travel together: everything on one server, what is in one slot on a cluster.
    fn groups<T>(&self, items: Vec<T>, key: impl Fn(&T) -> &[u8]) -> Vec<Vec<T>> {
        if self.link.has_slots() {
            let mut slots = std::collections::BTreeMap::<u16, Vec<T>>::new();
            for item in items {
                slots.entry(crate::keys::slot_of(key(&item))).or_default().push(item);
            }
            return slots.into_values().collect();
        }
        if items.is_empty() { Vec::new() } else { vec![items] }
    }
}

/// Adds the answers to a batch of so many.
fn add<E>(
    answers: &mut Vec<Result<Answer, E>>,
    number: usize,
    decided: Result<Vec<Result<Answer, E>>, Failure>,
    fail: impl Fn(Failure) -> E,
) {
    match decided {
        Ok(decided) if answers.is_empty() => *answers = decided,
        Ok(decided) => answers.extend(decided),
        Err(failure) => answers.extend((0..number).map(|_| Err(fail(failure.clone())))),
    }
}

impl CounterStore for RedisStore {
    fn promises(&self) -> Promises {
        self.direct.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match &self.batched {
            Some(batched) => batched.claim(claims).await,
            None => self.direct.claim(claims).await,
        }
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.direct.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.direct.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.direct.reset(claims).await
    }
}

impl CounterStore for Direct {
    fn promises(&self) -> Promises {
        let decisions = if self.inner.link.has_slots() { Decisions::ExactPerKey } else { Decisions::Exact };
        let time = match self.inner.time {
            TimeSource::Caller => Time::Caller,
            TimeSource::Server => Time::Server,
        };
        Promises { decisions, time }
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let deadline = self.inner.deadline();
        if let Some(singles) = self.singles(std::slice::from_ref(&claims)) {
            let mut answers = self.inner.decide_batches_of_singles(&singles, deadline).await;
            return answers.pop().unwrap_or_else(|| Err(Failure::strange_reply().into_store_error()));
        }
        let slice = Slice::new(&self.inner.prefix, &claims);
        if self.inner.link.has_slots() && slice.slot().is_none() {
            let answer = crate::spread::claim(self.inner.clone(), slice, deadline).await;
            return answer.map_err(Failure::into_store_error);
        }
        self.inner.decide(slice, deadline).await.map_err(Failure::into_store_error)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let deadline = self.inner.deadline();
        if let Some(singles) = self.singles(slices) {
            return self.inner.decide_batches_of_singles(&singles, deadline).await;
        }
        let slices: Vec<_> = slices.iter().map(|claims| Slice::new(&self.inner.prefix, claims)).collect();
        if self.inner.link.has_slots() {
            let answers = crate::spread::claim_many(&self.inner, slices, deadline).await;
            return answers.into_iter().map(|answer| answer.map_err(Failure::into_store_error)).collect();
        }
        let answers = self.inner.decide_batches(&slices, deadline).await;
        answers.into_iter().map(|answer| answer.map_err(Failure::into_store_error)).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let deadline = self.inner.deadline();
        let refunds = refunds.iter().filter(|refund| refund.cost > 0);
        let refunds: Vec<_> = refunds.map(|refund| GiveBack::new(&self.inner.prefix, refund)).collect();
        for group in self.inner.groups(refunds, |refund| &refund.ask.key) {
            self.inner.give_back(now, &group, deadline).await.map_err(Failure::into_store_error)?;
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = self.inner.deadline();
        let keys: Vec<_> = claims.iter().map(|claim| key_of(&self.inner.prefix, &claim.id)).collect();
        for group in self.inner.groups(keys, Vec::as_slice) {
            let mut unlink = cmd("UNLINK");
            unlink.arg(&group);
            let first = group.first().map_or(&[][..], Vec::as_slice);
            self.inner.link.send(unlink, first, deadline).await.map_err(Failure::into_store_error)?;
        }
        Ok(())
    }
}
