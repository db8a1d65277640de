//! The script calls: slices are encoded as one call, and its reply is decoded into answers.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::store::Time;
use ratelimit_core::store::{Answer, Claims, Refund};
use ratelimit_core::{StoreError, Timestamp};
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::error::{self, ERRORS};
use crate::servers::link::Link;
use crate::wire::codec::{self, Answers, OwnedClaims, OwnedRefund};
use crate::wire::fast::{self, Single};
use crate::wire::keys::{by_slot, key_of, slot_of};

/// The maximum number of slices in one script call: a server does nothing else while a script runs.
const BATCH: usize = 256;

/// The store without shared calls: each slice, and each batch of slices, is a call of its own. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) link: Arc<Link>,
    /// The prefix of every key.
    pub(crate) prefix: Arc<str>,
    /// Whose clock decides.
    pub(crate) time: Time,
    slack_millis: u64,
    timeout: Duration,
}

impl Calls {
    pub(crate) fn new(link: Link, config: RedisConfig) -> Self {
        let slack_millis = config.slack_millis();
        let RedisConfig { prefix, time, timeout, .. } = config;
        Self { link: Arc::new(link), prefix: prefix.into(), time, slack_millis, timeout }
    }

    /// The claims with their keys, owned, so that a task can hold them.
    pub(crate) fn own(&self, claims: &Claims<'_>) -> OwnedClaims {
        OwnedClaims::new(claims, |id| key_of(&self.prefix, id))
    }

    /// The refund with its key, owned, so that a task can hold it.
    pub(crate) fn own_refund(&self, refund: &Refund<'_>) -> OwnedRefund {
        OwnedRefund::new(refund, |id| key_of(&self.prefix, id))
    }

    /// The call that decides these claims on the fast path.
    pub(crate) fn call_of(&self, singles: &[Single<'_>]) -> redis::Cmd {
        fast::claim_call(singles, self.slack_millis)
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        deadline_after(self.timeout)
    }

    /// Decides slices whose keys may be in the same call, in batches, one after another. If a batch gets no reply, all of its
    /// slices fail.
    pub(crate) async fn decide_all(&self, slices: &[OwnedClaims], deadline: Instant) -> Answers {
        let mut answers = Vec::new();
        for batch in slices.chunks(BATCH) {
            let singles: Option<Vec<_>> =
                batch.iter().map(|slice| Single::of_slice(slice, self.time)).collect();
            answers.extend(match singles {
                Some(singles) => {
                    let read = |reply| fast::answers(&singles, &reply);
                    self.answers(self.call_of(&singles), read, batch.len(), deadline).await
                }
                None => {
                    let call = codec::claim_call(batch, self.time, self.slack_millis);
                    let read = |reply| codec::answers(batch, self.time, reply);
                    self.answers(call, read, batch.len(), deadline).await
                }
            });
        }
        answers
    }

    /// The answers to a call for `number` slices. It is not sent after the deadline: it would get no answer, and would close
    /// the connection that other calls share.
    async fn answers(
        &self,
        call: Cmd,
        read: impl FnOnce(Value) -> Result<Answers, StoreError>,
        number: usize,
        deadline: Instant,
    ) -> Answers {
        let at = |failure: StoreError| failure.at(self.link.address());
        if Instant::now() >= deadline {
            return vec![Err(at(ERRORS.late().not_applied())); number];
        }
        match self.link.send(call, deadline).await.and_then(read) {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(at)).collect(),
            Err(failure) => vec![Err(at(failure)); number],
        }
    }

    /// Decides one slice whose keys may be in the same call.
    pub(crate) async fn decide(&self, slice: OwnedClaims, deadline: Instant) -> Result<Answer, StoreError> {
        self.decide_all(&[slice], deadline).await.pop().unwrap_or_else(|| Err(error::strange_reply()))
    }

    /// Gives back units of meters whose keys may be in the same call.
    pub(crate) async fn give_back(
        &self,
        now: Timestamp,
        refunds: &[OwnedRefund],
        deadline: Instant,
    ) -> Result<(), StoreError> {
        if refunds.is_empty() {
            return Ok(());
        }
        let call = codec::refund_call(now, refunds, self.time);
        let failure = match self.link.send(call, deadline).await? {
            Value::Int(1) => return Ok(()),
            Value::Int(_) => ERRORS.corrupt_value(),
            _ => error::strange_reply(),
        };
        // The script has given the others back.
        let failure = if refunds.len() > 1 { failure.maybe_applied() } else { failure };
        Err(failure.at(self.link.address()))
    }

    /// Groups the items that may be in the same call: all of them on one server, those of one slot on a cluster.
    pub(crate) fn groups<T>(&self, items: Vec<T>, key: impl Fn(&T) -> &[u8]) -> Vec<Vec<T>> {
        if self.link.has_slots() {
            return by_slot(items.into_iter().map(|item| (slot_of(key(&item)), item)));
        }
        if items.is_empty() { Vec::new() } else { vec![items] }
    }
}
