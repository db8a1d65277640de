//! Gives units back, and resets meters.

use ratelimit_core::store::{Claims, Refund};
use ratelimit_core::{StoreError, Timestamp};
use redis::{Value, cmd};
use tokio::time::Instant;

use crate::decide::calls::Calls;
use crate::decide::spread::all;
use crate::error::{self, ERRORS};
use crate::wire::codec::{self, OwnedRefund};
use crate::wire::keys::{by_slot, key_of, slot_of};

impl Calls {
    /// Gives back units of any meters.
    pub(crate) async fn give_back_all(
        &self,
        now: Timestamp,
        refunds: &[Refund<'_>],
    ) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let refunds = refunds.iter().filter(|refund| refund.cost > 0);
        // Owned, so that a task can hold them.
        let refunds: Vec<_> =
            refunds.map(|refund| OwnedRefund::new(refund, |id| key_of(&self.prefix, id))).collect();
        let groups = self.groups(refunds, |refund| &refund.claim.key).into_iter();
        all(groups.map(|group| {
            let calls = self.clone();
            async move { calls.give_back(now, &group, deadline).await }
        }))
        .await
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

    /// Removes the meters of these claims.
    pub(crate) async fn unlink_all(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let keys: Vec<_> = claims.iter().map(|claim| key_of(&self.prefix, &claim.id)).collect();
        let groups = self.groups(keys, Vec::as_slice).into_iter();
        all(groups.map(|group| {
            let link = self.link.clone();
            async move {
                let mut unlink = cmd("UNLINK");
                unlink.arg(group);
                link.send(unlink, deadline).await.map(drop)
            }
        }))
        .await
    }

    /// Groups the items that may be in the same call: all of them on one server, those of one slot on a cluster.
    fn groups<T>(&self, items: Vec<T>, key: impl Fn(&T) -> &[u8]) -> Vec<Vec<T>> {
        if self.link.has_slots() {
            return by_slot(items.into_iter().map(|item| (slot_of(key(&item)), item)));
        }
        if items.is_empty() { Vec::new() } else { vec![items] }
    }
}
