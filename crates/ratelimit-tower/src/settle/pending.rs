//! What a request was charged before it was served, and how to settle it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::{Method, Request, StatusCode};
use ratelimit_core::store::Mode;
use ratelimit_core::{CheckError, Decision, Permit, Timestamp};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::BoxFuture;
use crate::charged::Records;
use crate::check::{AllChecks, CheckBatch, Checked, PolicyChecks, holds, request};
use crate::counted::Places;
use crate::limiter::Limiter;
use crate::measured::{BodyTypes, Watch};
use crate::policy_check::PolicyCheck;
use crate::true_cost::Source;
use crate::{Charged, Policies, Settle, observe};

/// What a request was charged, and what was counted for its true cost since.
pub(super) struct Pending {
    pub(super) limiter: Arc<dyn Limiter>,
    pub(super) policies: Arc<Policies>,
    pub(super) checks: PolicyChecks,
    pub(super) before: Places,
    checked: Checked<'static>,
    /// What the handler has recorded, if a policy settles by it.
    pub(super) records: Option<Arc<Records>>,
    /// The bytes of the request's body that were read, if they are counted.
    request_bytes: Option<Arc<AtomicU64>>,
    pub(super) response_bytes: AtomicU64,
    begun: Timestamp,
    /// Whether the request's method is `HEAD`, so that the response is sent without its body.
    is_head: bool,
    bodies: Option<Arc<BodyTypes>>,
    /// Whether the outcome is known.
    answered: AtomicBool,
    /// What is held under concurrency limits, released when this is dropped.
    permits: SmallVec<[Permit; 1]>,
}

/// The indices of checks, and what they have really cost.
pub(super) type TrueCosts = SmallVec<[(usize, u64); 2]>;

struct CountBytes(Arc<AtomicU64>);

impl Watch for CountBytes {
    fn data(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Pending {
    pub(super) fn new(checks: AllChecks, checked: Checked<'static>) -> Self {
        let AllChecks { limiter, policies, checks, before } = checks;
        let held = checked.0.iter().map(|(_, decision)| decision).filter(|decision| holds(decision));
        let permits = held.filter_map(|decision| hold(&*limiter, decision)).collect();
        Self {
            limiter,
            policies,
            checks,
            before,
            checked,
            permits,
            records: None,
            request_bytes: None,
            response_bytes: AtomicU64::new(0),
            begun: Timestamp::EPOCH,
            is_head: false,
            bodies: None,
            answered: AtomicBool::new(false),
        }
    }

    /// Puts the handle for the handler into the request's extensions, and records that the service is called now.
    pub(super) fn begin<B>(&mut self, request: &mut Request<B>, bodies: &Arc<BodyTypes>) {
        self.is_called();
        self.is_head = request.method() == Method::HEAD;
        self.bodies = Some(bodies.clone());
        let mut records = Records::default();
        for (place, check) in self.checks.iter().enumerate() {
            let policy = check.policy(&self.policies);
            if policy.settles().is_some_and(|settle| matches!(settle.source, Source::Handler)) {
                records.push(place, policy.name().into());
            }
        }
        self.records = Charged::insert(records, request.extensions_mut());
    }

    /// Records that the client got no response, or not all of it: the handler may not know yet, and record more.
    pub(super) fn is_cut_short(&self) {
        if let Some(records) = &self.records {
            records.be_silent();
        }
    }

    pub(super) fn bodies(&self) -> Option<&BodyTypes> {
        self.bodies.as_deref()
    }

    /// Whether a response with this status is sent without its body (RFC 9110, section 6.4.1). Most servers drop the body
    /// without reading it.
    pub(super) fn sends_no_body(&self, status: StatusCode) -> bool {
        self.is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Whether something is held until the end of the response.
    pub(super) fn holds(&self) -> bool {
        !self.permits.is_empty()
    }

    pub(super) fn needs_request_bytes(&self) -> bool {
        (0..self.checks.len()).any(|place| {
            let source = self.settles(place).map(|settle| &settle.source);
            matches!(source, Some(Source::Bytes { request: true, .. }))
        })
    }

    pub(super) fn count_request_bytes(&mut self) -> Box<dyn Watch> {
        let counter = Arc::<AtomicU64>::default();
        self.request_bytes = Some(counter.clone());
        Box::new(CountBytes(counter))
    }

    /// Records that the service is called now.
    pub(super) fn is_called(&mut self) {
        self.begun = self.limiter.now();
    }

    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.limiter.now().since(self.begun)
    }

    /// The bytes that were read from the request's body, the response's body or both; `None` if they could not be counted.
    pub(super) fn bytes(&self, request: bool, response: bool) -> Option<u64> {
        let of_request = match &self.request_bytes {
            _ if !request => 0,
            Some(bytes) => bytes.load(Ordering::Relaxed),
            None => return None,
        };
        let of_response = if response { self.response_bytes.load(Ordering::Relaxed) } else { 0 };
        Some(of_request.saturating_add(of_response))
    }

    /// How the policy of the check at this index settles.
    pub(super) fn settles(&self, place: usize) -> Option<&Settle> {
        self.checks[place].policy(&self.policies).settles()
    }

    /// Settles checks at their true costs. Each check is settled at most once.
    async fn settle(self: Arc<Self>, costs: TrueCosts) {
        if let Err(error) = self.try_settle(&costs).await {
            observe::unsettled(&error);
        }
    }

    /// Settles without a caller that waits: immediately if the store is in this process, otherwise on a task.
    pub(super) fn settle_apart(self: Arc<Self>, costs: TrueCosts, runtime: Option<&Handle>) {
        let Some(settling) = self.settle_at_once(costs) else { return };
        match runtime.cloned().map_or_else(Handle::try_current, Ok) {
            Ok(runtime) => drop(runtime.spawn(settling)),
            Err(error) => observe::unsettled(&error),
        }
    }

    /// Settles, and returns a future that completes afterwards; `None` if nothing is left to do. In a tokio runtime,
    /// dropping the future does not stop the settlement.
    pub(super) fn settle_awaited(self: Arc<Self>, costs: TrueCosts) -> Option<BoxFuture<()>> {
        let settling = self.settle_at_once(costs)?;
        let Ok(runtime) = Handle::try_current() else { return Some(Box::pin(settling)) };
        let task = runtime.spawn(settling);
        Some(Box::pin(async {
            if let Err(error) = task.await {
                observe::unsettled(&error);
            }
        }))
    }

    /// Settles immediately if the store is in this process; otherwise returns the future that settles.
    fn settle_at_once(self: Arc<Self>, costs: TrueCosts) -> Option<impl Future<Output = ()> + Send> {
        let in_process = self.limiter.is_in_process();
        let settling = (!costs.is_empty()).then(|| self.settle(costs))?;
        if !in_process {
            return Some(settling);
        }
        if settling.now_or_never().is_none() {
            observe::unsettled(&"the store did not answer synchronously");
        }
        None
    }

    async fn try_settle(&self, costs: &[(usize, u64)]) -> Result<(), CheckError> {
        let policies = &*self.policies;
        let cost_of =
            |place: usize| costs.iter().find(|(settled, _)| *settled == place).map(|(_, units)| *units);
        let settle = async |(round, decision): &(CheckBatch, Decision<'_>)| {
            // The decision covers all checks of its round, each of which is one of its keys.
            let mine =
                || (0..self.checks.len()).filter(|place| self.checks[*place].round(policies) == *round);
            if round.mode == Mode::Charge {
                let by_key: SmallVec<[Option<u64>; 2]> = mine().map(cost_of).collect();
                if by_key.iter().all(Option::is_none) {
                    Ok(())
                } else {
                    self.limiter.settle_keys(decision, &by_key).await
                }
            } else {
                let charged = mine().filter_map(|place| Some((place, cost_of(place)?)));
                let charged = charged.filter(|(_, units)| *units > 0 && decision.allowed());
                // Nothing is held, because nobody would release it.
                let at_cost = |(place, cost): (usize, u64)| {
                    let check = &self.checks[place];
                    let plan = check.plan(policies);
                    let plan = if plan.holds() { Some(plan.without_held()?) } else { check.plan.clone() };
                    Some(PolicyCheck { cost, plan, ..check.clone() })
                };
                let charged: Vec<PolicyCheck> = charged.filter_map(at_cost).collect();
                match request(policies, &charged) {
                    Some(request) => self.limiter.decide(&request, Mode::Force).await.map(|_| ()),
                    None => Ok(()),
                }
            }
        };
        match &self.checked.0[..] {
            [only] => settle(only).await,
            // Policies in shadow are decided one by one.
            several => join_all(several.iter().map(settle)).await.into_iter().fold(Ok(()), Result::and),
        }
    }
}

/// Holds what this decision has taken.
fn hold(limiter: &dyn Limiter, decision: &Decision<'static>) -> Option<Permit> {
    if let Err(error) = Handle::try_current() {
        observe::unsettled(&format_args!(
            "what a request holds is not released before its lease ends: {error}"
        ));
        return None;
    }
    Some(limiter.hold(decision.clone()))
}
