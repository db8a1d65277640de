//! The store without shared calls: each slice is a call of its own.

use std::fmt;
use std::sync::Arc;

use ratelimit_core::{
    Answer, Claims, CounterStore, Decisions, Promises, Refund, StoreError, Time, Timestamp,
};
use redis::cmd;
use smallvec::SmallVec;

use crate::calls::Calls;
use crate::error;
use crate::fast::Single;
use crate::keys::key_of;
use crate::link::Link;
use crate::spread;
use crate::store_config::StoreConfig;
use crate::time_source::TimeSource;
use crate::wire::slot_of_all;

/// The store without shared calls: each slice, and each batch of slices, is a call of its own.
#[derive(Clone)]
pub(crate) struct Direct {
    calls: Arc<Calls>,
}

impl Direct {
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    pub(crate) fn new(link: Link, config: StoreConfig) -> Self {
        Self { calls: Arc::new(Calls::new(link, config)) }
    }

    /// The claims of these slices, if all of them can take the fast path on one server.
    fn singles<'a>(&self, slices: &'a [Claims<'a>]) -> Option<SmallVec<[Single<'a>; 1]>> {
        if self.calls.link.has_slots() {
            return None;
        }
        slices.iter().map(|claims| Single::of_claims(claims, self.calls.time())).collect()
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.calls.link.address())
            .field("prefix", &self.calls.prefix())
            .field("time", &self.calls.time())
            .finish_non_exhaustive()
    }
}

impl CounterStore for Direct {
    fn promises(&self) -> Promises {
        let decisions = if self.calls.link.has_slots() { Decisions::ExactPerKey } else { Decisions::Exact };
        let time = match self.calls.time() {
            TimeSource::Caller => Time::Caller,
            TimeSource::Server => Time::Server,
        };
        Promises::new(decisions, time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let deadline = self.calls.deadline();
        if let Some(singles) = self.singles(std::slice::from_ref(&claims)) {
            let mut answers = self.calls.decide_batches_of_singles(&singles, deadline).await;
            return answers.pop().unwrap_or_else(|| Err(error::strange_reply()));
        }
        let slice = self.calls.own(&claims);
        if self.calls.link.has_slots() && slot_of_all(&slice).is_none() {
            return spread::claim(self.calls.clone(), slice, deadline).await;
        }
        self.calls.decide(slice, deadline).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let deadline = self.calls.deadline();
        if let Some(singles) = self.singles(slices) {
            return self.calls.decide_batches_of_singles(&singles, deadline).await;
        }
        let slices: Vec<_> = slices.iter().map(|claims| self.calls.own(claims)).collect();
        if self.calls.link.has_slots() {
            return spread::claim_many(&self.calls, slices, deadline).await;
        }
        self.calls.decide_batches(&slices, deadline).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let deadline = self.calls.deadline();
        let refunds = refunds.iter().filter(|refund| refund.cost > 0);
        let refunds: Vec<_> = refunds.map(|refund| self.calls.own_refund(refund)).collect();
        let mut has_given = false;
        for group in self.calls.groups(refunds, |refund| &refund.claim.key) {
            let given = self.calls.give_back(now, &group, deadline).await;
            given.map_err(|failure| if has_given { failure.maybe_applied() } else { failure })?;
            has_given = true;
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = self.calls.deadline();
        let keys: Vec<_> = claims.iter().map(|claim| key_of(self.calls.prefix(), &claim.id)).collect();
        for group in self.calls.groups(keys, Vec::as_slice) {
            let mut unlink = cmd("UNLINK");
            unlink.arg(&group);
            let first = group.first().map_or(&[][..], Vec::as_slice);
            self.calls.link.send(unlink, first, deadline).await?;
        }
        Ok(())
    }
}
