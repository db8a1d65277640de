//! Leases: a piece of the quota is claimed from the shared store, and spent here.

mod lease;
mod trip;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::{
    Answer, Claim, Claims, CounterStore, Decisions, ErrorKind, Meter, Mode, Promises, Refund, StoreError,
    Time, Timer, Timestamp, Verdicts, Window,
};

use self::lease::{Lease, Part};
use self::trip::Trip;
use crate::names::{Name, Table};

/// How much a node leases, and for how long it holds what it does not spend.
///
/// ```
/// use ratelimit_cluster::LeaseConfig;
///
/// let config = LeaseConfig { largest: 500, ..LeaseConfig::default() };
/// assert_eq!(config.smallest_limit, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Limits of fewer units go straight to the store. 100 by default.
    pub smallest_limit: u64,
    /// The most units in one lease, and so the most that a crash loses of one meter until its window ends. 10,000 by
    /// default.
    pub largest: u64,
    /// A lease is at most the `share`-th part of what remains. 8 by default; more nodes want a larger number.
    pub share: u64,
    /// A lease that is spent within this time is followed by one of twice the size, otherwise by one of half of it.
    /// One second by default.
    pub hold: Duration,
    /// The most meters of which leases are held at once; further ones go straight to the store. 1,000,000 by default.
    pub max_keys: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            smallest_limit: 100,
            largest: 10_000,
            share: 8,
            hold: Duration::from_secs(1),
            max_keys: 1_000_000,
        }
    }
}

/// A store that claims several units at a time from the store underneath and spends them in this process.
///
/// # What it guarantees
/// Never more is admitted than the limit, by all nodes together: every unit is charged in the shared store before it is
/// spent, and spent only in the segment of time that it was charged to. A slice is still admitted whole or not at all.
///
/// # What it costs
/// What one node holds, another is refused: near the limit a request may be refused although units lie unspent
/// elsewhere. [`give_back`](Self::give_back) returns what is not needed; call it now and then, or let
/// [`run`](Self::run) do so. A node that crashes loses what it held: at most [`LeaseConfig::largest`] units of each
/// meter, until its window has passed. What is paid from a lease is told to leave what the store said last: in a window that
/// slides, what has left since is not yet counted in.
///
/// # What is leased
/// Windows only. A token bucket drains while a lease lies idle, so units spent later than charged would come on top of
/// those that have drained in; a log would forget them too early. Both go straight to the store, as do small limits,
/// requests that cost more than a lease would hold, peeks, and everything on a store that decides by its server's clock.
///
/// # Clocks
/// A lease ends with its segment by the caller's clock. Nodes whose clocks differ by *d* may spend it for *d* longer than
/// another node believes.
///
/// # Reset
/// A reset forgets this node's lease. What other nodes hold of the meter they may still spend or give back: by so much more
/// than the limit may be admitted.
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
    inner: S,
    config: LeaseConfig,
    leases: Table<Lease>,
    serial: AtomicU64,
}

/// Units to give back.
struct Return {
    name: Name,
    window: Window,
    units: u64,
    receipt: Timestamp,
}

impl Return {
    fn new(claim: &Claim<'_>, lease: &Lease, units: u64) -> Self {
        Self { name: Name::new(&claim.id), window: lease.window, units, receipt: lease.receipt }
    }

    fn refund(&self) -> Refund<'_> {
        let meter = Meter::Window(self.window);
        Refund { id: self.name.id(), cost: self.units, meter, receipt: self.receipt }
    }
}

/// How many leases are given back in one call.
const RETURNS: usize = 64;

impl<S: CounterStore> Leased<S> {
    /// Leases from `inner`, by the default configuration.
    pub fn new(inner: S) -> Self {
        Self::with_config(inner, LeaseConfig::default())
    }

    /// Leases from `inner`.
    pub fn with_config(inner: S, config: LeaseConfig) -> Self {
        Self { inner, config, leases: Table::new(config.max_keys), serial: AtomicU64::new(0) }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Of how many meters this node holds a lease, or knows how they stand.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives back what was leased and not touched since this was last called, and forgets what has ended.
    ///
    /// # Errors
    /// If the store did not take something back; those units are lost until their window has passed.
    pub async fn give_back(&self, now: Timestamp) -> Result<(), StoreError> {
        self.return_all(now, false).await
    }

    /// Gives back everything that is not spent: what a node does before it ends.
    ///
    /// # Errors
    /// As [`give_back`](Self::give_back).
    pub async fn give_back_all(&self, now: Timestamp) -> Result<(), StoreError> {
        self.return_all(now, true).await
    }

    /// Calls [`give_back`](Self::give_back) each time that `every` has passed, for ever: to be spawned. What the store
    /// does not take back is lost until its window ends, which no caller can do anything about.
    pub async fn run<C: Timer>(&self, clock: C, every: Duration) {
        loop {
            clock.sleep(every).await;
            let _ = self.give_back(clock.now()).await;
        }
    }

    async fn return_all(&self, now: Timestamp, all: bool) -> Result<(), StoreError> {
        let mut back = Vec::new();
        self.leases.retain(|id, lease| {
            let is_over = lease.is_over(now);
            let units = if is_over || all { lease.surrender(now) } else { lease.idle() };
            let (window, receipt) = (lease.window, lease.receipt);
            back.extend(units.map(|units| Return { name: Name::new(id), window, units, receipt }));
            !is_over
        });
        let mut done = Ok(());
        for some in back.chunks(RETURNS) {
            let refunds: Vec<Refund<'_>> = some.iter().map(Return::refund).collect();
            done = self.inner.refund(now, &refunds).await.and(done);
        }
        done
    }

    /// What is put towards one claim. Units of the lease that the store has to have back first go to `back`.
    fn part(&self, claim: &Claim<'_>, claims: &Claims<'_>, may_ask: bool, back: &mut Vec<Return>) -> Part {
        let Meter::Window(window) = claim.meter else { return Part::default() };
        let (now, mode) = (claims.now(), claims.mode());
        let is_large = window.limit() >= self.config.smallest_limit;
        let is_plain = is_large && mode == Mode::Charge && claim.cost > 0 && claim.cost <= window.limit();
        let new = || Lease::new(self.serial.fetch_add(1, Ordering::Relaxed), window, now);
        let take = |lease: &mut Lease| {
            if !is_plain || !lease.serves(&window, now) {
                back.extend(lease.surrender(now).map(|units| Return::new(claim, lease, units)));
                if lease.window != window || lease.is_over(now) {
                    *lease = new();
                }
            }
            if !is_plain || !lease.serves(&window, now) {
                return Part::default(); // a late claim is decided as of the store's newest instant
            }
            lease.take(claim.cost, now, may_ask, &self.config)
        };
        let part = if is_plain {
            self.leases.with_or_new(&claim.id, |lease| lease.is_over(now), new, take)
        } else {
            self.leases.with(&claim.id, take)
        };
        part.unwrap_or_default()
    }

    /// Takes from the leases what they have towards a slice.
    fn prepare<'c>(&self, claims: Claims<'c>, may_ask: bool, back: &mut Vec<Return>) -> Trip<'_, 'c, S> {
        let parts = claims.iter().map(|claim| self.part(claim, &claims, may_ask, back)).collect();
        Trip { leased: self, claims, parts }
    }

    /// Takes all that is leased of these meters, to be given back: the store is to decide on the truth.
    fn surrender(&self, claims: &Claims<'_>, back: &mut Vec<Return>) {
        for claim in claims.iter() {
            let units = |lease: &mut Lease| {
                lease.surrender(claims.now()).map(|units| Return::new(claim, lease, units))
            };
            back.extend(self.leases.with(&claim.id, units).flatten());
        }
    }

    /// Gives units back before a claim. What the store does not take is lost until its window ends.
    async fn bring_back(&self, now: Timestamp, back: &[Return]) {
        for some in back.chunks(RETURNS) {
            let refunds: Vec<Refund<'_>> = some.iter().map(Return::refund).collect();
            let _ = self.inner.refund(now, &refunds).await;
        }
    }

    /// The answer, if the leases have paid for the whole slice.
    fn paid(trip: &mut Trip<'_, '_, S>) -> Option<Answer> {
        let verdicts: Option<Verdicts> = trip.parts.iter().map(|part| part.verdict).collect();
        let verdicts = verdicts?;
        trip.parts.clear(); // spent: nothing goes back any more
        Some(Answer { admitted: true, charged: true, now: trip.claims.now(), verdicts })
    }

    fn goes_straight(&self) -> bool {
        self.inner.promises().time == Time::Server
    }
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
impl<S: CounterStore> CounterStore for Leased<S> {
    /// Those of the store underneath, but that what another node holds may refuse what would have fitted.
    fn promises(&self) -> Promises {
        Promises { decisions: Decisions::Conservative, ..self.inner.promises() }
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if self.goes_straight() {
            return self.inner.claim(claims).await;
        }
        let mut back = Vec::new();
        let mut trip = self.prepare(claims, true, &mut back);
        if let Some(answer) = Self::paid(&mut trip) {
            return Ok(answer);
        }
        self.bring_back(claims.now(), &back).await;
        let answer = trip.go().await?;
        if trip.is_torn(&answer) {
            trip.undo(&answer).await;
        } else if answer.admitted || !trip.is_changed() {
            return Ok(trip.end(answer).await);
        }
        drop(trip); // what was taken is back in the leases
        back.clear();
        self.surrender(&claims, &mut back);
        self.bring_back(claims.now(), &back).await;
        self.inner.claim(claims).await
    }

    /// Leases are spent in a batch, but none is taken: what they cannot pay goes out in one trip, after what they hold
    /// has been given back in another.
    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if self.goes_straight() {
            return self.inner.claim_many(slices).await;
        }
        let mut back = Vec::new();
        let mut paid = Vec::with_capacity(slices.len());
        for claims in slices {
            let mut trip = self.prepare(*claims, false, &mut back);
            let answer = Self::paid(&mut trip);
            drop(trip); // what did not suffice is back in the leases
            if answer.is_none() {
                self.surrender(claims, &mut back);
            }
            paid.push(answer);
        }
        let now = slices.iter().map(Claims::now).max().unwrap_or(Timestamp::EPOCH);
        self.bring_back(now, &back).await;
        let asked = slices.iter().zip(&paid).filter(|(_, answer)| answer.is_none());
        let asked: Vec<Claims<'_>> = asked.map(|(claims, _)| *claims).collect();
        let answers = if asked.is_empty() { Vec::new() } else { self.inner.claim_many(&asked).await };
        let mut answers = answers.into_iter();
        let next = |answer: Option<Answer>| match answer {
            Some(answer) => Ok(answer),
            None => answers.next().unwrap_or_else(|| Err(unanswered())),
        };
        paid.into_iter().map(next).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        claims.iter().for_each(|claim| self.leases.remove(&claim.id));
        let done = self.inner.reset(claims).await;
        // Whoever began to lease meanwhile may have been charged before the reset: that is forgotten, too.
        claims.iter().for_each(|claim| self.leases.remove(&claim.id));
        done
    }
}

#[cold]
fn unanswered() -> StoreError {
    let message = "the store gave fewer answers than it was asked for";
    StoreError::new("leased", ErrorKind::Server, message).maybe_applied()
}
