//! What to give back and what to charge when the true cost of a decision is known.

use smallvec::SmallVec;

use super::boxed::AskedLimit;
use super::charges::{Charge, Charges};
use super::key_bytes::ChargedKeys;
use super::{Decision, LimitStatus};
use crate::{Algorithm, Timestamp};

/// The difference between what was taken and the true cost.
#[derive(Default)]
pub(crate) struct Settlement {
    /// Units that were taken although they were not used: no longer in the list.
    pub(crate) returned: Charges,
    /// Units that were used beyond what was taken: in the list without receipts.
    pub(crate) added: Charges,
}

impl Decision<'_> {
    /// The keys that were charged.
    pub(crate) fn charged_keys(&self) -> ChargedKeys {
        if self.charged { self.parts.keys() } else { ChargedKeys::new() }
    }

    /// The difference to the true cost, which `units` returns for each limit; `None` leaves a limit as it is. `keys` are the
    /// decision's [charged keys](Self::charged_keys). What is charged beyond the estimate counts in the periods that contain
    /// `now`.
    pub(crate) fn settlement(
        &self,
        keys: &ChargedKeys,
        now: Timestamp,
        units: impl Fn(LimitStatus<'_>) -> Option<u64>,
    ) -> Settlement {
        let mut settlement = Settlement::default();
        if keys.is_empty() {
            return settlement;
        }
        // Before the list is locked, because this is the caller's code.
        let units: SmallVec<[Option<u64>; 4]> = self.each().map(units).collect();
        let list = self.list(keys);
        let mut list = list.lock();
        for (index, units) in units.into_iter().enumerate() {
            let AskedLimit { limit, .. } = self.parts.asked_limit(index);
            let Some(units) = units.filter(|_| !limit.is_ban()) else { continue };
            if units > 0 && limit.algorithm() == Algorithm::Concurrency {
                continue; // held until it is released
            }
            let of_limit = list.iter().filter(|charge| charge.limit == index);
            let taken = of_limit.fold(0_u64, |sum, charge| sum.saturating_add(charge.units));
            if units < taken {
                self.take_back(keys, &mut list, (index, taken - units), &mut settlement.returned);
            } else if units > taken {
                let period = limit.window_at(now).map(Box::new);
                let more = Charge { limit: index, units: units - taken, receipt: None, period };
                list.push(more.clone());
                settlement.added.push(more);
            }
        }
        settlement
    }
}
