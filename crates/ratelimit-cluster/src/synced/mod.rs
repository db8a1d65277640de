//! Counting locally, and in step with the other nodes through a shared store.

mod ask;
mod flight;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::{
    Answer, Applied, Claim, Claims, CounterStore, Decisions, MAX_CLAIMS, Meter, Mode, Promises, Refund,
    StoreError, SyncCounterStore, Time, Timer, Timestamp, Verdict,
};

use self::ask::Scope;
use crate::ledger::{Ledger, answer, answer_now};
use crate::names::{Name, lock};

/// What bounds a [`Synced`].
///
/// ```
/// use ratelimit_cluster::SyncConfig;
///
/// let config = SyncConfig { max_keys: 5_000_000, ..SyncConfig::default() };
/// assert_eq!(config.batch, 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// The most meters that are known at once; a check of a further one is an error
    /// ([`ErrorKind::Full`](ratelimit_core::ErrorKind::Full)). 1,000,000 by default.
    pub max_keys: usize,
    /// How many meters the store is asked about in one batch. 500 by default.
    pub batch: usize,
    /// How many batches are under way at once. 4 by default.
    pub at_once: usize,
    /// Where the secrets come from by which meters are found, and the order in which they are told. Drawn at random if there
    /// is none, as it should be but in a test that is to be repeated: who knows them can choose keys that fall together.
    pub seed: Option<u64>,
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, batch: 500, at_once: 4, seed: None }
    }
}

/// A store that answers from the memory of this process, and tells a shared store each interval what it has charged.
/// The answer to that carries back what all other nodes have charged.
///
/// # What it guarantees
/// A check never waits for the shared store, and does not fail when that fails. This node by itself never admits more
/// than the limit. Several nodes may: what one of them charges, another one knows of after both have told, and it asks
/// about a key only when it has itself charged to it. How much more that may be at worst is told on the page *Counting
/// together* of the project's documentation: never more than (nodes - 1) x limit, and with the store at hand
/// what the nodes admit within two intervals.
///
/// # What it costs
/// For each key that was charged since the last time one claim in a batch; for windows that carry earlier segments a few
/// more when a segment has ended. A key that was not charged costs nothing. Several batches are under way at once
/// ([`SyncConfig::at_once`]); all of one meter is told in one of them, or in the next, so in its order.
///
/// # Failures
/// What the store surely did not take is told the next time. What it may have taken ([`Applied::Unknown`]) is never told
/// again, since a store that is slow would count it again and again: this node goes on counting it by itself, and
/// [`unsure`](Self::unsure) says how much that was.
///
/// # Refunds and resets
/// A refund is told like a charge. To a log it has to be made on the node that made the charge. A reset forgets the meter
/// here and in the shared store; another node sees that when it next charges to it.
///
/// ```
/// use ratelimit_cluster::Synced;
/// use ratelimit_core::{Clock, Limit, RateLimiter, SystemClock};
/// use ratelimit_memory::MemoryStore;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let shared = MemoryStore::new(); // a server's store in earnest
/// let limiter = RateLimiter::new(Synced::new(shared), "10000/min".parse::<Limit>()?);
/// assert!(limiter.check_now("user:7")?.allowed());
/// // In a task of its own: limiter.store().run(SystemClock::new(), Duration::from_secs(1))
/// limiter.store().sync(SystemClock::new().now()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Synced<S> {
    shared: S,
    ledger: Ledger,
    config: SyncConfig,
    is_syncing: AtomicBool,
    unsure: AtomicU64,
    /// Meters that were reset on the spot, and are still there in the store.
    resets: Mutex<Vec<(Name, Meter, Timestamp)>>,
}

impl<S: CounterStore> Synced<S> {
    /// Counts in step with the others on `shared`, by the default configuration.
    pub fn new(shared: S) -> Self {
        Self::with_config(shared, SyncConfig::default())
    }

    /// Counts in step with the others on `shared`.
    pub fn with_config(shared: S, config: SyncConfig) -> Self {
        Self {
            shared,
            ledger: Ledger::new(config.max_keys, config.seed),
            config,
            is_syncing: AtomicBool::new(false),
            unsure: AtomicU64::new(0),
            resets: Mutex::default(),
        }
    }

    /// The shared store.
    pub fn inner(&self) -> &S {
        &self.shared
    }

    /// Of how many meters this node knows something.
    pub fn len(&self) -> usize {
        self.ledger.len()
    }

    /// Whether it knows of none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many times something was told of which it is not known whether the store has taken it.
    pub fn unsure(&self) -> u64 {
        self.unsure.load(Ordering::Relaxed)
    }

    /// Tells the shared store what was charged since the last time, and learns what the others have. Also what a node
    /// does before it ends. While one is under way, another one does nothing.
    ///
    /// A future that is dropped leaves what it was just telling as told or not, as a failure does.
    ///
    /// # Errors
    /// The last failure of the store. What it did not take is told the next time.
    pub async fn sync(&self, now: Timestamp) -> Result<(), StoreError> {
        let Some(_turn) = Turn::take(&self.is_syncing) else { return Ok(()) };
        self.ledger.forget(now);
        let resets = self.reset_shared(now).await;
        let told = flight::tell_all(self, now).await;
        resets.and(told)
    }

    /// Calls [`sync`](Self::sync) each time that `every` has passed, for ever: to be spawned. A failure leaves what was
    /// not told for the next time.
    pub async fn run<C: Timer>(&self, clock: C, every: Duration) {
        loop {
            clock.sleep(every).await;
            let _ = self.sync(clock.now()).await;
        }
    }

    async fn reset_shared(&self, now: Timestamp) -> Result<(), StoreError> {
        let resets = std::mem::take(&mut *lock(&self.resets));
        for (nth, (name, meter, newest)) in resets.iter().enumerate() {
            let claim = Claim { id: name.id(), cost: 0, meter: *meter };
            if let Err(error) = self.reset_one(&claim, now.max(*newest)).await {
                if error.applied() == Applied::No {
                    lock(&self.resets).extend_from_slice(&resets[nth..]);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The instant as of which a meter is reset: clocks may be behind those that have charged it.
    fn newest(&self, claim: &Claim<'_>, now: Timestamp) -> Timestamp {
        self.ledger.newest(&claim.id).map_or(now, |newest| now.max(newest))
    }

    /// Forgets a meter in the shared store: for a window, each segment that is carried, and the one to come, in which
    /// nodes whose clocks are ahead may be.
    async fn reset_one(&self, claim: &Claim<'_>, now: Timestamp) -> Result<(), StoreError> {
        let scopes: Vec<Scope> = match &claim.meter {
            Meter::Window(window) => {
                let newest = window.place(now).0 + 1;
                let oldest = newest.saturating_sub(u64::from(window.carried()) + 1);
                (oldest..=newest).map(|segment| Scope::of_segment(&claim.id, window, segment)).collect()
            }
            meter => vec![Scope::whole(&claim.id, *meter)],
        };
        for some in scopes.chunks(MAX_CLAIMS) {
            let claims: Vec<Claim<'_>> = some.iter().map(|scope| scope.claim(&claim.id, 0)).collect();
            // They are as many as one slice may have, and differ in their scopes.
            if let Ok(claims) = Claims::new(now, Mode::Charge, &claims) {
                self.shared.reset(claims).await?;
            }
        }
        Ok(())
    }
}

/// Held by the only task that speaks to the store.
struct Turn<'s>(&'s AtomicBool);

impl<'s> Turn<'s> {
    fn take(is_taken: &'s AtomicBool) -> Option<Self> {
        (!is_taken.swap(true, Ordering::Acquire)).then(|| Self(is_taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<S: fmt::Debug> fmt::Debug for Synced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synced")
            .field("inner", &self.shared)
            .field("config", &self.config)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> CounterStore for Synced<S> {
    answer!();

    /// Forgets the meters here and in the shared store. What this or another node is just telling may count on, and so may
    /// what was charged in earlier segments of a window, for a node whose clock is behind by as much.
    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let newest: Vec<_> = claims.iter().map(|claim| self.newest(claim, claims.now())).collect();
        self.ledger.reset_now(claims);
        for (claim, newest) in claims.iter().zip(newest) {
            self.reset_one(claim, newest).await?;
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> SyncCounterStore for Synced<S> {
    answer_now!();

    /// Forgets the meters here at once, and in the shared store with the next [`sync`](Synced::sync).
    fn reset_now(&self, claims: Claims<'_>) {
        let reset = |claim: &Claim<'_>| (Name::new(&claim.id), claim.meter, self.newest(claim, claims.now()));
        let resets: Vec<_> = claims.iter().map(reset).collect();
        self.ledger.reset_now(claims);
        lock(&self.resets).extend(resets);
    }
}
