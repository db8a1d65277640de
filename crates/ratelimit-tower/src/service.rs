//! The service: asks before it calls the one inside.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use ratelimit_core::{CheckError, Clock, CounterStore, SystemClock, Timer};
use tower_service::Service;

use crate::answer::{Answer, refuse};
use crate::ask::at_once;
use crate::check::{Asks, asks, check};
use crate::future::{BoxFuture, Held, ResponseFuture};
use crate::layer::{Core, Shared};
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

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let shared = &self.shared;
        let policies = shared.policies.look();
        let asks = match asks(&policies, &Head::of(&request)) {
            Ok(asks) => asks,
            Err(absent) => {
                return ResponseFuture::answered(refuse(
                    &*shared.answers,
                    Refused::absent(absent),
                    Head::of(&request),
                ));
            }
        };
        if asks.is_empty() {
            return ResponseFuture::exempt(self.inner.call(request));
        }
        observe::checked();
        match begin(&shared.core, &policies, asks) {
            Begun::Decided(Decided { verdict: Verdict::Refuse(refused), .. }) => {
                ResponseFuture::answered(refuse(&*shared.answers, refused, Head::of(&request)))
            }
            Begun::Decided(Decided { verdict: Verdict::Pass { lines, delay }, after }) if delay.is_zero() => {
                ResponseFuture::calling(self.inner.call(request), lines, after)
            }
            Begun::Decided(decided) => {
                let shared = shared.clone();
                ResponseFuture::asking(Box::pin(std::future::ready(decided)), self.held(request), shared)
            }
            Begun::Later(asking) => {
                let shared = shared.clone();
                ResponseFuture::asking(asking, self.held(request), shared)
            }
        }
    }
}

impl<Inner: Clone, S, C, A> RateLimit<Inner, S, C, A> {
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

enum Begun<S: CounterStore + 'static, C: Clock + 'static> {
    Decided(Decided<S, C>),
    Later(BoxFuture<Decided<S, C>>),
}

/// Decides on the spot if the store can, and otherwise begins to.
#[inline]
fn begin<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    asks: Asks,
) -> Begun<S, C> {
    // The usual case is by itself, so that no room is made for what the others need.
    let error = match (core.now, &asks[..]) {
        (Some(now), [ask]) if let Some(request) = ask.alone(policies) => match core.take_now(now, &request) {
            Ok(decision) => {
                let verdict = decided_alone(policies, ask, &decision);
                return Begun::Decided(Decided { verdict, after: None });
            }
            Err(error) => Some(error),
        },
        _ => None,
    };
    match error {
        Some(error) => begin_failed(core, policies, asks, &error),
        None => begin_any(core, policies, asks),
    }
}

#[inline(never)]
fn begin_any<S: CounterStore + 'static, C: Clock + 'static>(
    core: &Arc<Core<S, C>>,
    policies: &Arc<Policies>,
    asks: Asks,
) -> Begun<S, C> {
    let at_once = if core.now.is_some() { at_once(check(&**core, policies, &asks)) } else { None };
    match at_once {
        Some(Ok(checked)) => {
            let verdict = decided(policies, &asks, &checked);
            Begun::Decided(Decided { verdict, after: After::new(core, policies, asks, checked, None) })
        }
        Some(Err(error)) => begin_failed(core, policies, asks, &error),
        None => Begun::Later(Box::pin(observe::span(decide(core.clone(), policies.clone(), asks)))),
    }
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
        return Begun::Later(Box::pin(fall_back(core, policies, asks, fallback)));
    }
    Begun::Decided(Decided { verdict: failed(policies, &asks, error), after: None })
}

async fn decide<S: CounterStore + 'static, C: Clock + 'static>(
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: Asks,
) -> Decided<S, C> {
    match check(&*core, &policies, &asks).await {
        Ok(checked) => {
            let verdict = decided(&policies, &asks, &checked);
            Decided { verdict, after: After::new(&core, &policies, asks, checked, None) }
        }
        Err(error) => match policies.on_failure.clone() {
            OnFailure::Fallback(fallback) => {
                observe::failed(&error, "fallback");
                fall_back(core, policies, asks, fallback).await
            }
            _ => Decided { verdict: failed(&policies, &asks, &error), after: None },
        },
    }
}

/// Lets another limiter decide.
async fn fall_back<S: CounterStore + 'static, C: Clock + 'static>(
    core: Arc<Core<S, C>>,
    policies: Arc<Policies>,
    asks: Asks,
    fallback: Fallback,
) -> Decided<S, C> {
    match check(&fallback, &policies, &asks).await {
        Ok(checked) => {
            let verdict = decided(&policies, &asks, &checked);
            Decided { verdict, after: After::new(&core, &policies, asks, checked, Some(fallback)) }
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
