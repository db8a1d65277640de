//! Charges and refunds once the outcome of a request is known.

use std::sync::Arc;

use ratelimit_core::{CheckError, Clock, CounterStore};
use smallvec::SmallVec;

use crate::ask::{How, Tell, at_once};
use crate::charge::{Outcome, When};
use crate::check::{Checked, PolicyChecks, request};
use crate::policy_check::PolicyCheck;
use crate::shared::Core;
use crate::{Fallback, Policies, observe};

/// Waits for the outcome of a request. Dropping it is an outcome, too.
pub(crate) struct After<S: CounterStore + 'static, C: Clock + 'static>(Option<Pending<S, C>>);

struct Pending<S, C> {
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: PolicyChecks,
    checked: Checked<'static>,
    /// The limiter that decided, if it was the fallback.
    fallback: Option<Fallback>,
}

/// The indices of the checks whose policies want to charge or refund.
type Wanted = SmallVec<[usize; 2]>;

impl<S: CounterStore + 'static, C: Clock + 'static> After<S, C> {
    /// `None` if nothing was [kept](Checked::kept): then nothing depends on the outcome.
    pub(crate) fn new(
        core: &Arc<Core<S, C>>,
        policies: &Arc<Policies>,
        asks: PolicyChecks,
        kept: Option<Checked<'static>>,
        fallback: Option<Fallback>,
    ) -> Option<Box<Self>> {
        let (core, policies) = (core.clone(), policies.clone());
        kept.map(|checked| Box::new(Self(Some(Pending { core, policies, asks, checked, fallback }))))
    }

    /// Charges and refunds for this outcome; `None` if there is nothing to do.
    pub(crate) fn finish(
        mut self: Box<Self>,
        outcome: Outcome<'_>,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let pending = self.0.take()?;
        let wanted = pending.wanted(outcome);
        (!wanted.is_empty()).then(|| pending.settle(wanted))
    }
}

impl<S: CounterStore + 'static, C: Clock + 'static> Drop for After<S, C> {
    fn drop(&mut self) {
        let Some(pending) = self.0.take() else { return };
        let wanted = pending.wanted(Outcome::Dropped);
        if wanted.is_empty() {
            return;
        }
        if pending.core.in_process() && pending.fallback.is_none() {
            if at_once(pending.settle(wanted)).is_none() {
                observe::unsettled(&"the store did not answer synchronously");
            }
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(pending.settle(wanted))),
            Err(error) => observe::unsettled(&error),
        }
    }
}

impl<S: CounterStore + 'static, C: Clock + 'static> Pending<S, C> {
    fn wanted(&self, outcome: Outcome<'_>) -> Wanted {
        let wants = |ask: &PolicyCheck| match ask.policy(&self.policies).when() {
            When::Before => false,
            When::OnlyIf(is_so) | When::RefundIf(is_so) => is_so(outcome),
        };
        self.asks.iter().enumerate().filter(|(_, ask)| wants(ask)).map(|(place, _)| place).collect()
    }

    async fn settle(self, wanted: Wanted) {
        let outcome = match &self.fallback {
            None => self.settle_with(&self.core.limiter, &wanted).await,
            Some(fallback) => self.settle_with(fallback, &wanted).await,
        };
        if let Err(error) = outcome {
            observe::unsettled(&error);
        }
    }

    async fn settle_with(&self, tell: &impl Tell, wanted: &[usize]) -> Result<(), CheckError> {
        let policies = &*self.policies;
        let mut outcome = Ok(());
        for (round, decision) in &self.checked.0 {
            // The decision covers all checks of its round, each of which is one of its keys.
            let mine = || (0..self.asks.len()).filter(|place| self.asks[*place].round(policies) == *round);
            let settled = if round.how == How::Take {
                let is_back =
                    |place: &usize| wanted.contains(place) && is_refund(&self.asks[*place], policies);
                let keys = mine().enumerate().filter(|(_, place)| is_back(place)).map(|(key, _)| key);
                let keys: SmallVec<[usize; 2]> = keys.collect();
                if keys.is_empty() { Ok(()) } else { tell.give_back(decision, &keys).await }
            } else {
                let charged: Vec<usize> =
                    mine().filter(|place| wanted.contains(place) && decision.allowed()).collect();
                match request(policies, charged.iter().map(|place| &self.asks[*place])) {
                    Some(request) => tell.ask(&request, How::Force).await.map(|_| ()),
                    None => Ok(()),
                }
            };
            outcome = outcome.and(settled);
        }
        outcome
    }
}

fn is_refund(ask: &PolicyCheck, policies: &Policies) -> bool {
    matches!(ask.policy(policies).when(), When::RefundIf(_))
}
