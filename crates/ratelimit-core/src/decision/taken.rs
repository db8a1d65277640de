//! What a check has taken and not given back: no unit is given back twice, by whichever of a decision and its clones.

use smallvec::SmallVec;

use super::Decision;
use super::boxed::AskedLimit;
use super::charges::{Charge, Charges, Taken};
use super::key_bytes::{ChargedKeys, KeyBytes};
use crate::bounds::MAX_UNITS;
use crate::meter::MAX_DEBT;
use crate::{Answer, Claim, Limit, Log, Meter, MeterId, Receipt, Refund, Timestamp};

impl Decision<'_> {
    /// Begins the list, if there is anything to give back.
    pub(super) fn begin_list(&self) {
        if self.charged {
            self.list(&self.charged_keys());
        }
    }

    /// The list, which begins with what the store has charged for the decision.
    pub(super) fn list(&self, keys: &ChargedKeys) -> Taken {
        let begun = || {
            let mut charges = Charges::new();
            for (limit, verdict) in self.parts.verdicts().enumerate() {
                let Some((cost, meter)) = self.charged_at(limit, keys) else { continue };
                let units = counted(cost, meter);
                for (units, receipt) in [(cost - units, None), (units, Some(verdict.receipt))] {
                    if units > 0 {
                        charges.push(Charge { limit, units, receipt, period: None });
                    }
                }
            }
            charges
        };
        self.parts.taken().list(begun)
    }

    /// The cost of this limit, and the meter that it has charged; `None` if it charges nothing, as a ban.
    pub(super) fn charged_at(&self, index: usize, keys: &ChargedKeys) -> Option<(u64, Meter)> {
        let AskedLimit { key_index, cost, limit } = self.parts.asked_limit(index);
        if limit.is_ban() { None } else { Some((cost, limit.meter_for(keys.get(key_index)?))) }
    }

    /// The limit of a charge as it was charged, and its key.
    fn place<'d>(&'d self, charge: &'d Charge, keys: &'d ChargedKeys) -> Option<(&'d Limit, &'d KeyBytes)> {
        let AskedLimit { key_index, limit, .. } = self.parts.asked_limit(charge.limit);
        Some((charge.period.as_deref().unwrap_or(limit), keys.get(key_index)?))
    }

    /// What to refund, so that these charges are given back.
    pub(crate) fn refunds<'d>(
        &'d self,
        keys: &'d ChargedKeys,
        back: &'d Charges,
    ) -> SmallVec<[Refund<'d>; 4]> {
        let refund = |charge: &'d Charge| {
            let (limit, key) = self.place(charge, keys)?;
            let id = MeterId { namespace: self.parts.namespace(), scope: limit.scope(), key };
            Some(Refund { id, cost: charge.units, meter: limit.meter_for(key), receipt: charge.receipt? })
        };
        back.iter().filter_map(refund).collect()
    }

    /// What to claim, whether it fits or not, so that these charges are made: one claim for each.
    pub(crate) fn claims<'d>(
        &'d self,
        keys: &'d ChargedKeys,
        charges: &'d Charges,
    ) -> SmallVec<[Claim<'d>; 4]> {
        let claim = |charge: &'d Charge| {
            let (limit, key) = self.place(charge, keys)?;
            let id = MeterId { namespace: self.parts.namespace(), scope: limit.scope(), key };
            let meter = limit.meter_for(key);
            Some(Claim { id, cost: counted(charge.units, meter), meter: without_bound(meter) })
        };
        charges.iter().filter_map(claim).collect()
    }

    /// Takes this many units of a limit out of the list and adds them to `back`: first those that no meter counts, then
    /// the newest.
    pub(super) fn take_back(
        &self,
        keys: &ChargedKeys,
        list: &mut Charges,
        (limit, mut units): (usize, u64),
        back: &mut Charges,
    ) {
        for is_counted in [false, true] {
            let of_limit =
                |charge: &&mut Charge| charge.limit == limit && charge.receipt.is_some() == is_counted;
            for charge in list.iter_mut().rev().filter(of_limit) {
                let part = Charge { units: charge.units.min(units), ..charge.clone() };
                units -= part.units;
                charge.units -= part.units;
                if let (Some(receipt), Some((limit, key))) = (charge.receipt, self.place(charge, keys)) {
                    charge.receipt = Some(receipt_of_rest(receipt, limit.meter_for(key), part.units));
                }
                back.push(part);
            }
        }
        for list in [list, back] {
            list.retain(|charge| charge.units > 0);
        }
    }

    /// Puts charges back that the store has certainly not refunded.
    pub(crate) fn put_back(&self, keys: &ChargedKeys, charges: Charges) {
        self.list(keys).lock().extend(charges);
    }

    /// Records that the store has charged what was [claimed](Self::claims) for `added`, which is in the list without
    /// receipts. Returns what was given back meanwhile, which has to be refunded.
    pub(crate) fn confirm(&self, keys: &ChargedKeys, added: &Charges, answer: &Answer) -> Charges {
        let mut back = Charges::new();
        let list = self.list(keys);
        let mut list = list.lock();
        for (charge, verdict) in added.iter().zip(&answer.verdicts) {
            let Some((limit, key)) = self.place(charge, keys) else { continue };
            let units = counted(charge.units, limit.meter_for(key));
            let kept = take_uncounted(&mut list, charge.limit, units);
            list.push(Charge { units, receipt: Some(verdict.receipt), ..charge.clone() });
            if kept < units {
                self.take_back(keys, &mut list, (charge.limit, units - kept), &mut back);
            }
        }
        back
    }

    /// Removes charges that the store has certainly not made.
    pub(crate) fn withdraw(&self, keys: &ChargedKeys, added: &Charges) {
        let list = self.list(keys);
        let mut list = list.lock();
        for charge in added {
            take_uncounted(&mut list, charge.limit, charge.units);
        }
    }
}

/// Removes up to this many units of a limit that no meter counts. Returns how many.
fn take_uncounted(list: &mut Charges, limit: usize, units: u64) -> u64 {
    let mut left = units;
    for charge in list.iter_mut().filter(|charge| charge.limit == limit && charge.receipt.is_none()) {
        let part = charge.units.min(left);
        (charge.units, left) = (charge.units - part, left - part);
    }
    list.retain(|charge| charge.units > 0);
    units - left
}

/// The receipt of what is left of a charge after its last units were given back. The units of a bucket drain one after
/// another, and a receipt is the end of the last one; the other meters count all units of a charge at one instant.
fn receipt_of_rest(receipt: Receipt, meter: Meter, back: u64) -> Receipt {
    let Meter::Bucket(bucket) = meter else { return receipt };
    let earlier = back.saturating_mul(bucket.interval());
    receipt.moved_to(Timestamp::derived(receipt.instant().as_nanos().saturating_sub(earlier)))
}

/// The meter for a charge that has to be made whether it fits or not. A charge of a log deletes the oldest units beyond the
/// log's limit. But the limit of a decision may be smaller than the one that is in force now, and more units than either may be
/// live while leases are renewed.
fn without_bound(meter: Meter) -> Meter {
    match meter {
        Meter::Log(log) => Meter::Log(Log::new(crate::bounds::MAX_LOG_UNITS, log.window()).unwrap_or(log)),
        Meter::Window(_) | Meter::Bucket(_) => meter,
    }
}

/// How many units of a charge a meter counts: a log keeps no more than its limit of a forced one, and the others no more than
/// their bounds. To refund more would take units of others.
pub(super) fn counted(cost: u64, meter: Meter) -> u64 {
    match meter {
        Meter::Log(log) => cost.min(log.limit()),
        Meter::Window(_) => cost.min(MAX_UNITS),
        Meter::Bucket(bucket) => cost.min(MAX_UNITS).min(MAX_DEBT / bucket.interval()),
    }
}
