//! Determines the true cost of a request, at each of the moments at which it may be settled.

use http::Response;
use ratelimit_core::meter::MAX_UNITS;
use smallvec::SmallVec;

use super::pending::{Pending, TrueCosts};
use crate::charge::{Outcome, When};
use crate::charged::Recorded;
use crate::cost::number;
use crate::true_cost::{Source, per_time};
use crate::{End, Settle};

/// The indices of checks that are not settled yet.
pub(super) type NotSettled = SmallVec<[usize; 2]>;

impl Pending {
    /// When the service has answered: the costs that are known now, and the checks whose cost is known when the body ends.
    pub(super) fn at_response<B>(&self, answer: &mut Response<B>) -> (TrueCosts, NotSettled) {
        let outcome = Outcome::Answered {
            status: answer.status(),
            headers: answer.headers(),
            extensions: answer.extensions(),
        };
        let (mut costs, unsettled) = self.by_outcome(outcome);
        let mut open = NotSettled::new();
        for (place, settle) in unsettled {
            let Source::Header { name, .. } = &settle.source else {
                open.push(place);
                continue;
            };
            let units = number(answer.headers(), name);
            costs.push((place, units.map_or_else(|| self.rule(place, settle), |units| units.min(MAX_UNITS))));
        }
        // Even if the request was refunded or not counted. A layer around this one still needs those of its policies.
        for (_, name) in self.policies.taken.iter().filter(|(place, _)| !self.before.contains(*place)) {
            answer.headers_mut().remove(name);
        }
        (costs, open)
    }

    /// When there will be no response.
    pub(super) fn at_no_response(&self, outcome: Outcome<'_>) -> TrueCosts {
        self.is_cut_short();
        let (mut costs, unsettled) = self.by_outcome(outcome);
        let open: NotSettled = unsettled.iter().map(|(place, _)| *place).collect();
        costs.extend(self.without_end(&open));
        costs
    }

    /// What the outcome decides by itself, and the checks whose policies settle.
    fn by_outcome(&self, outcome: Outcome<'_>) -> (TrueCosts, SmallVec<[(usize, &Settle); 2]>) {
        let (mut costs, mut unsettled) = (TrueCosts::new(), SmallVec::new());
        for (place, check) in self.checks.iter().enumerate() {
            let policy = check.policy(&self.policies);
            let is_charged = match policy.when() {
                When::Before => true,
                When::OnlyIf(is_so) => is_so(outcome),
                When::RefundIf(is_so) => !is_so(outcome),
            };
            match (policy.when(), policy.settles()) {
                (_, Some(settle)) if is_charged => unsettled.push((place, settle)),
                (When::RefundIf(_), _) if !is_charged => costs.push((place, 0)),
                (When::OnlyIf(_), None) if is_charged => costs.push((place, check.cost)),
                _ => {}
            }
        }
        (costs, unsettled)
    }

    /// If the layer cannot observe the end of the response: what the handler has recorded, or else by the policy's rule.
    pub(super) fn without_end(&self, open: &[usize]) -> TrueCosts {
        self.each(open, |place, _| self.recorded(place).map(|recorded| recorded.units))
    }

    /// When the body of the response has ended or was dropped.
    pub(super) fn at_end(&self, open: &[usize], end: &End<'_>) -> TrueCosts {
        self.each(open, |place, settle| match &settle.source {
            Source::Handler => self.recorded(place).map(|recorded| recorded.units),
            Source::Function(true_cost) => true_cost(end),
            source => self.counted(source),
        })
    }

    /// When the time in which a request has to be settled is over: by the policy's rule, but not less than was counted,
    /// because the body may go on.
    pub(super) fn at_time_out(&self, open: &[usize]) -> TrueCosts {
        self.each(open, |place, settle| match (&settle.source, self.recorded(place)) {
            (_, Some(Recorded { units, whole: true })) => Some(units),
            (_, Some(Recorded { units, whole: false })) => Some(units.max(self.rule(place, settle))),
            (source, None) => self.counted(source).map(|units| units.max(self.rule(place, settle))),
        })
    }

    /// The true costs of these checks: what `units` returns, or else what the policy's rule says.
    fn each(&self, open: &[usize], units: impl Fn(usize, &Settle) -> Option<u64>) -> TrueCosts {
        let cost = |place: &usize| {
            let settle = self.settles(*place)?;
            let units = units(*place, settle).unwrap_or_else(|| self.rule(*place, settle));
            Some((*place, units.min(MAX_UNITS)))
        };
        open.iter().filter_map(cost).collect()
    }

    fn rule(&self, place: usize, settle: &Settle) -> u64 {
        settle.rule(self.checks[place].cost)
    }

    /// What the handler has recorded; nothing can be recorded from now on.
    fn recorded(&self, place: usize) -> Option<Recorded> {
        self.records.as_ref()?.close(place)
    }

    /// What the layer has counted by now.
    fn counted(&self, source: &Source) -> Option<u64> {
        match source {
            Source::Bytes { request, response, unit } => {
                Some(self.bytes(*request, *response)?.div_ceil(unit.get()))
            }
            Source::Time { unit } => Some(per_time(self.elapsed(), *unit)),
            Source::Handler | Source::Header { .. } | Source::Function(_) => None,
        }
    }
}
