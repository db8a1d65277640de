//! Requests: what a limiter checks.

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::AskedKey;
use crate::limit::Ban;
use crate::{Algorithm, Claim, Claims, Limit, LimitError, Limits, MeterId, Mode, Timestamp};

/// What to check: a key, its cost, and the limits if they depend on the request.
///
/// A string or byte slice is a request of cost 1 under the limiter's own limits, so most programs never name this type:
///
/// ```
/// use ratelimit_core::{Limits, Request};
///
/// let simple = Request::from("user:7");
/// let weighted = Request::new("user:7").cost(5);
///
/// // Under the limits of the customer's plan, which you have read once:
/// let plan: Limits = "10/s name plan; 10000/day name daily".parse()?;
/// let planned = Request::new("user:7").limits(&plan);
///
/// // Two identifiers under limits of their own, admitted both or not at all:
/// let per_address: Limits = "1000/min name address".parse()?;
/// let both = Request::new("user:7").limits(&plan).and(Request::new("192.0.2.1").limits(&per_address));
/// # let _ = (simple, weighted, planned, both);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `'k` is the lifetime of the keys, which are needed only until there is a decision. `'l` is the lifetime of the
/// limits, which the decision borrows.
#[derive(Clone, Debug)]
pub struct Request<'k, 'l> {
    parts: RequestKeys<'k, 'l>,
}

/// Nearly always there is one part. It is not stored in a list, so that a check takes it in registers.
#[derive(Clone, Debug)]
enum RequestKeys<'k, 'l> {
    One(RequestKey<'k, 'l>),
    Several(Vec<RequestKey<'k, 'l>>),
}

/// One key of a request.
#[derive(Clone)]
pub(super) struct RequestKey<'k, 'l> {
    key: &'k [u8],
    cost: u64,
    limits: Option<Cow<'l, Limits>>,
}

impl std::fmt::Debug for RequestKey<'_, '_> {
    /// Keys identify people: shows only the length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key of {} bytes, cost {}", self.key.len(), self.cost)
    }
}

impl<'k, 'l> Request<'k, 'l> {
    /// A request of one unit for `key`.
    #[inline]
    pub fn new<K: AsRef<[u8]> + ?Sized>(key: &'k K) -> Self {
        Self { parts: RequestKeys::One(RequestKey { key: key.as_ref(), cost: 1, limits: None }) }
    }

    /// Sets the cost to `units` instead of one; of a request with several keys, the cost of each key that it has so far.
    ///
    /// A cost of zero leaves every count as it was, and always fits unless the key is [banned](crate::Algorithm::Ban). Use it
    /// if you know nothing of the cost before the work: you can [settle](crate::RateLimiter::settle) the decision at its true
    /// cost.
    #[must_use]
    #[inline]
    pub fn cost(mut self, units: u64) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.cost = units);
        self
    }

    /// Lowers each cost to at most this many units.
    pub(super) fn cost_at_most(mut self, units: u64) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.cost = part.cost.min(units));
        self
    }

    /// Uses these limits instead of the limiter's own: `&Limits`, or [`Limits`] or a [`Limit`] that the request owns. In a
    /// request with several keys, they apply to each key that it has so far.
    ///
    /// Parse limits once and pass them by reference: parsing and owning limits allocate, borrowing does not.
    ///
    /// ```
    /// # use ratelimit_core::{CheckError, CounterStore, Limit, Limits, RateLimiter, Request};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let plan: Limits = "10/s; 1000/h".parse()?;
    /// limiter.check(Request::new("user:7").limits(&plan)).await?;
    ///
    /// // What is used only here needs no variable:
    /// limiter.check(Request::new("migration").limits("1/min".parse::<Limit>()?)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn limits(mut self, limits: impl Into<Cow<'l, Limits>>) -> Self {
        let limits = limits.into();
        self.parts_mut().iter_mut().for_each(|part| part.limits = Some(limits.clone()));
        self
    }

    /// Adds the keys of `other`, with their costs and limits: either all keys are admitted, or none.
    #[must_use]
    pub fn and(self, other: impl Into<Request<'k, 'l>>) -> Self {
        let mut parts = match self.parts {
            RequestKeys::One(part) => vec![part],
            RequestKeys::Several(parts) => parts,
        };
        match other.into().parts {
            RequestKeys::One(part) => parts.push(part),
            RequestKeys::Several(others) => parts.extend(others),
        }
        Self { parts: RequestKeys::Several(parts) }
    }

    #[inline]
    fn parts(&self) -> &[RequestKey<'k, 'l>] {
        match &self.parts {
            RequestKeys::One(part) => std::slice::from_ref(part),
            RequestKeys::Several(parts) => parts,
        }
    }

    #[inline]
    fn parts_mut(&mut self) -> &mut [RequestKey<'k, 'l>] {
        match &mut self.parts {
            RequestKeys::One(part) => std::slice::from_mut(part),
            RequestKeys::Several(parts) => parts,
        }
    }

    /// Returns a simple request in its simple form, of which nothing has to be dropped. Returns any other request as `Err`.
    #[inline]
    pub(super) fn into_simple(self) -> Result<Simple<'k, 'l>, Self> {
        self.as_simple().ok_or(self)
    }

    /// Like [`into_simple`](Self::into_simple), for a request that is still needed.
    #[inline]
    pub(super) fn as_simple(&self) -> Option<Simple<'k, 'l>> {
        match &self.parts {
            RequestKeys::One(RequestKey { key, cost, limits: None }) => {
                Some(Simple { key, cost: *cost, limits: None })
            }
            RequestKeys::One(RequestKey { key, cost, limits: Some(Cow::Borrowed(limits)) }) => {
                Some(Simple { key, cost: *cost, limits: Some(limits) })
            }
            _ => None,
        }
    }

    /// This request with its limits as they are at `now`, if any of them depends on the time. `own` are the limiter's.
    #[inline]
    pub(super) fn at(&self, now: Timestamp, own: &Limits) -> Option<Self> {
        let depends = self.parts().iter().any(|part| part.limits(own).depend_on_time());
        depends.then(|| self.clone().with_each_limit(own, |limit, _| limit.at(now)))
    }

    /// This request with its limits changed; `change` gets the cost under the limit, too.
    #[cold]
    fn with_each_limit(mut self, own: &Limits, change: impl Fn(&Limit, u64) -> Limit) -> Self {
        for part in self.parts_mut() {
            let cost = part.cost;
            part.limits = Some(Cow::Owned(part.limits(own).map(|limit| change(limit, cost))));
        }
        self
    }

    /// Reduces the bursts of queues, so that the request is refused if its turn would come later than `longest_wait` from
    /// now. `own` are the limiter's limits.
    pub(super) fn within(self, longest_wait: Duration, own: &'l Limits) -> Self {
        if !self.parts().iter().any(|part| part.limits(own).have_queues()) {
            return self;
        }
        self.with_each_limit(own, |limit, cost| limit.within(longest_wait, cost))
    }

    /// The claims that this request makes, in the order of its keys and their limits.
    #[inline]
    pub(super) fn claims<'s>(&'s self, namespace: &'s str, own: &'s Limits) -> SmallVec<[Claim<'s>; 4]> {
        let mut claims = SmallVec::new();
        for part in self.parts() {
            for limit in part.limits(own).iter() {
                let id = MeterId { namespace, scope: limit.scope(), key: part.key };
                let cost = limit.cost_of(part.cost);
                claims.push(Claim { id, cost, meter: limit.meter_for(part.key) });
            }
        }
        claims
    }

    /// Builds [`Claims`] from this request's claims. `own` are the limiter's limits. If a cost is above a limit, the mode is
    /// [`Mode::Peek`], since the request can never be charged.
    pub(super) fn slice<'c>(
        &self,
        claims: &'c [Claim<'c>],
        own: &Limits,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Claims<'c>, LimitError> {
        let never_fits = |claim: &Claim<'_>| claim.cost > claim.meter.limit();
        let mode = if mode == Mode::Charge && claims.iter().any(never_fits) { Mode::Peek } else { mode };
        // Claims on one key are never on the same meter: `Limits::new` has checked that.
        match &self.parts {
            RequestKeys::One(_) if !claims.is_empty() => Ok(Claims::known(now, mode, claims)),
            // A key that nothing limits is a mistake, even if others are limited.
            RequestKeys::Several(parts) if parts.iter().any(|part| part.limits(own).is_empty()) => {
                Err(LimitError::NoLimits)
            }
            _ => Claims::new(now, mode, claims),
        }
    }

    /// The names of the meters under concurrency limits from which it needs units. A request that can never be admitted
    /// has none.
    pub(super) fn held_meters<'s>(
        &'s self,
        namespace: &'s str,
        own: &'s Limits,
    ) -> impl Iterator<Item = MeterId<'s>> {
        let never_fits = |part: &RequestKey<'_, '_>| {
            part.limits(own).iter().any(|limit| limit.cost_of(part.cost) > limit.burst())
        };
        let parts = if self.parts().iter().any(never_fits) { &[] } else { self.parts() };
        parts.iter().filter(|part| part.cost > 0).flat_map(move |part| {
            let held = part.limits(own).iter().filter(|limit| limit.algorithm() == Algorithm::Concurrency);
            held.map(move |limit| MeterId { namespace, scope: limit.scope(), key: part.key })
        })
    }

    /// The bytes of a key.
    pub(crate) fn key(&self, index: usize) -> Option<&'k [u8]> {
        self.parts().get(index).map(|part| part.key)
    }

    /// The bans among the limits, each with its key.
    pub(super) fn bans(&self, own: &Limits) -> Vec<(&'k [u8], Ban)> {
        let bans = |part: &RequestKey<'k, 'l>| {
            part.limits(own).iter().filter_map(Limit::ban_meters).collect::<Vec<_>>()
        };
        self.parts().iter().flat_map(|part| bans(part).into_iter().map(|ban| (part.key, ban))).collect()
    }

    /// The keys, as parts of a decision.
    pub(super) fn keys(&self, own: &'l Limits) -> impl Iterator<Item = AskedKey<'k, 'l>> {
        self.parts().iter().map(|part| {
            let limits = part.limits.clone().unwrap_or(Cow::Borrowed(own));
            AskedKey { bytes: part.key, cost: part.cost, limits }
        })
    }
}

/// The form of most requests: one key and borrowed limits.
#[derive(Clone, Copy)]
pub(super) struct Simple<'k, 'l> {
    pub(super) key: &'k [u8],
    pub(super) cost: u64,
    pub(super) limits: Option<&'l Limits>,
}

impl<'k, 'l> From<Simple<'k, 'l>> for Request<'k, 'l> {
    #[inline]
    fn from(Simple { key, cost, limits }: Simple<'k, 'l>) -> Self {
        Self { parts: RequestKeys::One(RequestKey { key, cost, limits: limits.map(Cow::Borrowed) }) }
    }
}

impl<'l> RequestKey<'_, 'l> {
    #[inline]
    fn limits<'s>(&'s self, own: &'s Limits) -> &'s Limits {
        self.limits.as_deref().unwrap_or(own)
    }
}

impl<'k, K: AsRef<[u8]> + ?Sized> From<&'k K> for Request<'k, '_> {
    #[inline]
    fn from(key: &'k K) -> Self {
        Self::new(key)
    }
}

impl<'k, 'l> From<&Request<'k, 'l>> for Request<'k, 'l> {
    #[inline]
    fn from(request: &Request<'k, 'l>) -> Self {
        request.clone()
    }
}
