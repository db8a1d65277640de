//! The limiter: turns limits, keys and costs into claims, and a store's answers into decisions.

mod acquire;
mod ban;
mod check_now;
mod error;
mod now;
mod partial;
#[cfg(feature = "tokio")]
mod permit;
mod release;
mod request;
mod reserve;
mod return_units;
mod settle;
mod waiters;

pub use acquire::Acquire;
pub use error::{AcquireError, CheckError};
#[cfg(feature = "tokio")]
pub use permit::Permit;
pub use request::Request;
use request::Simple;
use waiters::Waiters;

use crate::decision::{Parts, ShortKey, ShortParts};
use crate::{
    Answer, Claims, Clock, CounterStore, Decision, ErrorKind, IntoLimits, LimitError, Limits, Mode,
    StoreError, SystemClock, Timestamp,
};

/// Checks requests against limits, on the store of your choice.
///
/// ```
/// # use ratelimit_core::{CheckError, CounterStore, Limit, RateLimiter, Request};
/// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(store, "100/min".parse::<Limit>()?);
///
/// let decision = limiter.check("user:7").await?;
/// if !decision.allowed() {
///     println!("wait {:?}", decision.retry_after());
/// }
///
/// // A request that costs more, and turns out to have been in vain:
/// let decision = limiter.check(Request::new("user:7").cost(5)).await?;
/// limiter.refund(&decision).await?;
/// # Ok(())
/// # }
/// ```
///
/// Each check takes [`Into<Request>`](Request): a `&str`, bytes, a [`&Key`](crate::Key), or a request with a cost, its own
/// limits or several keys.
///
/// Share a limiter behind an `Arc`, or create several limiters on a shared store.
#[derive(Clone, Debug)]
pub struct RateLimiter<S, C = SystemClock> {
    store: S,
    limits: Limits,
    namespace: Box<str>,
    clock: C,
    waiters: Waiters,
}

impl<S: CounterStore> RateLimiter<S> {
    /// Creates a limiter on `store`, with the system's clock and the empty namespace.
    pub fn new(store: S, limits: impl IntoLimits) -> Self {
        Self {
            store,
            limits: limits.into_limits(),
            namespace: "".into(),
            clock: SystemClock::new(),
            waiters: Waiters::default(),
        }
    }

    /// Creates a limiter whose requests all have their own limits ([`Request::limits`]). A check of a request without
    /// limits returns [`LimitError::NoLimits`].
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, Limit, RateLimiter, Request};
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::without_limits(store);
    /// let limit: Limit = "10/s".parse()?;
    /// let decision = limiter.check(Request::new("user:7").limits(limit)).await?;
    /// # let _ = decision;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_limits(store: S) -> Self {
        Self::new(store, Limits::none())
    }
}

/// [`RateLimiter::without_limits`].
impl<S: CounterStore> From<S> for RateLimiter<S> {
    fn from(store: S) -> Self {
        Self::without_limits(store)
    }
}

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Replaces the clock.
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> RateLimiter<S, D> {
        RateLimiter {
            store: self.store,
            limits: self.limits,
            namespace: self.namespace,
            clock,
            waiters: self.waiters,
        }
    }

    /// Sets the namespace.
    ///
    /// Limiters on one store count together if namespace, key and [scope](crate::Limit::scope) of the limit are the same.
    /// Any text works; ASCII letters, digits and punctuation keep names readable in the store.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into().into_boxed_str();
        self
    }

    /// The limits of requests that do not have their own.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Decides a request, and charges it if it is allowed. A refusal charges nothing.
    ///
    /// The key is needed only during the call. The [`Decision`] borrows the limits.
    ///
    /// If you drop the future, the request may have been charged or not.
    ///
    /// # Errors
    /// If the store did not answer ([`CheckError::Store`]), or if the request cannot be checked
    /// ([`CheckError::Limits`]): it has no limits, more than 64, or the same meter twice.
    pub async fn check<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        let request = request.into();
        let decision = self.decide(&request, self.clock.now(), Mode::Charge).await?;
        Ok(self.counted(&request, decision).await)
    }

    /// Counts the decision for bans if it is a refusal, and returns it.
    async fn counted<'l>(&self, request: &Request<'_, 'l>, mut decision: Decision<'l>) -> Decision<'l> {
        if !decision.allowed() && decision.has_bans() {
            // The request stays refused even if counting fails. Boxed, because it is rare.
            let _ = Box::pin(self.count_refusal(request, &mut decision)).await;
        }
        decision
    }

    /// Decides many independent requests in as few round trips as the store can, in most stores one. Returns one result for
    /// each request, in their order.
    ///
    /// Each request is admitted or refused by itself, and counts what the requests before it have charged. Refusals count
    /// for bans only when all requests are decided, each in round trips of its own.
    pub async fn check_many<'k, 'l, R: Into<Request<'k, 'l>>>(
        &'l self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision<'l>, CheckError>> {
        let now = self.clock.now();
        let at_now = |request: Request<'k, 'l>| request.at(now, &self.limits).unwrap_or(request);
        let requests: Vec<Request<'k, 'l>> = requests.into_iter().map(Into::into).map(at_now).collect();
        let claims: Vec<_> =
            requests.iter().map(|request| request.claims(&self.namespace, &self.limits)).collect();
        let each = requests.iter().zip(&claims);
        let checked: Vec<_> =
            each.map(|(request, claims)| request.slice(claims, &self.limits, now, Mode::Charge)).collect();
        let slices: Vec<Claims<'_>> = checked.iter().flatten().copied().collect();
        let answers = if slices.is_empty() { Vec::new() } else { self.store.claim_many(&slices).await };
        let mut answers = answers.into_iter();
        let mut decide = |request, slice: Result<_, LimitError>| {
            slice?;
            let answer = answers.next().unwrap_or_else(|| Err(no_answer()))?;
            Ok(self.decision(request, answer)?)
        };
        let mut decisions = Vec::with_capacity(requests.len());
        for (request, slice) in requests.iter().zip(checked) {
            decisions.push(match decide(request, slice) {
                Ok(decision) => Ok(self.counted(request, decision).await),
                Err(error) => Err(error),
            });
        }
        decisions
    }

    /// Returns the status of a key, and charges nothing. The decision is that on a request of cost zero: it reports what
    /// remains, and is always allowed unless the key is [banned](crate::Algorithm::Ban).
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn peek<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide(&request.into().cost(0), self.clock.now(), Mode::Peek).await
    }

    /// Returns whether [`check`](Self::check) would allow this request now, and charges nothing.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn would_allow<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide(&request.into(), self.clock.now(), Mode::Peek).await
    }

    /// Charges a request whether it fits or not, for what has already been used. The decision is always allowed; later
    /// requests have to wait longer.
    ///
    /// A sliding log or a concurrency limit keeps only the newest units, as many as its quota, and deletes older ones. Under
    /// a concurrency limit these may be units of holders that are still at work. Then more are at work than the limit allows:
    /// to take units that are held, use [`check`](Self::check) or [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn charge<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
    ) -> Result<Decision<'l>, CheckError> {
        self.decide(&request.into(), self.clock.now(), Mode::Force).await
    }

    /// Resets the counts of the request's keys under its limits, and nothing else. This also lifts bans, and forgets
    /// earlier bans and counted refusals.
    ///
    /// # Errors
    /// Like [`check`](Self::check).
    pub async fn reset<'k, 'l>(&'l self, request: impl Into<Request<'k, 'l>>) -> Result<(), CheckError> {
        let (request, now) = (request.into(), self.clock.now());
        let request = request.at(now, &self.limits).unwrap_or(request);
        let claims = request.claims(&self.namespace, &self.limits);
        self.store.reset(request.slice(&claims, &self.limits, now, Mode::Force)?).await?;
        self.forget_offences(&request).await
    }

    async fn decide<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Decision<'l>, CheckError> {
        let at_now = request.at(now, &self.limits);
        let request = at_now.as_ref().unwrap_or(request);
        let claims = request.claims(&self.namespace, &self.limits);
        let answer = self.store.claim(request.slice(&claims, &self.limits, now, mode)?).await?;
        Ok(self.decision(request, answer)?)
    }

    /// Turns the store's answer to a request into a decision.
    pub(super) fn decision<'l>(
        &'l self,
        request: &Request<'_, 'l>,
        answer: Answer,
    ) -> Result<Decision<'l>, StoreError> {
        // The key is kept only if it was charged. `None` means that it is too long, or that there are too many limits, or not
        // one verdict for each; the last becomes an error in `Decision::new`.
        if let Some(Simple { key, cost, limits }) = request.as_simple()
            && let Some(kept_key) = ShortKey::of(if answer.charged { key } else { &[] })
            && let limits = limits.unwrap_or(&self.limits)
            && let Some(parts) = ShortParts::new(&self.namespace, kept_key, cost, limits, &answer.verdicts)
        {
            return Ok(Decision::of(answer.now, answer.admitted, answer.charged, Parts::Short(parts)));
        }
        Decision::new(answer, &self.namespace, request.keys(&self.limits))
    }
}

/// The error if a store has returned fewer answers than it got sets of claims.
fn no_answer() -> StoreError {
    StoreError::new("the store", ErrorKind::Server, "it returned fewer answers than requested")
        .maybe_applied()
}
