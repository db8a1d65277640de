//! What is charged or given back once it is known how a request ended.

use std::sync::Arc;

use ratelimit_core::{CheckError, Clock, CounterStore};
use smallvec::SmallVec;

use crate::ask::{How, Tell, at_once};
use crate::charge::{Outcome, When};
use crate::check::{Ask, Asks, Checked, request};
use crate::layer::Core;
use crate::{Fallback, Policies, observe};

/// What waits for the end of a request. Dropping it is an end, too.
pub(crate) struct After<S: CounterStore + 'static, C: Clock + 'static>(Option<Pending<S, C>>);

struct Pending<S, C> {
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: Asks,
    checked: Checked,
    /// Who decided, if it was not the limiter.
    fallback: Option<Fallback>,
}

/// The places of the asks whose policies want something done.
type Wanted = SmallVec<[usize; 2]>;

impl<S: CounterStore + 'static, C: Clock + 'static> After<S, C> {
    /// `None` if nothing depends on how the request ends.
    pub(crate) fn new(
        core: &Arc<Core<S, C>>,
        policies: &Arc<Policies>,
        asks: Asks,
        checked: Checked,
        fallback: Option<Fallback>,
    ) -> Option<Box<Self>> {
        let depends = |ask: &Ask| !matches!(ask.policy(policies).when(), When::Before);
        let depends = checked.refusal().is_none() && asks.iter().any(depends);
        depends.then(|| {
            let (core, policies) = (core.clone(), policies.clone());
            Box::new(Self(Some(Pending { core, policies, asks, checked, fallback })))
        })
    }

    /// Does what this outcome asks for; `None` if that is nothing.
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
                observe::unsettled(&"the store did not answer at once");
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
        let wants = |ask: &Ask| match ask.policy(&self.policies).when() {
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
        let is_wanted =
            |ask: &Ask| wanted.iter().any(|place| std::ptr::eq(&raw const self.asks[*place], ask));
        let mut outcome = Ok(());
        for (round, decision) in &self.checked.0 {
            let mine = |ask: &Ask| ask.round(policies) == *round;
            let settled = if round.how == How::Take {
                // The decision is on all asks of its round; those that are kept are given back at no cost.
                let units = |ask: &Ask| {
                    mine(ask).then_some(if is_wanted(ask) && is_refund(ask, policies) { ask.cost } else { 0 })
                };
                match request(policies, &self.asks, units) {
                    Some(request) => tell.give_back(&request, decision).await,
                    None => Ok(()),
                }
            } else {
                let units =
                    |ask: &Ask| (mine(ask) && is_wanted(ask) && decision.allowed()).then_some(ask.cost);
                match request(policies, &self.asks, units) {
                    Some(request) => tell.ask(&request, How::Force).await.map(|_| ()),
                    None => Ok(()),
                }
            };
            outcome = outcome.and(settled);
        }
        outcome
    }
}

fn is_refund(ask: &Ask, policies: &Policies) -> bool {
    matches!(ask.policy(policies).when(), When::RefundIf(_))
}
