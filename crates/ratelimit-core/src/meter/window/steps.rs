//! The steps of a claim one by one, as `Meter` calls them, and the refund.

use super::{Window, WindowState};
use crate::meter::charged::Charged;
use crate::{Mode, Receipt, Timestamp, Verdict};

impl Window {
    pub(in crate::meter) fn fits(&self, state: &WindowState, cost: u64, now: Timestamp) -> bool {
        cost <= self.remaining(&self.view(state.at, &state.counts, now))
    }

    pub(in crate::meter) fn charge(&self, state: &mut WindowState, cost: u64, now: Timestamp) -> Charged {
        let WindowState { at, counts } = state;
        let mut view = self.view(*at, counts, now);
        self.charge_seen(at, counts, &mut view, cost, Mode::Force);
        Charged { receipt: Receipt::at(view.now), ready_at: now }
    }

    pub(in crate::meter) fn verdict(
        &self,
        state: &WindowState,
        cost: u64,
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let WindowState { at, counts } = state;
        let view = self.view(*at, counts, now);
        match charged {
            Some(charged) => Verdict {
                reset_at: self.resets(counts, &view, now),
                ready_at: charged.ready_at,
                receipt: charged.receipt,
                ..self.verdict_if_charged(&view, now)
            },
            None => self.verdict_if_not(counts, &view, cost, now),
        }
    }

    pub(in crate::meter) fn refund(&self, state: &mut WindowState, cost: u64, receipt: Receipt) {
        let age = self.place(state.at).0.checked_sub(self.place(receipt.instant()).0);
        let age = age.and_then(|age| usize::try_from(age).ok());
        if let Some(count) = age.and_then(|age| state.counts.get_mut(age)) {
            *count = count.saturating_sub(cost);
        }
    }
}
