//! The service: checks a request before it calls the inner service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use ratelimit_core::kit::RunToEnd;
use ratelimit_core::{CheckError, CounterStore, SystemClock, Timer};
use smallvec::smallvec;
use tower_service::Service;

use crate::answer::{Answer, Refused};
use crate::check::{AllChecks, Checked, PolicyChecks, check_all, checks};
use crate::counted::{self, Counting, Places};
use crate::future::{ResponseFuture, WaitingRequest};
use crate::headers::Lines;
use crate::limiter::{CheckNow, Core};
use crate::policy::Applied;
use crate::policy_check::PolicyCheck;
use crate::settle::After;
use crate::shared::Shared;
use crate::verdict::{Decided, Verdict, decided, decided_alone, failed};
use crate::{BoxFuture, Head, Plan, Policies, Problem, observe};

/// A service with limited requests. Created by [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<Inner, S, C = SystemClock, A = Problem> {
    inner: Inner,
    shared: Arc<Shared<S, C, A>>,
}

impl<Inner, S, C, A> RateLimit<Inner, S, C, A> {
    pub(crate) fn new(inner: Inner, shared: Arc<Shared<S, C, A>>) -> Self {
        Self { inner, shared }
    }
}

impl<Inner, ReqBody, ResBody, S, C, A> Service<Request<ReqBody>> for RateLimit<Inner, S, C, A>
where
    Inner: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: CounterStore + 'static,
    C: Timer + 'static,
    A: Answer<ResBody>,
    ReqBody: 'static,
    ResBody: 'static,
{
    type Response = Response<ResBody>;
    type Error = Inner::Error;
    type Future = ResponseFuture<Inner, ReqBody, ResBody, S, C, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    // The future is written directly where the caller keeps it, and not moved there.
    #[inline(never)]
    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let (shared, mut mark) = (&self.shared, None);
        let begun = shared.policies.look(|policies| {
            let mut counted = Places::default();
            let begun = begin(&shared.core, policies, &Head::of(&request), &mut counted);
            if shared.core.can_repeat() && !counted.is_empty() {
                mark = Some(Counting::new(shared.core.clone(), policies, counted));
            }
            begun
        });
        if let Some(mark) = mark {
            mark.mark(request.extensions_mut());
        }
        match begun {
            Ok(lines) => ResponseFuture::calling(self.inner.call(request), lines),
            Err(begun) => self.unusual(*begun, request),
        }
    }
}

impl<Inner, S, C, A> RateLimit<Inner, S, C, A> {
    /// Handles requests that are refused, delayed or not decided yet, or that need something at their end.
    #[inline(never)]
    fn unusual<ReqBody, ResBody>(
        &mut self,
        begun: Unusual,
        request: Request<ReqBody>,
    ) -> ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
    where
        Inner: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
        S: CounterStore + 'static,
        C: Timer + 'static,
        A: Answer<ResBody>,
        ReqBody: 'static,
    {
        match begun {
            Unusual::Decided(decided) => {
                ResponseFuture::decided(decided, request, &mut self.inner, &self.shared)
            }
            Unusual::Later(deciding) => {
                let held = WaitingRequest::take(&mut self.inner, request);
                ResponseFuture::deciding(deciding, held, self.shared.clone())
            }
        }
    }
}

/// The fields for the response to a request that is admitted immediately and needs nothing at its end: the common case.
/// Everything else is boxed, so that no space is reserved for it.
type Begun = Result<Lines, Box<Unusual>>;

enum Unusual {
    Decided(Decided),
    Later(BoxFuture<Decided>),
}

impl From<Verdict> for Box<Unusual> {
    #[inline(never)]
    fn from(verdict: Verdict) -> Self {
        Self::new(Unusual::Decided(Decided { verdict, after: None }))
    }
}

/// Decides synchronously if the store can; otherwise starts deciding. Adds to `counted` which policies count the request.
#[inline]
fn begin<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    head: &Head<'_>,
    counted: &mut Places,
) -> Begun {
    let before = if core.can_repeat() { counted::before(&**core, policies, head) } else { Places::default() };
    // The common case is separate, so that no space is reserved for what the others need.
    let (Some(check_now), Some(policy)) = (core.check_now, policies.alone()) else {
        return begin_any(core, policies, head, before, counted);
    };
    if before.contains(0) {
        return Ok(Lines::default());
    }
    let mut check = PolicyCheck::new(0);
    match policy.apply(head, &mut check) {
        Applied::No => Ok(Lines::default()),
        Applied::Refuse(absent) => Err(Verdict::Refuse(Refused::absent(absent)).into()),
        Applied::Yes if check.plan.as_ref().is_some_and(Plan::holds) => {
            counted.insert(0);
            begin_checks(core, policies, smallvec![check], before)
        }
        Applied::Yes => {
            counted.insert(0);
            observe::checked([policy.checks()].into_iter());
            begin_alone(core, policies, check_now, &check)
        }
    }
}

/// Decides a single check, the common case.
#[inline]
fn begin_alone<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    check_now: CheckNow<S, C>,
    check: &PolicyCheck,
) -> Begun {
    let plan = check.plan(policies);
    match core.check_now(check_now, check.request(policies)) {
        Ok(ref decision) => Ok(decided_alone(policies, plan, decision)?),
        Err(error) => {
            let checks = all_checks(core, policies, smallvec![check.clone()], Places::default());
            Err(Box::new(Unusual::Decided(undecided(checks, &error))))
        }
    }
}

#[inline(never)]
fn begin_any<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    head: &Head<'_>,
    before: Places,
    counted: &mut Places,
) -> Begun {
    match checks(policies, head, before) {
        Ok(checks) => {
            *counted = Places::of(&checks);
            begin_checks(core, policies, checks, before)
        }
        Err(refused) => Err(Verdict::Refuse(refused).into()),
    }
}

#[inline(never)]
fn begin_checks<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    checks: PolicyChecks,
    before: Places,
) -> Begun {
    if checks.is_empty() {
        let lines = Lines::default();
        if policies.taken.is_empty() {
            return Ok(lines);
        }
        let after = After::new(all_checks(core, policies, checks, before), Some(Checked::default()));
        let verdict = Verdict::Pass { lines, delay: Duration::ZERO };
        return Err(Box::new(Unusual::Decided(Decided { verdict, after })));
    }
    observe::checked(checks.iter().map(|check| check.policy(policies).checks()));
    if let Some(check_now) = core.check_now
        && let [check] = &checks[..]
        && check.is_usual(policies)
        && policies.taken.is_empty()
    {
        return begin_alone(core, policies, check_now, check);
    }
    // If the client disconnects now, what is charged has to be settled and released all the same.
    let have_end = checks.iter().any(|check| check.has_end(policies));
    let later = |deciding: BoxFuture<Decided>| {
        Box::new(Unusual::Later(if have_end { Box::pin(RunToEnd::new(deciding)) } else { deciding }))
    };
    let deciding = decide(all_checks(core, policies, checks, before));
    if core.check_now.is_none() {
        return Err(later(Box::pin(observe::span(deciding))));
    }
    let mut deciding: BoxFuture<Decided> = Box::pin(deciding);
    // With a store in this process, it is ready at once unless something else has to be waited for.
    Err(match deciding.as_mut().now_or_never() {
        Some(decided) => Box::new(Unusual::Decided(decided)),
        None => later(deciding),
    })
}

fn all_checks<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    checks: PolicyChecks,
    before: Places,
) -> AllChecks {
    AllChecks { limiter: core.clone(), policies: policies.clone(), checks, before }
}

async fn decide(checks: AllChecks) -> Decided {
    match decide_all(&checks).await {
        Ok((verdict, kept)) => Decided { verdict, after: After::new(checks, kept) },
        Err(error) => undecided(checks, &error),
    }
}

/// The verdict on a request, and the decisions that are still needed when it has ended.
async fn decide_all(
    AllChecks { limiter, policies, checks, .. }: &AllChecks,
) -> Result<(Verdict, Option<Checked<'static>>), CheckError> {
    let checked = check_all(&**limiter, policies, checks).await?;
    Ok((decided(policies, checks, &checked), checked.kept(policies, checks)))
}

/// What happens after this error.
fn undecided(checks: AllChecks, error: &CheckError) -> Decided {
    let verdict = failed(&checks.policies, &checks.checks, error);
    let passes = matches!(verdict, Verdict::Pass { .. }) && !checks.policies.taken.is_empty();
    let checks = AllChecks { checks: PolicyChecks::new(), ..checks };
    Decided { verdict, after: After::new(checks, passes.then(Checked::default)) }
}

impl<Inner: Clone, S, C, A> Clone for RateLimit<Inner, S, C, A> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: self.shared.clone() }
    }
}

impl<Inner: fmt::Debug, S, C, A> fmt::Debug for RateLimit<Inner, S, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
