//! The response future: check, wait for the turn, call the service, settle.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use ratelimit_core::CounterStore;
use ratelimit_core::clock::Timer;
use tower_service::Service;

use crate::answer::{Answer, refuse};
use crate::headers::Lines;
use crate::settle::After;
use crate::shared::Shared;
use crate::verdict::{Decided, Verdict};
use crate::{BoxFuture, Head};

/// A request that waits for its verdict or its turn, and the service that was ready for it.
pub(crate) struct WaitingRequest<Inner, B> {
    ready: Inner,
    request: Request<B>,
}

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    ///
    /// Dropping it ends the request: its charge remains, unless [`Charge`](crate::Charge) or [`Settle`](crate::Settle) says
    /// otherwise. If the store had not answered by then, it is not known whether the request was charged; where a limit is held
    /// or the charge depends on the outcome, the check completes on a task of its own, and is then released and settled.
    pub struct ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
    where
        Inner: Service<Request<ReqBody>>,
    {
        #[pin]
        state: State<Inner, Inner::Future, Inner::Error, ReqBody, ResBody, S, C, A>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<Inner, F, E, ReqBody, ResBody, S, C, A> {
        /// Waiting for the store.
        Deciding { deciding: BoxFuture<Decided>, held: Option<Box<WaitingRequest<Inner, ReqBody>>>, shared: Arc<Shared<S, C, A>> },
        /// Admitted by a leaky queue, and waiting for its turn.
        Waiting {
            turn: BoxFuture<()>,
            held: Option<Box<WaitingRequest<Inner, ReqBody>>>,
            lines: Lines,
            after: Option<After>,
        },
        /// Waiting for the inner service.
        Calling { #[pin] inner: F, lines: Lines, after: Option<After> },
        /// There is a response, and the charge or refund for its outcome is in progress.
        Settling { settling: BoxFuture<()>, answer: Option<Result<Response<ResBody>, E>> },
        /// There is a response.
        Answered { answer: Option<Response<ResBody>> },
    }
}

impl<Inner, ReqBody, ResBody, S, C, A> ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
where
    Inner: Service<Request<ReqBody>>,
{
    pub(crate) fn decided(
        decided: Decided,
        request: Request<ReqBody>,
        ready: &mut Inner,
        shared: &Arc<Shared<S, C, A>>,
    ) -> Self
    where
        Inner: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
        S: CounterStore + 'static,
        C: Timer + 'static,
        A: Answer<ResBody>,
        ReqBody: 'static,
    {
        Self { state: State::decided(decided, request, ready, shared) }
    }

    pub(crate) fn deciding(
        deciding: BoxFuture<Decided>,
        held: Box<WaitingRequest<Inner, ReqBody>>,
        shared: Arc<Shared<S, C, A>>,
    ) -> Self {
        Self { state: State::Deciding { deciding, held: Some(held), shared } }
    }
}

impl<Inner, ReqBody, ResBody, S, C, A> Future for ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
where
    Inner: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S: CounterStore + 'static,
    C: Timer + 'static,
    A: Answer<ResBody>,
    ReqBody: 'static,
    ResBody: 'static,
{
    type Output = Result<Response<ResBody>, Inner::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().state.poll(context)
    }
}

impl<Inner, F, E, ReqBody, ResBody, S, C, A> State<Inner, F, E, ReqBody, ResBody, S, C, A>
where
    Inner: Service<Request<ReqBody>, Response = Response<ResBody>, Future = F, Error = E> + Clone,
    F: Future<Output = Result<Response<ResBody>, E>>,
    S: CounterStore + 'static,
    C: Timer + 'static,
    A: Answer<ResBody>,
    ReqBody: 'static,
    ResBody: 'static,
{
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response<ResBody>, E>> {
        loop {
            let next = match self.as_mut().project() {
                StateProjection::Deciding { deciding, held, shared } => {
                    let decided = ready!(deciding.as_mut().poll(context));
                    let Some(mut held) = held.take() else { return Poll::Pending };
                    State::decided(decided, held.request, &mut held.ready, shared)
                }
                StateProjection::Waiting { turn, held, lines, after } => {
                    ready!(turn.as_mut().poll(context));
                    let Some(mut held) = held.take() else { return Poll::Pending };
                    let (lines, mut after) = (mem::take(lines), after.take());
                    after.as_mut().map(After::is_called);
                    State::Calling { inner: held.ready.call(held.request), lines, after }
                }
                StateProjection::Calling { inner, lines, after } => {
                    let mut answer = ready!(inner.poll(context));
                    if let Ok(answer) = &mut answer {
                        lines.write(answer.headers_mut());
                    }
                    let Some(after) = after.take() else { return Poll::Ready(answer) };
                    let (answer, settling) = after.finish(answer);
                    match settling {
                        None => return Poll::Ready(answer),
                        Some(settling) => State::Settling { settling, answer: Some(answer) },
                    }
                }
                StateProjection::Settling { settling, answer } => {
                    ready!(settling.as_mut().poll(context));
                    return answer.take().map_or(Poll::Pending, Poll::Ready);
                }
                StateProjection::Answered { answer } => {
                    return answer.take().map_or(Poll::Pending, |answer| Poll::Ready(Ok(answer)));
                }
            };
            self.set(next);
        }
    }
}

impl<Inner, F, E, ReqBody, ResBody, S, C, A> State<Inner, F, E, ReqBody, ResBody, S, C, A>
where
    Inner: Service<Request<ReqBody>, Response = Response<ResBody>, Future = F> + Clone,
    S: CounterStore + 'static,
    C: Timer + 'static,
    A: Answer<ResBody>,
    ReqBody: 'static,
{
    /// The state after the verdict on `request`, for which `ready` is ready.
    fn decided(
        decided: Decided,
        mut request: Request<ReqBody>,
        ready: &mut Inner,
        shared: &Arc<Shared<S, C, A>>,
    ) -> Self {
        let Decided { verdict, mut after } = decided;
        if let Some(after) = &mut after {
            request = after.begin(request, &shared.bodies);
        }
        match verdict {
            Verdict::Refuse(refused) => {
                Self::Answered { answer: Some(refuse(&*shared.answers, refused, Head::of(&request))) }
            }
            Verdict::Pass { lines, delay } if delay.is_zero() => {
                Self::Calling { inner: ready.call(request), lines, after }
            }
            Verdict::Pass { lines, delay } => {
                let limiter = shared.core.limiter.clone();
                let turn = Box::pin(async move { limiter.clock().sleep(delay).await });
                Self::Waiting { turn, held: Some(WaitingRequest::take(ready, request)), lines, after }
            }
        }
    }
}

impl<Inner: Clone, B> WaitingRequest<Inner, B> {
    /// Takes the service that is ready, and leaves a clone, which need not be.
    pub(crate) fn take(ready: &mut Inner, request: Request<B>) -> Box<Self> {
        let clone = ready.clone();
        Box::new(Self { ready: mem::replace(ready, clone), request })
    }
}

impl<Inner, ReqBody, ResBody, S, C, A> fmt::Debug for ResponseFuture<Inner, ReqBody, ResBody, S, C, A>
where
    Inner: Service<Request<ReqBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
