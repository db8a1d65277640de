//! The limiter: turns limits, keys and costs into claims, and a store's answers into decisions.

mod acquire;
mod error;
mod request;

pub use acquire::Acquire;
pub use error::{AcquireError, CheckError};
use request::Part;
pub use request::Request;

use crate::{
    Answer, Claim, Claims, Clock, CounterStore, Decision, Limits, Meter, MeterId, Mode, SyncCounterStore,
    SystemClock, Timestamp,
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
/// // A request that costs more:
/// limiter.check(Request::new("user:7").cost(5)).await?;
/// # Ok(())
/// # }
/// ```
///
/// Every method takes anything that is [`Into<Request>`](Request): a `&str`, bytes, a [`Key`](crate::Key), or a request
/// with a cost, limits of its own or several keys.
///
/// Share it behind an `Arc`, or give each part of the program one of its own on a shared store.
#[derive(Clone, Debug)]
pub struct RateLimiter<S, C = SystemClock> {
    store: S,
    limits: Limits,
    namespace: Box<str>,
    clock: C,
}

impl<S: CounterStore> RateLimiter<S> {
    /// A limiter on `store`, on the system's clock, in the empty name space.
    pub fn new(store: S, limits: impl Into<Limits>) -> Self {
        Self { store, limits: limits.into(), namespace: "".into(), clock: SystemClock::new() }
    }
}

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// The same limiter on another clock.
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> RateLimiter<S, D> {
        RateLimiter { store: self.store, limits: self.limits, namespace: self.namespace, clock }
    }

    /// The same limiter in a name space of its own.
    ///
    /// Limiters that share a store count together where name space, kind of limit and key are the same. ASCII letters,
    /// digits and punctuation make it readable in the store; any text works.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into().into_boxed_str();
        self
    }

    /// The limits that apply where a request brings none of its own.
    pub fn limits(&self) -> &Limits {
        &self.limits
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
    /// # Errors
    /// If the store did not answer, or if the request names one meter twice.
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(&request.into(), Mode::Charge).await
    }

    /// Decides many independent requests in as few trips to the store as it can; most stores make one.
    ///
    /// They are decided in their order, each for itself.
    pub async fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, CheckError>> {
        let now = self.clock.now();
        let requests: Vec<Request<'a>> = requests.into_iter().map(Into::into).collect();
        let slices: Vec<_> =
            requests.iter().map(|request| request.claims(&self.namespace, &self.limits)).collect();
        let asked = requests.iter().zip(&slices);
        let prepared: Vec<_> = asked
            .map(|(request, claims)| prepare(now, Mode::Charge, claims, request.has_one_key()))
            .collect();
        let asked: Vec<Claims<'_>> = prepared.iter().filter_map(Prepared::claims).collect();
        let answers = if asked.is_empty() { Vec::new() } else { self.store.claim_many(&asked).await };
        let mut answers = answers.into_iter();
        prepared.into_iter().map(|prepared| prepared.decision(|| answers.next())).collect()
    }

    /// Looks at how a key stands, and charges nothing: a request of cost zero. It is always allowed; what it tells is
    /// what remains.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(&request.into().cost(0), Mode::Peek).await
    }

    /// Tells whether [`check`](Self::check) would allow this request now, and charges nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn would_allow<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(&request.into(), Mode::Peek).await
    }

    /// Charges a request whether it fits or not: what was used has been used. Later requests wait longer for it.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn charge<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide(&request.into(), Mode::Force).await
    }

    /// Gives back what `decision` charged for `request`, as if it had never come.
    ///
    /// What has left the limit's memory since then (its window has passed, its tokens have come back) is not given out
    /// a second time. Nothing happens for a decision that charged nothing. Give back once: a store cannot tell a second
    /// time from another request's.
    ///
    /// # Errors
    /// As [`check`](Self::check), and if `decision` is not one of `request`.
    pub async fn refund<'a>(
        &self,
        request: impl Into<Request<'a>>,
        decision: &Decision,
    ) -> Result<(), CheckError> {
        self.give_back(&request.into(), decision, |cost| cost).await
    }

    /// Settles a request that was charged an estimate: its true cost was `units` for each of its limits.
    ///
    /// What was charged too much is given back, what was charged too little is charged now, even beyond the limit.
    /// Nothing happens for a decision that charged nothing.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, RateLimiter, Request};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let request = Request::new("user:7").cost(1_000); // tokens, estimated from the prompt
    /// let decision = limiter.check(&request).await?;
    /// if decision.allowed() {
    ///     let used = 1_370; // tokens that the answer really took
    ///     limiter.settle(&request, &decision, used).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`refund`](Self::refund).
    pub async fn settle<'a>(
        &self,
        request: impl Into<Request<'a>>,
        decision: &Decision,
        units: u64,
    ) -> Result<(), CheckError> {
        let request = request.into();
        if !decision.charged() {
            return Ok(());
        }
        self.give_back(&request, decision, |cost| cost.saturating_sub(units)).await?;
        let mut claims = request.claims(&self.namespace, &self.limits);
        claims.iter_mut().for_each(|claim| claim.cost = units.saturating_sub(claim.cost));
        claims.retain(|claim| claim.cost > 0);
        if !claims.is_empty() {
            self.store.claim(Claims::new(self.clock.now(), Mode::Force, &claims)?).await?;
        }
        Ok(())
    }

    /// Forgets what was counted for the request's keys under its limits, and nothing else.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<(), CheckError> {
        let request = request.into();
        let claims = request.claims(&self.namespace, &self.limits);
        Ok(self.store.reset(Claims::new(self.clock.now(), Mode::Force, &claims)?).await?)
    }

    async fn decide(&self, request: &Request<'_>, mode: Mode) -> Result<Decision, CheckError> {
        let part = request.only_part();
        if let Some((id, cost, meter)) = part.and_then(|part| self.only_claim(part, mode)) {
            let claim = [Claim { id, cost, meter: *meter }];
            let answer = self.store.claim(Claims::known(self.clock.now(), mode, &claim)).await?;
            return Ok(Decision::new(answer));
        }
        let claims = request.claims(&self.namespace, &self.limits);
        let prepared = prepare(self.clock.now(), mode, &claims, request.has_one_key());
        let answer = match prepared.claims() {
            Some(claims) => Some(self.store.claim(claims).await),
            None => None,
        };
        prepared.decision(|| answer)
    }

    /// The claim that is made on this key, if it is only one and can fit.
    #[inline]
    fn only_claim<'s>(&'s self, part: Part<'s>, mode: Mode) -> Option<(MeterId<'s>, u64, &'s Meter)> {
        let (key, cost, limit) = part.only_claim(&self.limits)?;
        let meter = limit.meter_of_all()?;
        // No limit is less than one.
        if cost > 1 && cost > meter.limit() && mode != Mode::Force {
            return None;
        }
        let id = MeterId { namespace: &self.namespace, scope: limit.scope(), key };
        Some((id, cost, meter))
    }

    async fn give_back(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        units: impl Fn(u64) -> u64,
    ) -> Result<(), CheckError> {
        if !decision.charged() {
            return Ok(());
        }
        let refunds = request.refunds(&self.namespace, &self.limits, decision.verdicts(), units)?;
        if !refunds.is_empty() {
            self.store.refund(self.clock.now(), &refunds).await?;
        }
        Ok(())
    }
}

/// The same on the spot, for stores whose state is in this process.
impl<S: SyncCounterStore, C: Clock> RateLimiter<S, C> {
    /// [`check`](Self::check) without waiting.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    #[inline(always)]
    pub fn check_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(&request.into(), Mode::Charge)
    }

    /// [`peek`](Self::peek) without waiting.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn peek_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(&request.into().cost(0), Mode::Peek)
    }

    /// [`would_allow`](Self::would_allow) without waiting.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn would_allow_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(&request.into(), Mode::Peek)
    }

    /// [`charge`](Self::charge) without waiting.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn charge_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, CheckError> {
        self.decide_now(&request.into(), Mode::Force)
    }

    /// [`reset`](Self::reset) without waiting.
    ///
    /// # Errors
    /// If the request names one meter twice.
    pub fn reset_now<'a>(&self, request: impl Into<Request<'a>>) -> Result<(), CheckError> {
        let request = request.into();
        let claims = request.claims(&self.namespace, &self.limits);
        self.store.reset_now(Claims::new(self.clock.now(), Mode::Force, &claims)?);
        Ok(())
    }

    /// [`refund`](Self::refund) without waiting.
    ///
    /// # Errors
    /// If `decision` is not one of `request`.
    pub fn refund_now<'a>(
        &self,
        request: impl Into<Request<'a>>,
        decision: &Decision,
    ) -> Result<(), CheckError> {
        if decision.charged() {
            let request = request.into();
            let refunds = request.refunds(&self.namespace, &self.limits, decision.verdicts(), |cost| cost)?;
            self.store.refund_now(self.clock.now(), &refunds);
        }
        Ok(())
    }

    #[inline(always)]
    fn decide_now(&self, request: &Request<'_>, mode: Mode) -> Result<Decision, CheckError> {
        let Some(part) = request.only_part() else {
            return self.decide_all_now(request, mode);
        };
        let Some((id, cost, meter)) = self.only_claim(part, mode) else {
            return self.decide_all_now(&part.into(), mode);
        };
        let now = self.clock.now();
        self.store.claim_one_now(now, mode, &id, cost, meter, |decided| {
            let (admitted, verdict) = decided?;
            Ok(Decision::of_one(now, mode, admitted, verdict))
        })
    }

    fn decide_all_now(&self, request: &Request<'_>, mode: Mode) -> Result<Decision, CheckError> {
        let claims = request.claims(&self.namespace, &self.limits);
        let prepared = prepare(self.clock.now(), mode, &claims, request.has_one_key());
        prepared.decision(|| prepared.claims().map(|claims| self.store.claim_now(claims)))
    }
}

/// What to do with the claims of a request.
#[derive(Clone, Copy)]
enum Prepared<'a> {
    /// Put them to the store.
    Ask(Claims<'a>),
    /// They cannot fit, ever; the store need not be asked.
    Never(Claims<'a>),
    /// They are none that a store can be asked.
    Invalid(crate::InvalidClaims),
}

#[inline]
fn prepare<'a>(now: Timestamp, mode: Mode, claims: &'a [Claim<'a>], one_key: bool) -> Prepared<'a> {
    let asked = if one_key { Ok(Claims::known(now, mode, claims)) } else { Claims::new(now, mode, claims) };
    match asked {
        Err(error) => Prepared::Invalid(error),
        Ok(asked) if mode != Mode::Force && claims.iter().any(never_fits) => Prepared::Never(asked),
        Ok(asked) => Prepared::Ask(asked),
    }
}

fn never_fits(claim: &Claim<'_>) -> bool {
    claim.cost > claim.meter.limit()
}

impl<'a> Prepared<'a> {
    fn claims(&self) -> Option<Claims<'a>> {
        match self {
            Self::Ask(claims) => Some(*claims),
            Self::Never(_) | Self::Invalid(_) => None,
        }
    }

    fn decision(
        self,
        answer: impl FnOnce() -> Option<Result<Answer, crate::StoreError>>,
    ) -> Result<Decision, CheckError> {
        match self {
            Self::Invalid(error) => Err(error.into()),
            Self::Never(claims) => Ok(Decision::new(refusal_for_ever(&claims))),
            Self::Ask(claims) => match answer() {
                Some(answer) => Ok(Decision::new(answer?)),
                None => Ok(Decision::new(refusal_for_ever(&claims))),
            },
        }
    }
}

/// The answer to a cost that is above a limit. The store is not asked, so nothing is known of what remains: it says
/// zero, for nothing of this request can be had.
fn refusal_for_ever(claims: &Claims<'_>) -> Answer {
    let now = claims.now();
    let verdict = |claim: &Claim<'_>| {
        let fits = !never_fits(claim);
        let mut verdict = claim.meter.verdict(&claim.meter.fresh(), claim.cost, now, None);
        verdict.remaining = if fits { verdict.remaining } else { 0 };
        verdict
    };
    Answer { admitted: false, charged: false, now, verdicts: claims.iter().map(verdict).collect() }
}
