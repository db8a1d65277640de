//! Decisions: what a limiter returns, and what it charged.

mod ban;
mod charges;
mod heap;
mod in_bytes;
mod leases;
mod parts;
mod settlement;
mod short_key;
mod status;
mod taken;

pub(crate) use charges::Charges;
use charges::Shared;
use parts::Claimed;
pub(crate) use parts::{AskedKey, InPlace, Parts};
pub(crate) use settlement::Settlement;
pub(crate) use short_key::{ChargedKeys, ShortKey};
pub use status::LimitStatus;

use std::fmt;
use std::time::Duration;

use crate::{Answer, ErrorKind, StoreError, Timestamp};

/// The result of a check: whether the request may pass, and the status of its limits.
///
/// If several limits were checked, [`limit`](Self::limit), [`remaining`](Self::remaining) and
/// [`reset_after`](Self::reset_after) are those of the limit that [decided](Self::decided_by): among the limits that
/// refused, the one with the longest wait; if all admitted, the one with the least remaining. [`each`](Self::each)
/// returns all of them.
///
/// A decision knows what it charged: which keys, under which limits, how many units. So
/// [`RateLimiter::refund`](crate::RateLimiter::refund) and [`settle`](crate::RateLimiter::settle) need no other
/// argument, and they return what was charged, even if the limits have changed since. What one check has taken is given
/// back at most once, whichever of these calls you make, and whether you make them on the decision or on a clone.
///
/// A decision borrows the limits of the limiter or of the request. If the compiler says that the limiter *does not live long
/// enough* or has to be borrowed for `'static`, call [`into_owned`](Self::into_owned), right after the check: in a struct, for
/// a task, and for an HTTP request's extensions. The type of what you keep is `Decision<'static>`:
///
/// ```
/// # use ratelimit_core::{CheckError, CounterStore, Decision, RateLimiter};
/// struct Job {
///     decision: Decision<'static>,
/// }
///
/// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<Job, CheckError> {
/// let decision = limiter.check("user:7").await?;
/// Ok(Job { decision: decision.into_owned() })
/// # }
///
/// # use std::sync::Arc;
/// # fn spawn(_: impl Future<Output = ()> + Send + 'static) {}
/// # async fn in_a_task(limiter: Arc<RateLimiter<impl CounterStore + 'static>>) -> Result<(), CheckError> {
/// let decision = limiter.check("user:7").await?.into_owned();
/// let limiter = limiter.clone();
/// spawn(async move {
///     let _ = limiter.settle(&decision, 370).await;
/// });
/// # Ok(())
/// # }
/// # struct Extensions;
/// # impl Extensions { fn insert<T: Clone + Send + Sync + 'static>(&mut self, _: T) {} }
/// # async fn in_extensions(limiter: RateLimiter<impl CounterStore>, extensions: &mut Extensions) -> Result<(), CheckError> {
/// let decision = limiter.check("user:7").await?;
/// extensions.insert(decision.into_owned());
/// # Ok(())
/// # }
/// ```
pub struct Decision<'l> {
    admitted: bool,
    charged: bool,
    now: Timestamp,
    parts: Parts<'l>,
    /// What it has taken and not given back, in common with its clones.
    taken: Shared,
}

impl<'l> Decision<'l> {
    /// The decision on these keys. Their bytes are kept if they were charged.
    ///
    /// # Errors
    /// If the store did not return one verdict for each of their limits.
    pub(crate) fn new<'k>(
        answer: Answer,
        namespace: &'l str,
        keys: impl Iterator<Item = AskedKey<'k, 'l>>,
    ) -> Result<Self, StoreError> {
        let Answer { admitted, charged, now, verdicts } = answer;
        let given = verdicts.len();
        let parts = Parts::new(namespace, keys.collect(), verdicts, charged).map_err(|limits| {
            let message = format!("it returned {given} verdicts for {limits} limits");
            StoreError::new("the store", ErrorKind::Server, message).maybe_applied()
        })?;
        Ok(Self { admitted, charged, now, parts, taken: Shared::default() })
    }

    /// The decision of these parts.
    #[inline(always)]
    pub(crate) fn of(now: Timestamp, admitted: bool, charged: bool, parts: Parts<'l>) -> Self {
        Self { admitted, charged, now, parts, taken: Shared::default() }
    }

    /// Returns the same decision without borrows, so you can keep it for as long as you like.
    #[must_use]
    pub fn into_owned(self) -> Decision<'static> {
        let Self { admitted, charged, now, parts, taken } = self;
        Decision { admitted, charged, now, parts: parts.into_owned(), taken }
    }

    /// Whether the request may pass.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.admitted
    }

    /// How many units the request may use: its cost if it is allowed, the largest if its keys have different costs; zero
    /// after a refusal. After [`take_up_to`](crate::RateLimiter::take_up_to), how many of the requested units it got.
    pub fn granted(&self) -> u64 {
        if self.admitted { self.parts.cost() } else { 0 }
    }

    /// Whether the request was charged. False for a refusal, a peek, and a request that [`Open`](crate::layers::Open) has
    /// admitted. True for an allowed request of cost zero, which leaves every count as it was: you can
    /// [settle](crate::RateLimiter::settle) it at its true cost like any other.
    pub fn charged(&self) -> bool {
        self.charged
    }

    /// Whether the store did not answer and a [`Fallback`](crate::layers::Fallback) decided in its place, at least for one
    /// limit. The figures are then those of the fallback.
    pub fn degraded(&self) -> bool {
        self.parts.verdicts().any(|verdict| verdict.receipt.is_of_fallback())
    }

    /// The maximum number of units that the deciding limit can admit at once.
    pub fn limit(&self) -> u64 {
        self.decided_by().limit()
    }

    /// Units that the deciding limit would still admit now. Never more than [`limit`](Self::limit).
    pub fn remaining(&self) -> u64 {
        self.decided_by().remaining()
    }

    /// How long to wait until the same request is allowed if nothing else is charged. Zero if it is allowed now. `None`
    /// if it never will be: it costs more than a limit can admit, or a limit [in total](crate::Algorithm::Total) is used
    /// up.
    ///
    /// Waiting exactly this long suffices; a nanosecond less does not.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.admitted { Some(Duration::ZERO) } else { self.decided_by().retry_after() }
    }

    /// How long until the deciding limit is as good as new, with all of its units available, if nothing else is charged.
    pub fn reset_after(&self) -> Duration {
        self.decided_by().reset_after()
    }

    /// How long an admitted request has to wait for its turn. Zero unless a limit is a leaky queue.
    #[inline]
    pub fn delay(&self) -> Duration {
        let waits = self.parts.verdicts().any(|verdict| verdict.ready_at > self.now);
        if self.admitted && waits { self.turn() } else { Duration::ZERO }
    }

    /// How long the request has to wait for its turn; for a refused one, how long it would wait if there had been room.
    pub(crate) fn turn(&self) -> Duration {
        let turns = self.parts.verdicts().map(|verdict| verdict.ready_at.since(self.now));
        turns.max().unwrap_or_default()
    }

    /// The limit that decided, and its status.
    #[inline]
    pub fn decided_by(&self) -> LimitStatus<'_> {
        self.status(self.parts.decided_by())
    }

    /// The status of each limit: for each key of the request, the limits that apply to it, in the order in which you gave
    /// them.
    #[inline]
    pub fn each(&self) -> impl ExactSizeIterator<Item = LimitStatus<'_>> {
        (0..self.parts.count()).map(|index| self.status(index))
    }

    /// The time of the decision, by the limiter's clock or the server's.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    #[inline]
    fn status(&self, index: usize) -> LimitStatus<'_> {
        let Claimed { key_index, cost, limit } = self.parts.claimed(index);
        LimitStatus { index, key_index, cost, limit, now: self.now, verdict: self.parts.verdict(index) }
    }
}

impl Clone for Decision<'_> {
    /// What one of them gives back, none of the others gives back again.
    fn clone(&self) -> Self {
        self.begin_list();
        let Self { admitted, charged, now, .. } = *self;
        Self { admitted, charged, now, parts: self.parts.clone(), taken: self.taken.share() }
    }
}

impl PartialEq<Decision<'_>> for Decision<'_> {
    /// Whether both have the same result, and have charged the same keys, limits and costs.
    fn eq(&self, other: &Decision<'_>) -> bool {
        let all = |decision: &Decision<'_>| (decision.admitted, decision.charged, decision.now);
        all(self) == all(other)
            && self.parts.namespace() == other.parts.namespace()
            && self.each().eq(other.each())
            && self.charged_keys() == other.charged_keys()
    }
}

impl Eq for Decision<'_> {}

impl fmt::Debug for Decision<'_> {
    /// Keys identify people: they are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.allowed())
            .field("charged", &self.charged())
            .field("degraded", &self.degraded())
            .field("retry_after", &self.retry_after())
            .field("delay", &self.delay())
            .field("decided_by", &self.decided_by())
            .finish()
    }
}
