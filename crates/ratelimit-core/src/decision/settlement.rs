//! What to refund and what to charge when the true cost of a decision is known.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use super::parts::Claimed;
use super::short_key::KeyBytes;
use super::{Decision, LimitStatus};
use crate::bounds::{MAX_LOG_UNITS, MAX_UNITS};
use crate::meter::MAX_DEBT;
use crate::receipt::{is_marked, unmarked};
use crate::{
    Algorithm, Answer, Claim, ErrorKind, Limit, Log, Meter, MeterId, Refund, StoreError, Time, Timestamp,
    Verdict,
};

/// The keys that a decision has charged; empty if it has charged nothing.
pub(crate) type ChargedKeys = SmallVec<[KeyBytes; 1]>;

/// The difference between what was charged and the true cost.
pub(crate) struct Settlement<'d> {
    /// Units that were charged although they were not used.
    pub(crate) refunds: SmallVec<[Refund<'d>; 4]>,
    /// Units that were used beyond what was charged.
    charges: SmallVec<[Charge<'d>; 2]>,
    namespace: &'d str,
}

struct Charge<'d> {
    /// The limit as it is now.
    limit: Cow<'d, Limit>,
    key: &'d [u8],
    cost: u64,
}

impl Settlement<'_> {
    /// The units to charge now, whether they fit or not.
    pub(crate) fn claims(&self) -> SmallVec<[Claim<'_>; 4]> {
        let claims = self.charges.iter().map(|Charge { limit, key, cost }| Claim {
            id: MeterId { namespace: self.namespace, scope: limit.scope(), key },
            cost: *cost,
            meter: without_bound(limit.meter_for(key)),
        });
        claims.collect()
    }
}

/// The meter for a charge that has to be made whether it fits or not. A charge of a log deletes the oldest units beyond the
/// log's limit. But the limit of a decision may be smaller than the one that is in force now, and more units than either may be
/// live while leases are renewed.
fn without_bound(meter: Meter) -> Meter {
    match meter {
        Meter::Log(log) => Meter::Log(Log::new(MAX_LOG_UNITS, log.window()).unwrap_or(log)),
        Meter::Window(_) | Meter::Bucket(_) => meter,
    }
}

/// How many units of a charge a meter counts: a log keeps no more than its limit of a forced one, and the others no more than
/// their bounds. To refund more would take units of others.
fn counted(cost: u64, meter: Meter) -> u64 {
    match meter {
        Meter::Log(log) => cost.min(log.limit()),
        Meter::Window(_) => cost.min(MAX_UNITS),
        Meter::Bucket(bucket) => cost.min(MAX_UNITS).min(MAX_DEBT / bucket.interval()),
    }
}

impl Decision<'_> {
    /// The keys that were charged.
    pub(crate) fn charged_keys(&self) -> ChargedKeys {
        if self.charged { self.parts.keys() } else { ChargedKeys::new() }
    }

    /// The difference to the true cost, which `units` returns for each limit. `keys` are the decision's
    /// [charged keys](Self::charged_keys). What is charged beyond the estimate counts in the windows that contain `now`.
    pub(crate) fn settlement<'d>(
        &'d self,
        keys: &'d ChargedKeys,
        now: Timestamp,
        units: impl Fn(LimitStatus<'_>) -> u64,
    ) -> Settlement<'d> {
        let namespace = self.parts.namespace();
        let mut settlement = Settlement { refunds: SmallVec::new(), charges: SmallVec::new(), namespace };
        for (index, verdict) in self.parts.verdicts().iter().enumerate() {
            let Claimed { key_index, cost, limit } = self.parts.claimed(index);
            let Some(key) = keys.get(key_index) else { break };
            if limit.is_ban() {
                continue;
            }
            // The limit is the one that was charged, so this is the meter that was charged.
            let meter = limit.meter_for(key);
            let units = units(self.status(index));
            if units > 0 && limit.algorithm() == Algorithm::Concurrency {
                continue; // held until it is released
            }
            let charged = counted(cost, meter);
            if units < charged {
                let id = MeterId { namespace, scope: limit.scope(), key };
                let receipt = verdict.receipt;
                settlement.refunds.push(Refund { id, cost: charged - units, meter, receipt });
            } else if units > cost {
                let more = match meter {
                    // More would make the log as large as the cost. This many leave nothing of the limit.
                    Meter::Log(log) => (units - cost).min(log.limit()),
                    Meter::Window(_) | Meter::Bucket(_) => units - cost,
                };
                let limit = limit.window_at(now).map_or(Cow::Borrowed(limit), Cow::Owned);
                settlement.charges.push(Charge { limit, key, cost: more });
            }
        }
        settlement
    }

    /// The leases of what the decision has charged under concurrency limits. `keys` are the decision's
    /// [charged keys](Self::charged_keys).
    pub(crate) fn leases<'d>(&'d self, keys: &'d ChargedKeys) -> Leases<'d> {
        let mut leases = Leases { claims: SmallVec::new(), refunds: SmallVec::new(), ends: None };
        for (index, verdict) in self.parts.verdicts().iter().enumerate() {
            let Claimed { key_index, cost, limit } = self.parts.claimed(index);
            let Some(key) = keys.get(key_index) else { break };
            let Meter::Log(log) = limit.meter_for(key) else { continue };
            if limit.algorithm() != Algorithm::Concurrency || cost == 0 {
                continue;
            }
            let id = MeterId { namespace: self.parts.namespace(), scope: limit.scope(), key };
            let (meter, receipt) = (Meter::Log(log), verdict.receipt);
            let cost = counted(cost, meter);
            leases.claims.push(Claim { id, cost, meter: without_bound(meter) });
            leases.refunds.push(Refund { id, cost, meter, receipt });
            let end = unmarked(verdict.receipt) + limit.period();
            leases.ends = Some(leases.ends.map_or(end, |earlier: Timestamp| earlier.min(end)));
        }
        leases
    }

    /// How often to renew the units that it holds under concurrency limits: a third of the shortest lease. [`Duration::MAX`] if
    /// it holds nothing.
    pub(crate) fn renewal_interval(&self) -> Duration {
        self.held_leases().min().map_or(Duration::MAX, |lease| lease / 3)
    }

    /// The lengths of the leases of what it holds.
    pub(crate) fn held_leases(&self) -> impl Iterator<Item = Duration> {
        let is_held = |limit: &LimitStatus<'_>| {
            self.charged && limit.cost() > 0 && limit.rule().algorithm() == Algorithm::Concurrency
        };
        self.each().filter(is_held).map(|limit| limit.rule().period())
    }

    /// Replaces the receipts of the [leases](Self::leases) by those of their renewals, in the same order.
    pub(crate) fn set_leases(&mut self, renewals: &[Verdict]) {
        let mut receipts = renewals.iter().map(|renewal| renewal.receipt);
        for index in 0..self.parts.verdicts().len() {
            let Claimed { cost, limit, .. } = self.parts.claimed(index);
            if limit.algorithm() == Algorithm::Concurrency && cost > 0 {
                let (Some(verdict), Some(receipt)) = (self.parts.verdict_mut(index), receipts.next()) else {
                    break;
                };
                verdict.receipt = receipt;
            }
        }
    }
}

/// What a decision holds under concurrency limits.
pub(crate) struct Leases<'d> {
    /// Charge the same units again.
    pub(crate) claims: SmallVec<[Claim<'d>; 4]>,
    /// Give back the units that are held.
    pub(crate) refunds: SmallVec<[Refund<'d>; 4]>,
    /// When the first of them ends.
    pub(crate) ends: Option<Timestamp>,
}

impl Leases<'_> {
    /// The result of a renewal that has nothing to do: `true` if the decision holds nothing, `false` if a lease has ended.
    /// `None` if the leases can be renewed, or if the store's clock decides whether they can: only its answer shows that.
    pub(crate) fn outcome_without_renewal(&self, now: Timestamp, time: Time) -> Option<bool> {
        match self.ends {
            None => Some(true),
            Some(end) if end < now && time != Time::Server => Some(false),
            Some(_) => None,
        }
    }

    /// Whether this renewal came in time. If it did not, its own units have to be given back instead of the old ones, and
    /// [`refunds`](Self::refunds) does so afterwards.
    ///
    /// # Errors
    /// If the store, or a layer on it, has charged nothing.
    pub(crate) fn complete(&mut self, renewal: &Answer) -> Result<bool, StoreError> {
        if !renewal.charged {
            let message =
                "the lease was not renewed: the store did not answer, and its fallback counts nothing";
            return Err(StoreError::new("a fallback", ErrorKind::Unreachable, message).not_applied());
        }
        // A fallback has another clock than the store. So has each node of a cluster: a lease is judged by the clock of its own.
        let pairs = || self.refunds.iter().zip(&renewal.verdicts);
        let is_elsewhere = pairs().any(|(held, new)| is_marked(held.receipt) != is_marked(new.receipt));
        let is_late = |(held, new): (&Refund<'_>, &Verdict)| match held.meter {
            Meter::Log(log) => {
                unmarked(held.receipt) + Duration::from_nanos(log.window()) < unmarked(new.receipt)
            }
            Meter::Window(_) | Meter::Bucket(_) => false,
        };
        let is_in_time = is_elsewhere || !pairs().any(is_late);
        if !is_in_time {
            for (refund, verdict) in self.refunds.iter_mut().zip(&renewal.verdicts) {
                refund.receipt = verdict.receipt;
            }
        }
        Ok(is_in_time)
    }
}
