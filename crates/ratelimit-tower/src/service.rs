//! The service: checks a request before it calls the inner service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use ratelimit_core::clock::Timer;
use ratelimit_core::kit::RunToEnd;
use ratelimit_core::{CheckError, CounterStore, ErrorKind, StoreError, SystemClock};
use tower_service::Service;

use crate::answer::Answer;
use crate::check::{AllChecks, Checked, PolicyChecks, check_all, checks};
use crate::counted::{self, Counting, Places};
use crate::future::{ResponseFuture, WaitingRequest};
use crate::headers::Lines;
use crate::limiter::{Core, Limiter as _};
use crate::settle::After;
use crate::shared::Shared;
use crate::verdict::{Decided, Verdict, decided, failed};
use crate::{BoxFuture, Head, Policies, Problem, observe};

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

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let shared = &self.shared;
        let (begun, mark) =
            shared.policies.look(|policies| begin(&shared.core, policies, &Head::of(&request)));
        if let Some(mark) = mark {
            mark.mark(request.extensions_mut());
        }
        match begun {
            Begun::Decided(decided) => {
                ResponseFuture::decided(decided, request, &mut self.inner, &self.shared)
            }
            Begun::Deciding(deciding) => {
                let held = WaitingRequest::take(&mut self.inner, request);
                ResponseFuture::deciding(deciding, held, self.shared.clone())
            }
        }
    }
}

/// A decision, or the future of one.
enum Begun {
    Decided(Decided),
    Deciding(BoxFuture<Decided>),
}

impl From<Verdict> for Begun {
    fn from(verdict: Verdict) -> Self {
        Self::Decided(Decided { verdict, after: None })
    }
}

/// Decides now if the state of the store is in this process; otherwise returns the future. Also returns the mark of which
/// policies count the request, if it may meet the limiter again.
fn begin<S: CounterStore + 'static, C: Timer + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    head: &Head<'_>,
) -> (Begun, Option<Counting>) {
    let can_repeat = core.can_repeat();
    let before = if can_repeat { counted::before(&**core, policies, head) } else { Places::default() };
    let checks = match checks(policies, head, before) {
        Ok(checks) => checks,
        Err(refused) => return (Verdict::Refuse(refused).into(), None),
    };
    if checks.is_empty() && policies.taken.is_empty() {
        return (Verdict::Pass { lines: Lines::default(), delay: Duration::ZERO }.into(), None);
    }
    let counted = Places::of(&checks);
    let mark = (can_repeat && !counted.is_empty()).then(|| Counting::new(core.clone(), policies, counted));
    if !checks.is_empty() {
        observe::checked(checks.iter().map(|check| check.policy(policies).checks()));
    }
    let have_end = checks.iter().any(|check| check.has_end(policies));
    let deciding = decide(AllChecks { limiter: core.clone(), policies: policies.clone(), checks, before });
    let begun = if core.is_in_process() {
        Begun::Decided(deciding.now_or_never().unwrap_or_else(|| no_answer(policies)))
    } else if have_end {
        // If the client disconnects now, what is charged has to be settled and released all the same.
        Begun::Deciding(Box::pin(RunToEnd::new(Box::pin(observe::span(deciding)))))
    } else {
        Begun::Deciding(Box::pin(observe::span(deciding)))
    };
    (begun, mark)
}

async fn decide(checks: AllChecks) -> Decided {
    let checked = check_all(&*checks.limiter, &checks.policies, &checks.checks).await;
    let outcome = checked.map(|checked| {
        let verdict = decided(&checks.policies, &checks.checks, &checked);
        (verdict, checked.kept(&checks.policies, &checks.checks))
    });
    match outcome {
        Ok((verdict, kept)) => Decided { verdict, after: After::new(checks, kept) },
        Err(error) => undecided(checks, &error),
    }
}

/// What happens after this error.
fn undecided(checks: AllChecks, error: &CheckError) -> Decided {
    let verdict = failed(&checks.policies, &checks.checks, error);
    let passes = matches!(verdict, Verdict::Pass { .. }) && !checks.policies.taken.is_empty();
    let checks = AllChecks { checks: PolicyChecks::new(), ..checks };
    Decided { verdict, after: After::new(checks, passes.then(Checked::default)) }
}

/// What happens if a store in this process waits, which its contract excludes.
#[cold]
fn no_answer(policies: &Policies) -> Decided {
    let message = "it waited, which a `SyncCounterStore` must not";
    let error = StoreError::new("the store", ErrorKind::Server, message).maybe_applied();
    Decided { verdict: failed(policies, &[], &error.into()), after: None }
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
