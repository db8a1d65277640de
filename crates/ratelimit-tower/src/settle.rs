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
    checked: Checked<'static>,
    /// Who decided, if it was not the limiter.
    fallback: Option<Fallback>,
}

/// The places of the asks whose policies want something done.
type Wanted = SmallVec<[usize; 2]>;

impl<S: CounterStore + 'static, C: Clock + 'static> After<S, C> {
    /// `None` if nothing was [kept](Checked::kept), for then nothing depends on how the request ends.
    pub(crate) fn new(
        core: &Arc<Core<S, C>>,
        policies: &Arc<Policies>,
        asks: Asks,
        kept: Option<Checked<'static>>,
        fallback: Option<Fallback>,
    ) -> Option<Box<Self>> {
        let (core, policies) = (core.clone(), policies.clone());
        kept.map(|checked| Box::new(Self(Some(Pending { core, policies, asks, checked, fallback }))))
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
        let mut outcome = Ok(());
        for (round, decision) in &self.checked.0 {
            // The decision is on all asks of its round, each of which is a key of it.
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

fn is_refund(ask: &Ask, policies: &Policies) -> bool {
    matches!(ask.policy(policies).when(), When::RefundIf(_))
}
