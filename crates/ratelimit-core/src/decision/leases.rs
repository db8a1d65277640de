//! What a decision holds under concurrency limits.

use std::time::Duration;

use super::charges::Charges;
use super::key_bytes::ChargedKeys;
use super::taken::counted;
use super::{Decision, LimitStatus};
use crate::{Algorithm, Answer, ErrorKind, Receipt, StoreError, Time, Timestamp};

/// The units that a decision holds under concurrency limits, as they were when a renewal began.
pub(crate) struct Leases {
    held: Charges,
    /// How long each lease lasts.
    lengths: Vec<Duration>,
    /// Whether units were given back.
    is_gone: bool,
}

impl Decision<'_> {
    /// `keys` are the decision's [charged keys](Self::charged_keys).
    pub(crate) fn leases(&self, keys: &ChargedKeys) -> Leases {
        let mut leases = Leases { held: Charges::new(), lengths: Vec::new(), is_gone: false };
        if keys.is_empty() {
            return leases;
        }
        let list = self.list(keys);
        let list = list.lock();
        for status in self.each().filter(is_lease) {
            let index = status.index();
            if self.charged_at(index, keys).is_none_or(|(cost, meter)| counted(cost, meter) == 0) {
                continue;
            }
            match list.iter().find(|charge| charge.limit == index && charge.receipt.is_some()) {
                Some(charge) => {
                    leases.held.push(charge.clone());
                    leases.lengths.push(status.rule().period());
                }
                None => leases.is_gone = true,
            }
        }
        leases
    }

    /// How often to renew the units that it holds under concurrency limits: a third of the shortest lease. [`Duration::MAX`] if
    /// it holds nothing.
    pub(crate) fn renewal_interval(&self) -> Duration {
        self.lease_lengths().min().map_or(Duration::MAX, |lease| lease / 3)
    }

    /// The lengths of the leases of what it has taken under concurrency limits.
    pub(crate) fn lease_lengths(&self) -> impl Iterator<Item = Duration> {
        let leases = self.each().filter(|limit| self.charged && is_lease(limit));
        leases.map(|limit| limit.rule().period())
    }

    /// Records a renewal of these leases. Returns whether all of them are renewed, and what has to be refunded: the old
    /// units, or the new ones if the renewal came too late, or if the old ones were given back or renewed meanwhile.
    ///
    /// # Errors
    /// If the store, or a layer on it, has charged nothing.
    pub(crate) fn renewed(
        &self,
        keys: &ChargedKeys,
        leases: Leases,
        renewal: &Answer,
    ) -> Result<(bool, Charges), StoreError> {
        if !renewal.charged {
            let message =
                "the lease was not renewed: the store did not answer, and its fallback counts nothing";
            return Err(StoreError::new("a fallback", ErrorKind::Unreachable, message).not_applied());
        }
        let is_late = leases.are_late(renewal);
        let (mut is_held, mut back) = (!is_late, leases.held);
        let list = self.list(keys);
        let mut list = list.lock();
        for (old, verdict) in back.iter_mut().zip(&renewal.verdicts) {
            let mut of_limit = list.iter_mut().filter(|charge| charge.limit == old.limit);
            let place = of_limit.find(|charge| charge.receipt.is_some());
            match place {
                Some(held) if !is_late && held.receipt == old.receipt => held.receipt = Some(verdict.receipt),
                place => {
                    // It may be held by a renewal of a clone.
                    is_held &= place.is_some();
                    old.receipt = Some(verdict.receipt);
                }
            }
        }
        Ok((is_held, back))
    }
}

fn is_lease(limit: &LimitStatus<'_>) -> bool {
    limit.cost() > 0 && limit.rule().algorithm() == Algorithm::Concurrency
}

impl Leases {
    /// What to charge again.
    pub(crate) fn charges(&self) -> &Charges {
        &self.held
    }

    /// The result of a renewal that has nothing to do: `true` if the decision has taken nothing, `false` if a lease has ended
    /// or was given back. `None` if the leases can be renewed, or if the store's clock decides whether they can: only its answer
    /// shows that.
    pub(crate) fn outcome_without_renewal(&self, now: Timestamp, time: Time) -> Option<bool> {
        let has_ended = |(receipt, length): (Receipt, Duration)| receipt.instant() + length < now;
        if self.is_gone || time != Time::Server && self.ends().any(has_ended) {
            return Some(false);
        }
        self.held.is_empty().then_some(true)
    }

    fn ends(&self) -> impl Iterator<Item = (Receipt, Duration)> {
        let receipts = self.held.iter().filter_map(|charge| charge.receipt);
        receipts.zip(self.lengths.iter().copied())
    }

    /// Whether this renewal came after the end of a lease.
    fn are_late(&self, renewal: &Answer) -> bool {
        // A fallback has another clock than the store. So has each node of a cluster: a lease is judged by the clock of its own.
        let pairs = || self.ends().zip(renewal.verdicts.iter().map(|verdict| verdict.receipt));
        let is_elsewhere = pairs().any(|((old, _), new)| old.is_of_fallback() != new.is_of_fallback());
        !is_elsewhere && pairs().any(|((old, length), new)| old.instant() + length < new.instant())
    }
}
