//! The store if each check is a call of its own: no check waits to share a call with others.

use std::fmt;

use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use redis::cmd;

use crate::decide::calls::Calls;
use crate::decide::spread;
use crate::wire::codec::{Answers, slot_of_all};
use crate::wire::keys::key_of;

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.link.address())
            .field("prefix", &self.prefix)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

impl CounterStore for Calls {
    fn promises(&self) -> Promises {
        let decisions = if self.link.has_slots() { Decisions::ExactPerKey } else { Decisions::Exact };
        Promises::new(decisions, self.time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let deadline = self.deadline();
        let slice = self.own(&claims);
        if self.link.has_slots() && slot_of_all(&slice).is_none() {
            return spread::claim(self, slice, deadline).await;
        }
        self.decide(slice, deadline).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Answers {
        let deadline = self.deadline();
        let slices: Vec<_> = slices.iter().map(|claims| self.own(claims)).collect();
        if self.link.has_slots() {
            return spread::claim_many(self, slices, deadline).await;
        }
        self.decide_all(&slices, deadline).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let refunds = refunds.iter().filter(|refund| refund.cost > 0);
        let refunds: Vec<_> = refunds.map(|refund| self.own_refund(refund)).collect();
        let groups = self.groups(refunds, |refund| &refund.claim.key).into_iter();
        spread::all(groups.map(|group| {
            let calls = self.clone();
            async move { calls.give_back(now, &group, deadline).await }
        }))
        .await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let keys: Vec<_> = claims.iter().map(|claim| key_of(&self.prefix, &claim.id)).collect();
        let groups = self.groups(keys, Vec::as_slice).into_iter();
        spread::all(groups.map(|group| {
            let link = self.link.clone();
            async move {
                let mut unlink = cmd("UNLINK");
                unlink.arg(group);
                link.send(unlink, deadline).await.map(drop)
            }
        }))
        .await
    }
}
