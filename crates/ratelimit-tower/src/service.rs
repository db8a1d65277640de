//! The service: asks before it calls the one inside.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use ratelimit_core::{CheckError, Clock, CounterStore, SystemClock, Timer};
use smallvec::smallvec;
use tower_service::Service;

use crate::answer::{Answer, refuse};
use crate::ask::{Tell, at_once};
use crate::check::{Ask, Asks, Checked, asks, check};
use crate::future::{BoxFuture, Held, ResponseFuture};
use crate::headers::Lines;
use crate::layer::{CheckNow, Core, Shared};
use crate::policy::Applied;
use crate::settle::After;
use crate::verdict::{Refused, Verdict, decided, decided_alone, failed};
use crate::{Fallback, Head, OnFailure, Policies, Problem, observe};

/// A service whose requests are limited; made by [`RateLimitLayer`](crate::RateLimitLayer).
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
{
    type Response = Response<ResBody>;
    type Error = Inner::Error;
    type Future = ResponseFuture<Inner, ReqBody, ResBody, S, C, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    // By itself, so that its future is written where the caller keeps it, and not moved there.
    #[inline(never)]
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let shared = &self.shared;
        match shared.policies.look(|policies| begin(&shared.core, policies, &Head::of(&request))) {
            Ok(lines) => ResponseFuture::calling(self.inner.call(request), lines, None),
            Err(begun) => self.unusual(*begun, request),
        }
    }
}

impl<Inner: Clone, S: CounterStore, C: Clock, A> RateLimit<Inner, S, C, A> {
    /// Answers, holds back or lets through what did not simply go on.
    #[inline(never)]
    fn unusual<ReqBody, ResBody>(
        &mut self,
        begun: Unusual<S, C>,
        request: Request<ReqBody>,
    ) -> ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
    where
        Inner: Service<Request<ReqBody>, Response = Response<ResBody>>,
        A: Answer<ResBody>,
    {
        let asking: BoxFuture<Decided<S, C>> = match begun {
            Unusual::Decided(Decided { verdict: Verdict::Refuse(refused), .. }) => {
                return ResponseFuture::answered(refuse(&*self.shared.answers, refused, Head::of(&request)));
            }
            Unusual::Decided(Decided { verdict: Verdict::Pass { lines, delay }, after })
                if delay.is_zero() =>
            {
                return ResponseFuture::calling(self.inner.call(request), lines, after);
            }
            Unusual::Decided(decided) => Box::pin(std::future::ready(decided)),
            Unusual::Later(asking) => asking,
        };
        let shared = self.shared.clone();
        ResponseFuture::asking(asking, self.held(request), shared)
    }

    /// The request, with the service that was found ready; a clone, which need not be, stays here.
    fn held<B>(&mut self, request: Request<B>) -> Box<Held<Inner, B>> {
        let clone = self.inner.clone();
        Box::new(Held { ready: mem::replace(&mut self.inner, clone), request })
    }
}

/// What becomes of a request, and what is to be done at its end.
pub(crate) struct Decided<S: CounterStore + 'static, C: Clock + 'static> {
    pub(crate) verdict: Verdict,
    pub(crate) after: Option<Box<After<S, C>>>,
}

/// The fields of a request that goes on at once, and of which no more is to be done at its end: the usual case. All else
/// is in a box, so that no room is made for it.
type Begun<S, C> = Result<Lines, Box<Unusual<S, C>>>;

enum Unusual<S: CounterStore + 'static, C: Clock + 'static> {
    Decided(Decided<S, C>),
    Later(BoxFuture<Decided<S, C>>),
}

impl<S: CounterStore + 'static, C: Clock + 'static> From<Verdict> for Box<Unusual<S, C>> {
    #[inline(never)]
    fn from(verdict: Verdict) -> Self {
        Self::new(Unusual::Decided(Decided { verdict, after: None }))
    }
}

/// Decides on the spot if the store can, and otherwise begins to.
#[inline]
fn begin<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    head: &Head<'_>,
) -> Begun<S, C> {
    // The usual case is by itself, so that no room is made for what the others need.
    let (Some(now), Some(policy)) = (&core.now, policies.alone()) else {
        return begin_any(core, policies, head);
    };
    let mut ask = Ask::new(0);
    match policy.apply(head, &mut ask) {
        Applied::No => Ok(Lines::default()),
        Applied::Refuse(absent) => Err(Verdict::Refuse(Refused::absent(absent)).into()),
        Applied::Yes => {
            observe::checked();
            begin_alone(core, policies, now, &ask)
        }
    }
}

/// For the only ask, which is a usual one.
#[inline]
fn begin_alone<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    now: &CheckNow<S, C>,
    ask: &Ask,
) -> Begun<S, C> {
    let plan = ask.plan(policies);
    match &core.take_alone(now, &ask.key, ask.cost, plan.limits()) {
        Ok(decision) => Ok(decided_alone(policies, plan, decision)?),
        Err(error) => begin_failed(core, policies, smallvec![ask.clone()], error),
    }
}

#[inline(never)]
fn begin_any<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    head: &Head<'_>,
) -> Begun<S, C> {
    let asks = match asks(policies, head) {
        Ok(asks) => asks,
        Err(absent) => return Err(Verdict::Refuse(Refused::absent(absent)).into()),
    };
    if asks.is_empty() {
        return Ok(Lines::default());
    }
    observe::checked();
    if let Some(now) = &core.now {
        if let [ask] = &asks[..]
            && ask.is_usual(policies)
        {
            return begin_alone(core, policies, now, ask);
        }
        match at_once(ask(&**core, policies, &asks)) {
            Some(Ok((verdict, kept))) => {
                let after = After::new(core, policies, asks, kept, None);
                return Err(Box::new(Unusual::Decided(Decided { verdict, after })));
            }
            Some(Err(error)) => return begin_failed(core, policies, asks, &error),
            None => {}
        }
    }
    let deciding = decide(core.clone(), policies.clone(), asks);
    Err(Box::new(Unusual::Later(Box::pin(observe::span(deciding)))))
}

#[cold]
fn begin_failed<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    asks: Asks,
    error: &CheckError,
) -> Begun<S, C> {
    if let OnFailure::Fallback(fallback) = &policies.on_failure {
        observe::failed(error, "fallback");
        let (core, policies, fallback) = (core.clone(), policies.clone(), fallback.clone());
        return Err(Box::new(Unusual::Later(Box::pin(fall_back(core, policies, asks, fallback)))));
    }
    Err(failed(policies, &asks, error).into())
}

async fn decide<S: CounterStore + 'static, C: Clock + 'static>(
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: Asks,
) -> Decided<S, C> {
    match ask(&*core, &policies, &asks).await {
        Ok((verdict, kept)) => Decided { verdict, after: After::new(&core, &policies, asks, kept, None) },
        Err(error) => match policies.on_failure.clone() {
            OnFailure::Fallback(fallback) => {
                observe::failed(&error, "fallback");
                fall_back(core, policies, asks, fallback).await
            }
            _ => Decided { verdict: failed(&policies, &asks, &error), after: None },
        },
    }
}

/// What becomes of a request, and the decisions that are still needed when it has ended.
async fn ask(
    tell: &impl Tell,
    policies: &Policies,
    asks: &[Ask],
) -> Result<(Verdict, Option<Checked<'static>>), CheckError> {
    let checked = check(tell, policies, asks).await?;
    Ok((decided(policies, asks, &checked), checked.kept(policies, asks)))
}

/// Lets another limiter decide.
async fn fall_back<S: CounterStore + 'static, C: Clock + 'static>(
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: Asks,
    fallback: Fallback,
) -> Decided<S, C> {
    match ask(&fallback, &policies, &asks).await {
        Ok((verdict, kept)) => {
            Decided { verdict, after: After::new(&core, &policies, asks, kept, Some(fallback)) }
        }
        Err(error) => Decided { verdict: failed(&policies, &asks, &error), after: None },
    }
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
