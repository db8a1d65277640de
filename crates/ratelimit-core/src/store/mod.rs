//! The contract of a store: what it is asked, what it answers, and what it promises.

mod erased;
mod error;
mod in_process;
mod url;

pub use erased::DynCounterStore;
pub use error::{Applied, ErrorKind, StoreError};
pub(crate) use in_process::{InProcess, now_or_error};
pub use url::{StoreUrl, UrlOption};

pub use crate::answer::{Answer, Verdict, Verdicts};
pub use crate::bounds::MAX_CLAIMS;
pub use crate::claim::{Claim, Claims, Refund};
pub use crate::key::MeterId;
pub use crate::mode::Mode;
pub use crate::receipt::Receipt;

use std::fmt::Debug;
use std::sync::Arc;

use crate::{Meter, Timestamp};

/// Stores meters, and decides claims on them.
///
/// To write a store, implement [`claim`](Self::claim), [`refund`](Self::refund) and [`reset`](Self::reset), and declare
/// its guarantees in [`promises`](Self::promises). If your store has the states in memory while it decides (under a lock
/// or in a transaction), call [`decide`](crate::meter::decide) and [`refund`](crate::meter::refund) for the arithmetic. The guide
/// *Writing a store* builds a complete one, and the crate `ratelimit-conformance` tests yours.
///
/// # Contract
///
/// ## Atomic
/// Claims on one meter behave as if they were executed one after another, from any number of handles, threads and
/// machines. A store that cannot guarantee this declares [`Decisions::Conservative`]: it never admits more than the
/// meter allows, but under contention it may refuse what would have fitted, and any call, also a refund or a reset, may
/// return an error of the kind [`ErrorKind::Contended`]. One that cannot guarantee it for several keys at once declares
/// [`Decisions::ExactPerKey`]. A store whose nodes learn of each other's
/// charges later declares [`Decisions::Eventual`]; then this holds for the claims of one node.
///
/// ## All or nothing
/// All claims of a call are admitted, or none. A refusal changes no state, and neither does [`Mode::Peek`](crate::store::Mode). A
/// conservative store reserves units before it knows whether all claims fit. If one does not, it gives the units back, even
/// if the caller drops the future.
///
/// ## The same decision everywhere
/// The same claims at the same instants get the same answers from every store. All arithmetic uses integers, as in
/// [`Meter`]. Products are compared in 128 bits. Nothing is rounded in the client's favour.
///
/// ## Time never runs backwards for a meter
/// A claim whose `now` is older than the meter's latest charge is decided as of that charge. A store that cannot know
/// the instant of that charge declares so ([`Promises::not_monotonic`]).
///
/// ## Memory
/// A store keeps a meter as long as it can influence a decision: until [`Meter::forget_at`](crate::meter::Meter::forget_at), and
/// [`CLOCK_SLACK`] longer for callers whose clock is behind. Soon after, it removes the meter by itself. The only meters
/// that it keeps forever are those that never drain ([`Algorithm::Total`](crate::Algorithm::Total)), whose `forget_at` is
/// [`Timestamp::MAX`]. No server setting makes a meter expire earlier. Only a store that is full may evict meters, if it or
/// its server is configured so; an evicted meter counts from zero.
///
/// ## One round trip
/// On an [exact](Decisions::Exact) store, each set of claims takes one request and one response, even the first set after
/// connecting. A store on a server that can only lock rows is exact as well, and takes two: one to lock and read, one to write.
/// Stores with other promises may take more, too. The documentation of a store says how many it takes, and its subject in the
/// conformance suite declares it (`Space::sends_together`). The number of retries is bounded, and no call takes longer than the
/// store's time limit.
///
/// ## Keys are opaque
/// A key is any bytes of any length. Two different [`MeterId`]s never share a meter, and a key cannot
/// inject anything into the protocol.
///
/// ## Answers
/// There is one verdict for each claim, in their order, with the figures of [`Meter::verdict`](crate::meter::Meter::verdict) on
/// the state after the decision. A conservative store that decides by what it has reserved may report fewer remaining
/// units, and another instant of the same segment as the receipt. A refusal is an answer, never an error. [`StoreError`]
/// means that the store did not answer.
///
/// # Dropped futures
/// A caller may drop a future at any time. It then does not know whether its claims were charged. Everything above still
/// holds for other callers.
///
/// # Sharing
/// `&S`, `Arc<S>` and `Arc<dyn DynCounterStore>` are stores if `S` is.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a store", label = "not a store")]
pub trait CounterStore: Debug + Send + Sync {
    /// Declares the guarantees of this store.
    fn promises(&self) -> Promises;

    /// Decides `claims` together. Charges them if they are admitted, unless the mode is [`Mode::Peek`].
    ///
    /// # Errors
    /// If the store did not answer. [`StoreError::applied`] says whether the claims may have been charged all the same.
    fn claim(&self, claims: Claims<'_>) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Decides independent sets of claims, in their order, in as few round trips as possible. Returns one result for each
    /// set, in the same order.
    ///
    /// Each set is admitted or refused by itself, and counts what the sets before it have charged. The default
    /// implementation calls [`claim`](Self::claim) for one set after another.
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

    /// Refunds units, as [`Meter::refund`](crate::meter::Meter::refund) does. A refund to a meter that is not stored does nothing.
    /// A refund of several meters need not be atomic: other calls may come between them. `refunds` may be empty, and may
    /// have more parts than a slice of claims, several of them of one meter.
    ///
    /// # Errors
    /// If the store did not answer.
    fn refund(
        &self,
        now: Timestamp,
        refunds: &[Refund<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes the meters of these claims, and no others. Ignores their costs and the mode. Like a refund, it need not be
    /// atomic.
    ///
    /// # Errors
    /// If the store did not answer.
    fn reset(&self, claims: Claims<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A store that can also answer synchronously, because its state is in this process.
///
/// # Contract
/// The futures of [`claim`](CounterStore::claim), [`claim_many`](CounterStore::claim_many) and
/// [`refund`](CounterStore::refund) are ready when they are first polled: their code awaits nothing. A refund does not fail.
/// A reset may wait, so to implement this trait, write [`reset_now`](Self::reset_now).
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot answer without waiting",
    label = "this store, or a layer of it, waits for a server",
    note = "on every store the methods without `_now` work: `limiter.check(key).await?`"
)]
pub trait SyncCounterStore: CounterStore {
    /// [`CounterStore::claim`] without waiting.
    ///
    /// # Errors
    /// If the store has no room for another meter.
    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        now_or_error(self.claim(claims))?
    }

    /// [`claim_now`](Self::claim_now) for a single claim: returns whether it is admitted, and its verdict.
    /// [`RateLimiter`](crate::RateLimiter) makes most checks by this method, if the store decides at the
    /// [caller's time](Time::Caller).
    ///
    /// The default implementation calls `claim_now`. Write your own if your store can decide one claim without the lists of an
    /// [`Answer`]: on the memory store, a check then takes a third of the time.
    ///
    /// # Errors
    /// If the store has no room for another meter.
    fn claim_one_now(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
    ) -> Result<(bool, Verdict), StoreError> {
        let claim = Claim { id: *id, cost, meter: *meter };
        let answer = self.claim_now(Claims::known(now, mode, std::slice::from_ref(&claim)))?;
        match answer.verdicts[..] {
            [verdict] => Ok((answer.admitted, verdict)),
            _ => {
                let message = format!("it returned {} verdicts for one claim", answer.verdicts.len());
                Err(StoreError::new("the store", ErrorKind::Server, message).maybe_applied())
            }
        }
    }

    /// [`CounterStore::refund`] without waiting.
    fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
        let refunded = now_or_error(self.refund(now, refunds)).and_then(|refunded| refunded);
        debug_assert!(refunded.is_ok(), "by the contract a refund neither waits nor fails: {refunded:?}");
    }

    /// [`CounterStore::reset`] without waiting.
    fn reset_now(&self, claims: Claims<'_>);
}

/// How much older than the latest claim on a meter a claim may be and still be decided correctly: one second.
///
/// Stores keep a meter at least this long after it can no longer influence a decision.
pub const CLOCK_SLACK: std::time::Duration = std::time::Duration::from_secs(1);

/// The guarantees of a store, for choosing one and for the conformance suite.
///
/// ```
/// use ratelimit_core::store::{Decisions, Promises, Time};
///
/// let promises = Promises::new(Decisions::Exact, Time::Caller);
/// assert_eq!(promises.time, Time::Caller);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// How exact the decisions are.
    pub decisions: Decisions,
    /// Whose time the decisions use.
    pub time: Time,
    /// Whether a meter remembers when it was last charged, so that a claim that is older is decided as of that charge.
    pub monotonic: bool,
}

impl Promises {
    /// Declares how exact the decisions are, and whose time they use.
    pub const fn new(decisions: Decisions, time: Time) -> Self {
        Self { decisions, time, monotonic: true }
    }

    /// The same promises, with decisions that are exact in another way: for a layer around a store.
    #[must_use]
    pub const fn with_decisions(self, decisions: Decisions) -> Self {
        Self { decisions, ..self }
    }

    /// Declares that a meter cannot detect that a claim is older than its latest charge. The store's documentation bounds the
    /// effect.
    #[must_use]
    pub const fn not_monotonic(self) -> Self {
        Self { monotonic: false, ..self }
    }
}

/// How exact a store's decisions are. Only [`Eventual`](Self::Eventual) ones may admit more than a meter allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decisions {
    /// Every check is decided as if it were the only one.
    Exact,
    /// A check whose claims are on one key is exact. One with several keys may be refused under contention although it
    /// would have fitted.
    ExactPerKey,
    /// Any check may be refused under contention although it would have fitted, and an admitted one may report fewer
    /// remaining units than there are.
    Conservative,
    /// Each node decides exactly by what it knows, but learns later what other nodes have charged. So several nodes
    /// together may admit more than a meter allows; the store's documentation states the bound. A single node is
    /// [`Exact`](Self::Exact), and the conformance suite tests it as such.
    Eventual,
}

impl Decisions {
    /// Whether every check is decided as if it were the only one, as long as no other nodes are used.
    pub fn are_exact_on_one_node(self) -> bool {
        matches!(self, Self::Exact | Self::Eventual)
    }
}

/// Whose time a store uses for its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Time {
    /// The caller's, that is, the limiter's clock. Synchronise the clocks of the machines that share a server.
    #[default]
    Caller,
    /// The server's; the limiter's clock is not used.
    Server,
}

impl Time {
    /// Parses the value of an option in a store's URL: `caller` or `server`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn from_option(option: &UrlOption<'_>) -> Result<Self, StoreError> {
        option.one_of(&[("caller", Self::Caller), ("server", Self::Server)])
    }
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
            fn claim_one_now(
                &self,
                now: Timestamp,
                mode: Mode,
                id: &MeterId<'_>,
                cost: u64,
                meter: &Meter,
            ) -> Result<(bool, Verdict), StoreError> {
                (**self).claim_one_now(now, mode, id, cost, meter)
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
