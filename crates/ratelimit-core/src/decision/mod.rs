//! Decisions: what a limiter returns. Here are a decision, how it is made of one verdict, and what its caller reads.

mod ban;
mod boxed;
mod charges;
mod from_answer;
mod heap;
mod in_bytes;
mod key_bytes;
mod leases;
mod owned;
mod parts;
mod settlement;
mod status;
mod taken;
mod traits;
mod verdicts;

pub(crate) use boxed::AskedKey;
use boxed::{AskedLimit, Boxed};
pub(crate) use charges::Charges;
use charges::SharedList;
pub(crate) use key_bytes::{ChargedKeys, ShortKey};
pub(crate) use settlement::Settlement;
pub use status::LimitStatus;

use std::time::Duration;

use crate::{Limits, Timestamp, Verdict};

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
/// enough* or has to be borrowed for `'static`, call [`into_owned`](Self::into_owned), right after the check.
pub struct Decision<'l> {
    admitted: bool,
    charged: bool,
    now: Timestamp,
    parts: Parts<'l>,
}

/// The keys of a decision, the limits that apply to each, and a verdict for each limit.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and is to need no allocation")]
pub(crate) enum Parts<'l> {
    /// Those of most decisions take no memory elsewhere.
    Short(ShortParts<'l>),
    Boxed(Boxed<'l>),
}

/// One short key under up to four borrowed limits.
#[derive(Clone)]
pub(crate) struct ShortParts<'l> {
    /// The verdict of the first limit.
    first: Verdict,
    /// Those of the others, if there are any; as many as there are other limits.
    others: Option<[Verdict; MOST_LIMITS - 1]>,
    decided_by: usize,
    cost: u64,
    limits: &'l Limits,
    namespace: &'l str,
    key: ShortKey,
    /// What it has taken and not given back, shared with its clones.
    taken: SharedList,
}

/// How many limits a decision has in place.
const MOST_LIMITS: usize = 4;

impl<'l> ShortParts<'l> {
    /// Under one limit, which is no ban.
    #[inline(always)]
    pub(crate) fn one(
        namespace: &'l str,
        key: ShortKey,
        cost: u64,
        limits: &'l Limits,
        verdict: Verdict,
    ) -> Self {
        Self {
            first: verdict,
            others: None,
            decided_by: 0,
            cost,
            limits,
            namespace,
            key,
            taken: SharedList::default(),
        }
    }
}

impl<'l> Decision<'l> {
    /// The decision of these parts.
    #[inline(always)]
    pub(crate) fn of(now: Timestamp, admitted: bool, charged: bool, parts: Parts<'l>) -> Self {
        Self { admitted, charged, now, parts }
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
        let AskedLimit { key_index, cost, limit } = self.parts.asked_limit(index);
        LimitStatus { index, key_index, cost, limit, now: self.now, verdict: self.parts.verdict(index) }
    }
}
