//! The script calls: slices are encoded as one call, and its reply is decoded into answers.

use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::{Answer, Claims, Refund, StoreError, Timestamp};
use tokio::time::Instant;

use crate::error;
use crate::fast::{self, Single};
use crate::keys::key_of;
use crate::link::Link;
use crate::script::{CLAIM, REFUND};
use crate::store_config::StoreConfig;
use crate::time_source::TimeSource;
use crate::wire::{self, OwnedClaims, OwnedRefund};

/// The maximum number of slices in one script call: a server does nothing else while a script runs.
const BATCH: usize = 256;

/// Sends slices whose keys may be in the same call.
pub(crate) struct Calls {
    pub(crate) link: Link,
    prefix: String,
    time: TimeSource,
    slack_millis: u64,
    timeout: Duration,
}

impl Calls {
    pub(crate) fn new(link: Link, config: StoreConfig) -> Self {
        let slack_millis = config.slack_millis();
        let StoreConfig { prefix, time, timeout, .. } = config;
        Self { link, prefix, time, slack_millis, timeout }
    }

    /// The prefix of every key.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The claims with their keys, owned, so that a task can hold them.
    pub(crate) fn own(&self, claims: &Claims<'_>) -> OwnedClaims {
        OwnedClaims::new(claims, |id| key_of(&self.prefix, id))
    }

    /// The refund with its key, owned, so that a task can hold it.
    pub(crate) fn own_refund(&self, refund: &Refund<'_>) -> OwnedRefund {
        OwnedRefund::new(refund, |id| key_of(&self.prefix, id))
    }

    /// Whose clock decides.
    pub(crate) fn time(&self) -> TimeSource {
        self.time
    }

    /// The call that decides these claims on the fast path.
    pub(crate) fn call_of(&self, singles: &[Single<'_>]) -> redis::Cmd {
        fast::claim_call(singles, &self.prefix, self.slack_millis)
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        deadline_after(self.timeout)
    }

    /// Decides slices in one call, which may contain all of their keys.
    pub(crate) async fn decide_all(
        &self,
        slices: &[OwnedClaims],
        deadline: Instant,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let singles: Option<Vec<_>> = slices.iter().map(|slice| Single::of_slice(slice, self.time)).collect();
        if let Some(singles) = singles {
            return self.decide_singles(&singles, deadline).await;
        }
        let call = wire::claim_call(slices, self.time, self.slack_millis);
        let key = slices.iter().flat_map(|slice| &slice.claims).next().map_or(&[][..], |claim| &claim.key);
        let reply = self.link.run(&CLAIM, call, key, deadline).await?;
        let address = self.link.address();
        let answers = wire::answers(slices, self.time, reply).map_err(|error| error.at(address))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| error.at(address))).collect())
    }

    /// Decides slices on the fast path, in one call. On a cluster their keys exist already; elsewhere the keys are written
    /// into the call directly.
    async fn decide_singles(
        &self,
        singles: &[Single<'_>],
        deadline: Instant,
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let call = self.call_of(singles);
        let key = singles.first().and_then(Single::key).unwrap_or_default();
        let reply = self.link.run(&CLAIM, call, key, deadline).await?;
        let address = self.link.address();
        let answers = fast::answers(singles, &reply).map_err(|error| error.at(address))?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| error.at(address))).collect())
    }

    /// Decides one slice whose keys may be in the same call.
    pub(crate) async fn decide(&self, slice: OwnedClaims, deadline: Instant) -> Result<Answer, StoreError> {
        let mut answers = self.decide_all(std::slice::from_ref(&slice), deadline).await?;
        answers.pop().unwrap_or_else(|| Err(error::strange_reply()))
    }

    /// Decides slices in batches, one after another. If a batch gets no reply, all of its slices fail.
    pub(crate) async fn decide_batches(
        &self,
        slices: &[OwnedClaims],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut answers = Vec::new();
        for batch in slices.chunks(BATCH) {
            add(&mut answers, batch.len(), self.decide_all(batch, deadline).await);
        }
        answers
    }

    /// Decides slices on the fast path in batches, one after another. If a batch gets no reply, all of its slices fail.
    pub(crate) async fn decide_batches_of_singles(
        &self,
        singles: &[Single<'_>],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let mut answers = Vec::new();
        for batch in singles.chunks(BATCH) {
            add(&mut answers, batch.len(), self.decide_singles(batch, deadline).await);
        }
        answers
    }

    /// Gives back units of meters whose keys may be in the same call.
    pub(crate) async fn give_back(
        &self,
        now: Timestamp,
        refunds: &[OwnedRefund],
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let Some(first) = refunds.first() else { return Ok(()) };
        let call = wire::refund_call(now, refunds, self.time);
        let reply = self.link.run(&REFUND, call, &first.claim.key, deadline).await?;
        match reply {
            redis::Value::Int(1) => Ok(()),
            redis::Value::Int(_) => {
                let corrupt = error::corrupt().at(self.link.address());
                // The script has given the others back.
                Err(if refunds.len() > 1 { corrupt.maybe_applied() } else { corrupt })
            }
            _ => Err(error::strange_reply().at(self.link.address())),
        }
    }

    /// Groups the items that may be in the same call: all of them on one server, those of one slot on a cluster.
    pub(crate) fn groups<T>(&self, items: Vec<T>, key: impl Fn(&T) -> &[u8]) -> Vec<Vec<T>> {
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

/// Adds the answers to a batch of `number` slices.
fn add(
    answers: &mut Vec<Result<Answer, StoreError>>,
    number: usize,
    decided: Result<Vec<Result<Answer, StoreError>>, StoreError>,
) {
    match decided {
        Ok(decided) if answers.is_empty() => *answers = decided,
        Ok(decided) => answers.extend(decided),
        Err(error) => answers.extend((0..number).map(|_| Err(error.clone()))),
    }
}
