//! The store if each check is a call of its own: a slice is encoded as one script call, and its reply is decoded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::error::{self, ERRORS};
use crate::servers::link::Link;
use crate::wire::codec::{self, Answers, OwnedClaims, slot_of_all};
use crate::wire::fast::{self, Single};
use crate::wire::fast_batch;
use crate::wire::keys::key_of;

/// The maximum number of slices in one script call: a server does nothing else while a script runs.
const BATCH: usize = 256;

/// The store without shared calls: each slice, and each batch of slices, is a call of its own. Clones share the connections.
///
/// Slices over several slots of a cluster are decided in `spread.rs`; units are given back in `give_back.rs`.
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

impl CounterStore for Calls {
    fn promises(&self) -> Promises {
        let decisions = if self.link.has_slots() { Decisions::ExactPerKey } else { Decisions::Exact };
        Promises::new(decisions, self.time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let deadline = self.deadline();
        let slice = self.owned(&claims);
        if self.link.has_slots() && slot_of_all(&slice).is_none() {
            return self.claim_spread(slice, deadline).await;
        }
        self.decide(slice, deadline).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Answers {
        let deadline = self.deadline();
        let slices: Vec<_> = slices.iter().map(|claims| self.owned(claims)).collect();
        if self.link.has_slots() {
            return self.claim_many_spread(slices, deadline).await;
        }
        self.decide_all(&slices, deadline).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.give_back_all(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.unlink_all(claims).await
    }
}

impl Calls {
    pub(crate) fn new(link: Link, config: RedisConfig) -> Self {
        let slack_millis = config.slack_millis();
        let RedisConfig { prefix, time, timeout, .. } = config;
        Self { link: Arc::new(link), prefix: prefix.into(), time, slack_millis, timeout }
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        deadline_after(self.timeout)
    }

    /// The claims with their keys, owned, so that a task can hold them.
    pub(crate) fn owned(&self, claims: &Claims<'_>) -> OwnedClaims {
        OwnedClaims::new(claims, |id| key_of(&self.prefix, id))
    }

    /// Decides one slice whose keys may be in the same call.
    pub(crate) async fn decide(&self, slice: OwnedClaims, deadline: Instant) -> Result<Answer, StoreError> {
        let Some(single) = Single::of_slice(&slice, self.time) else {
            let answer = self.decide_all(&[slice], deadline).await.pop();
            return answer.unwrap_or_else(|| Err(error::strange_reply()));
        };
        let decode = |reply| fast::decode(&single, &reply);
        self.send_and_decode(self.fast_call(&[single]), decode, deadline).await
    }

    /// Decides slices whose keys may be in the same call, in batches, one after another. If a batch gets no reply, all of its
    /// slices fail.
    pub(crate) async fn decide_all(&self, slices: &[OwnedClaims], deadline: Instant) -> Answers {
        let at = |failure: StoreError| failure.at(self.link.address());
        let mut answers = Vec::new();
        for batch in slices.chunks(BATCH) {
            let singles: Option<Vec<_>> =
                batch.iter().map(|slice| Single::of_slice(slice, self.time)).collect();
            let decided = match singles {
                Some(singles) => {
                    let decode = |reply| fast_batch::decode(&singles, &reply);
                    self.send_and_decode(self.fast_call(&singles), decode, deadline).await
                }
                None => {
                    let call = codec::claim_call(batch, self.time, self.slack_millis);
                    let decode = |reply| codec::decode(batch, self.time, reply);
                    self.send_and_decode(call, decode, deadline).await
                }
            };
            match decided {
                Ok(decided) => answers.extend(decided.into_iter().map(|answer| answer.map_err(at))),
                Err(failure) => answers.extend(vec![Err(failure); batch.len()]),
            }
        }
        answers
    }

    /// The call that decides these claims on the fast path.
    pub(crate) fn fast_call(&self, singles: &[Single<'_>]) -> Cmd {
        fast::claim_call(singles, self.slack_millis)
    }

    /// Sends a call and decodes the reply. It is not sent after the deadline: it would get no answer, and would close the
    /// connection that other calls share.
    async fn send_and_decode<T>(
        &self,
        call: Cmd,
        decode: impl FnOnce(Value) -> Result<T, StoreError>,
        deadline: Instant,
    ) -> Result<T, StoreError> {
        let reply = if Instant::now() >= deadline {
            Err(ERRORS.late().not_applied())
        } else {
            self.link.send(call, deadline).await
        };
        reply.and_then(decode).map_err(|failure| failure.at(self.link.address()))
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("address", &self.link.address())
            .field("prefix", &self.prefix)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
