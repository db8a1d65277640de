//! The contract of a store.

#[cfg(feature = "tokio")]
mod batched;
mod crowd;
mod erased;
mod error;
#[cfg(feature = "tokio")]
mod owned;
mod refusal_cache;
#[cfg(feature = "tokio")]
mod timeout;

#[cfg(feature = "tokio")]
pub use batched::{BatchConfig, Batched};
pub use crowd::Crowd;
pub use erased::DynCounterStore;
pub use error::{Applied, ErrorKind, StoreError};
pub use refusal_cache::RefusalCache;
#[cfg(feature = "tokio")]
pub use timeout::Timeout;

use std::fmt::Debug;
use std::sync::Arc;

use crate::{Answer, Claims, Meter, MeterId, Mode, Refund, Timestamp, Verdict};

/// Keeps meters, and decides claims on them.
///
/// Three methods and a declaration have to be written: [`claim`](Self::claim), [`refund`](Self::refund),
/// [`reset`](Self::reset) and [`promises`](Self::promises). A store whose state is at hand while it decides (in a lock
/// or a transaction) leaves the arithmetic to [`decide`](crate::decide); the guide *Writing a store* goes through a
/// whole one, and the crate `ratelimit-conformance` proves it.
///
/// # Contract
///
/// ## Atomic
/// Claims on one meter behave as if they were executed one after another, from however many handles, threads and
/// machines they come. A store that cannot promise this declares [`Decisions::Conservative`]: it never admits more
/// than the meter allows, and may refuse under contention what would have fitted. One that decides by what its node
/// knows of the others declares [`Decisions::Eventual`]; then this holds for the claims of one node.
///
/// ## All or nothing
/// A slice is admitted whole or not at all. A refusal changes no state, and neither does [`Mode::Peek`](crate::Mode).
/// A conservative store gives back what it had reserved, also when the caller drops the future.
///
/// ## The same decision everywhere
/// The same claims at the same instants get the same answers from every store. All arithmetic is on integers, as in
/// [`Meter`](crate::Meter); products are compared in 128 bits; nothing is rounded in the client's favour.
///
/// ## Time never runs backwards for a meter
/// A claim with an older `now` than the meter has seen is decided as of the newest instant at which it was charged.
/// A store that cannot know that instant declares [`Time::CallerUnordered`].
///
/// ## Memory
/// A meter survives as long as it can influence a decision: until [`Meter::forget_at`](crate::Meter::forget_at), and
/// [`CLOCK_SLACK`] longer for callers whose clock is behind. It is forgotten by itself soon after. No meter is
/// immortal, and none is cut short by a limit of the server's own.
///
/// ## One trip
/// One request and one response for each slice, the first after connecting included. Nothing is retried without a
/// bound, and no call outlasts the store's time limit.
///
/// ## Keys are opaque
/// A key is any bytes of any length. Two [`MeterId`](crate::MeterId)s never share a meter, and nothing in one can reach
/// the protocol.
///
/// ## Answers
/// The verdicts are those of [`Meter::verdict`](crate::Meter::verdict) on the state that the slice was decided on. A
/// conservative store that decides by what it has set aside may say that less remains, and give another instant of the same
/// segment as the receipt.
/// A refusal is an answer, never an error. [`StoreError`] means that the store did not answer.
///
/// # Dropped futures
/// A caller may drop a future at any time. Whether the claim was charged is then unknown, but everything above still
/// holds for the others.
///
/// # Sharing
/// `&S`, `Arc<S>` and `Arc<dyn DynCounterStore>` are stores where `S` is.
pub trait CounterStore: Debug + Send + Sync {
    /// What this store promises.
    fn promises(&self) -> Promises;

    /// Decides a slice of claims, and charges it if it is admitted and the mode says so.
    ///
    /// # Errors
    /// If the store did not answer.
    fn claim(&self, claims: Claims<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Decides independent slices, in their order, in as few trips as the store can.
    ///
    /// Each is admitted or refused for itself, and a slice sees what those before it have charged. The default puts
    /// one after another to [`claim`](Self::claim).
    fn claim_many(
        &self,
        slices: &[Claims<'_>],
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(slices.len());
            for claims in slices {
                answers.push(self.claim(*claims).await);
            }
            answers
        }
    }

    /// Gives units back, as [`Meter::refund`](crate::Meter::refund) does.
    ///
    /// # Errors
    /// If the store did not answer.
    fn refund(
        &self,
        now: Timestamp,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets the meters of these claims, and no others. Costs and mode do not matter.
    ///
    /// # Errors
    /// If the store did not answer.
    fn reset(&self, claims: Claims<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A store that can also answer without waiting, because its state is in this process.
pub trait SyncCounterStore: CounterStore {
    /// [`CounterStore::claim`] on the spot.
    ///
    /// # Errors
    /// If the store cannot take a further meter.
    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError>;

    /// The same for a single [`Claim`](crate::Claim), of `cost` units on the meter called `id`, which is charged if it is
    /// admitted and the mode says so. `then` gets whether it is admitted and the verdict, or the error of
    /// [`claim_now`](Self::claim_now); what it gives is given back.
    ///
    /// A store that decides most claims in a few steps calls `then` where those end: the verdict then goes into the decision
    /// without having been in memory in between, as the claim comes without having been put together there.
    fn claim_one_now<R>(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R;

    /// [`CounterStore::refund`] on the spot.
    fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]);

    /// [`CounterStore::reset`] on the spot.
    fn reset_now(&self, claims: Claims<'_>);
}

/// How far behind the newest claim on a meter a claim may be and still be decided right: one second.
///
/// Stores keep a meter at least this long after it has become irrelevant.
pub const CLOCK_SLACK: std::time::Duration = std::time::Duration::from_secs(1);

/// What a store promises, for those who choose one and for the suite that checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// How exact the decisions are.
    pub decisions: Decisions,
    /// Whose time they are made by.
    pub time: Time,
}

/// How exact a store's decisions are. None admits more than a meter allows, but for [`Eventual`](Self::Eventual) ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decisions {
    /// Every slice is decided as if it were alone.
    Exact,
    /// So is every slice whose claims are on one key; one with several keys may be refused under contention
    /// although it would have fitted.
    ExactPerKey,
    /// Any slice may be refused under contention although it would have fitted, and of one that is admitted it may be said that
    /// less remains than does.
    Conservative,
    /// Exact by what this node knows. What other nodes have charged comes to it later, so that several nodes may
    /// admit more together than a meter allows; the store's documentation bounds how much. A node by itself is
    /// [`Exact`](Self::Exact), and held to that by the suite.
    Eventual,
}

impl Decisions {
    /// Whether every slice is decided as if it were alone when nobody uses other nodes.
    pub fn are_exact_on_one_node(self) -> bool {
        matches!(self, Self::Exact | Self::Eventual)
    }
}

/// Whose time a store decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The caller's, and a meter remembers the newest instant at which it was charged.
    Caller,
    /// The caller's, and a meter cannot tell that a claim is late; the store's documentation bounds the effect.
    CallerUnordered,
    /// The server's.
    Server,
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<S: CounterStore + ?Sized> CounterStore for $pointer {
            fn promises(&self) -> Promises {
                (**self).promises()
            }

            fn claim(&self, claims: Claims<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send {
                (**self).claim(claims)
            }

            fn claim_many(
                &self,
                slices: &[Claims<'_>],
            ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
                (**self).claim_many(slices)
            }

            fn refund(
                &self,
                now: Timestamp,
                refunds: &[Refund<'_>],
            ) -> impl Future<Output = Result<(), StoreError>> + Send {
                (**self).refund(now, refunds)
            }

            fn reset(&self, claims: Claims<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
                (**self).reset(claims)
            }
        }

        #[deny(clippy::missing_trait_methods)]
        impl<S: SyncCounterStore + ?Sized> SyncCounterStore for $pointer {
            fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
                (**self).claim_now(claims)
            }

            #[inline]
            fn claim_one_now<R>(
                &self,
                now: Timestamp,
                mode: Mode,
                id: &MeterId<'_>,
                cost: u64,
                meter: &Meter,
                then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
            ) -> R {
                (**self).claim_one_now(now, mode, id, cost, meter, then)
            }

            fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
                (**self).refund_now(now, refunds);
            }

            fn reset_now(&self, claims: Claims<'_>) {
                (**self).reset_now(claims);
            }
        }
    )*};
}

forward!(&S, Arc<S>);
