//! Leases: a node claims several units at a time from the shared store and spends them locally.

mod config;
mod lease;
mod request;
mod returns;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::clock::Timer;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, Mode, Promises, Refund, Time, Verdicts};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

pub use self::config::LeaseConfig;
use self::lease::{Lease, Payment};
use self::request::{Payments, Request};
use self::returns::{Return, return_units};
use crate::table::Table;
use crate::unanswered;
use ratelimit_core::kit::{OwnedClaims, OwnedName, RunToEnd};

/// A store that claims several units at a time from the store underneath and spends them in this process.
///
/// # What it guarantees
/// All nodes together never admit more than the limit: every unit is charged in the shared store before it is spent, and it is
/// spent only in the segment of time to which it was charged. A slice is still admitted whole or not at all.
///
/// # What it costs
/// Other nodes cannot use the units of a lease: near the limit a request may be refused although another node has unspent
/// units. [`give_back`](Self::give_back) returns unused units; call it regularly, or let [`run`](Self::run) do so. A node that
/// crashes loses the units that it held: at most [`LeaseConfig::max_lease`] of each meter, until its window has passed. For
/// a check that a lease paid, `remaining` comes from the store's last answer: units that have left a sliding window since
/// then are not included.
///
/// # What is leased
/// Windows only. A token bucket drains while a lease is idle, so units spent later than charged could exceed the limit; a log
/// would forget them too early. Claims on both go directly to the store, as do claims on limits of fewer than
/// [`LeaseConfig::min_limit`] units, claims that cost more than a lease would hold, peeks, charges that ignore the limit,
/// and everything on a store that decides by its server's clock.
///
/// # Dropped calls
/// If a call is dropped while it takes or returns a lease, a task on the tokio runtime completes it. Outside of a runtime, the
/// lease is lost until its window has passed.
///
/// # Clocks
/// A lease ends with its segment, by the caller's clock. If the clocks of two nodes differ by *d*, one may spend a lease for *d*
/// longer than the other expects.
///
/// # Reset
/// A reset drops this node's lease. Other nodes may still spend or return their leases of the meter, and this node what it is
/// returning at that moment: by that much, the limit may be exceeded. A lease that this node is taking at that moment is lost
/// until its window has passed.
///
/// ```
/// use ratelimit_cluster::Leased;
/// use ratelimit_core::{Limit, RateLimiter};
/// use ratelimit_memory::MemoryStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let shared = MemoryStore::new(); // a server's store in earnest
/// let limiter = RateLimiter::new(Leased::new(shared), "10000/min".parse::<Limit>()?);
/// assert!(limiter.check("user:7").await?.allowed());
/// # Ok(())
/// # }
/// ```
pub struct Leased<S> {
    inner: Arc<S>,
    config: LeaseConfig,
    leases: Arc<Table<Lease>>,
    resets: Arc<AtomicU64>,
    serial: AtomicU64,
}

impl<S: CounterStore + 'static> Leased<S> {
    /// Leases units from `inner`, with the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, LeaseConfig::default())
    }

    /// Leases units from `inner`.
    pub fn with_config(inner: S, config: LeaseConfig) -> Self {
        let (inner, leases) = (Arc::new(inner), Arc::new(Table::new(config.max_keys)));
        Self { inner, config, leases, resets: Arc::default(), serial: AtomicU64::new(0) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The number of meters with a lease, or with a recent answer of the store.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the leases that were not used since the last call, and drops those that have ended.
    ///
    /// # Errors
    /// If the store did not answer a refund. Those units are lost until their window has passed.
    pub async fn give_back(&self, now: Timestamp) -> Result<(), StoreError> {
        self.return_all(now, false).await
    }

    /// Returns all unspent units. Call it before the process ends.
    ///
    /// # Errors
    /// See [`give_back`](Self::give_back).
    pub async fn give_back_all(&self, now: Timestamp) -> Result<(), StoreError> {
        self.return_all(now, true).await
    }

    /// Calls [`give_back`](Self::give_back) each time `every` has passed, forever. Spawn this as a task. It ignores errors:
    /// units whose refund failed are lost until their window ends.
    pub async fn run<C: Timer>(&self, clock: C, every: Duration) {
        loop {
            clock.sleep(every).await;
            let _ = self.give_back(clock.now()).await;
        }
    }

    async fn return_all(&self, now: Timestamp, all: bool) -> Result<(), StoreError> {
        let mut back = Vec::new();
        self.leases.retain(|id, lease| {
            let has_ended = lease.has_ended(now);
            let units = if has_ended || all { lease.surrender(now) } else { lease.idle() };
            back.extend(units.map(|units| Return::new(id, lease, units)));
            !has_ended
        });
        self.return_units(now, back).await
    }

    /// Takes units for one claim from its lease. Units that have to be returned to the store first go to `back`.
    fn payment(
        &self,
        claim: &Claim<'_>,
        claims: &Claims<'_>,
        may_lease: bool,
        back: &mut Vec<Return>,
    ) -> Payment {
        let Meter::Window(window) = claim.meter else { return Payment::default() };
        let (now, mode) = (claims.now(), claims.mode());
        let is_large = window.limit() >= self.config.min_limit;
        let is_plain = is_large && mode == Mode::Charge && claim.cost > 0 && claim.cost <= window.limit();
        let new = || Lease::new(self.serial.fetch_add(1, Ordering::Relaxed), window, now);
        let take = |lease: &mut Lease| {
            if !is_plain || !lease.serves(&window, now) {
                back.extend(lease.surrender(now).map(|units| Return::new(&claim.id, lease, units)));
                if lease.window != window || lease.has_ended(now) {
                    *lease = new();
                }
            }
            if !is_plain || !lease.serves(&window, now) {
                return Payment::default(); // a late claim: the store decides it as of its newest instant
            }
            lease.take(claim.cost, now, may_lease, &self.config)
        };
        let payment = if is_plain {
            self.leases.with_or_new(&claim.id, now, |lease| lease.has_ended(now), new, take)
        } else {
            self.leases.with(&claim.id, take)
        };
        payment.unwrap_or_default()
    }

    /// Takes units for a slice from the leases. Units that have to be returned to the store first go to `back`.
    fn payments(&self, claims: &Claims<'_>, may_lease: bool, back: &mut Vec<Return>) -> Payments {
        claims.iter().map(|claim| self.payment(claim, claims, may_lease, back)).collect()
    }

    /// The request for what the leases do not pay.
    fn request(&self, claims: &Claims<'_>, payments: Payments) -> Request<S> {
        let claims = OwnedClaims::new(claims, OwnedName::new);
        let resets = (self.resets.clone(), self.resets.load(Ordering::SeqCst));
        Request { store: self.inner.clone(), leases: self.leases.clone(), resets, claims, payments }
    }

    /// Takes all leased units of these meters to return them, so that the store decides exactly.
    fn surrender(&self, claims: &Claims<'_>, back: &mut Vec<Return>) {
        for claim in claims.iter() {
            let units = |lease: &mut Lease| {
                lease.surrender(claims.now()).map(|units| Return::new(&claim.id, lease, units))
            };
            back.extend(self.leases.with(&claim.id, units).flatten());
        }
    }

    /// Returns units to the store, even if the caller is dropped.
    async fn return_units(&self, now: Timestamp, back: Vec<Return>) -> Result<(), StoreError> {
        if back.is_empty() {
            return Ok(());
        }
        let store = self.inner.clone();
        RunToEnd::new(async move { return_units(&*store, now, &back).await }).await
    }

    fn bypasses_leases(&self) -> bool {
        self.inner.promises().time == Time::Server
    }
}

/// The answer, if the leases pay the whole slice.
fn paid_by_leases(claims: &Claims<'_>, payments: &[Payment]) -> Option<Answer> {
    let verdicts: Verdicts = payments.iter().map(|payment| payment.verdict).collect::<Option<_>>()?;
    Some(Answer { admitted: true, charged: true, now: claims.now(), verdicts })
}

impl<S: fmt::Debug> fmt::Debug for Leased<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore + 'static> CounterStore for Leased<S> {
    /// The promises of the store underneath, except that leases of other nodes may cause refusals.
    fn promises(&self) -> Promises {
        self.inner.promises().with_decisions(Decisions::Conservative)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if self.bypasses_leases() {
            return self.inner.claim(claims).await;
        }
        let mut back = Vec::new();
        let payments = self.payments(&claims, true, &mut back);
        if let Some(answer) = paid_by_leases(&claims, &payments) {
            return Ok(answer);
        }
        if payments.iter().any(|payment| payment.serial.is_some()) || !back.is_empty() {
            // Runs to its end even if the caller is dropped: whole leases would be lost with it.
            let request = self.request(&claims, payments);
            if let Some(answer) = RunToEnd::new(request.run(back)).await? {
                return Ok(answer);
            }
            let mut back = Vec::new();
            self.surrender(&claims, &mut back);
            let _ = self.return_units(claims.now(), back).await;
        }
        self.inner.claim(claims).await
    }

    /// A batch spends leases but takes no new ones. The slices that leases cannot pay go to the store in one call, after their
    /// leases were returned in another.
    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if self.bypasses_leases() {
            return self.inner.claim_many(slices).await;
        }
        let mut back = Vec::new();
        let mut paid = Vec::with_capacity(slices.len());
        for claims in slices {
            let payments = self.payments(claims, false, &mut back);
            let answer = paid_by_leases(claims, &payments);
            if answer.is_none() {
                drop(self.request(claims, payments)); // units that did not suffice are back in the leases
                self.surrender(claims, &mut back);
            }
            paid.push(answer);
        }
        let now = slices.iter().map(Claims::now).max().unwrap_or(Timestamp::EPOCH);
        let _ = self.return_units(now, back).await;
        let unpaid = slices.iter().zip(&paid).filter(|(_, answer)| answer.is_none());
        let unpaid: Vec<Claims<'_>> = unpaid.map(|(claims, _)| *claims).collect();
        let answers = if unpaid.is_empty() { Vec::new() } else { self.inner.claim_many(&unpaid).await };
        let mut answers = answers.into_iter();
        let next = |answer: Option<Answer>| match answer {
            Some(answer) => Ok(answer),
            None => answers.next().unwrap_or_else(|| Err(unanswered("leased"))),
        };
        paid.into_iter().map(next).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let forget = || {
            self.resets.fetch_add(1, Ordering::SeqCst);
            claims.iter().for_each(|claim| self.leases.remove(&claim.id));
        };
        forget();
        let done = self.inner.reset(claims).await;
        // A lease taken in the meantime may have been charged before the reset, which removed its units.
        forget();
        done
    }
}
