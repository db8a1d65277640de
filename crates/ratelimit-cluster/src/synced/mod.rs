//! Counting locally, and in step with the other nodes through a shared store.

mod ask;
mod flight;
mod resets;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::{
    Answer, Applied, Claim, Claims, CounterStore, Decisions, MAX_CLAIMS, Meter, MeterId, Mode, Promises,
    Refund, StoreError, SyncCounterStore, Time, Timer, Timestamp, Verdict,
};
use tokio::sync::Mutex;

use self::ask::Scope;
use self::flight::is_out_of_reach;
use self::resets::{Reset, Resets};
use crate::ledger::{Ledger, answer, answer_now};

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
    /// Held by whoever tells the store, or resets what is there.
    turn: Mutex<()>,
    unsure: AtomicU64,
    resets: Resets,
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
            turn: Mutex::default(),
            unsure: AtomicU64::new(0),
            resets: Resets::default(),
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
    /// does before it ends. If one is under way, or a reset, this waits for its end.
    ///
    /// A future that is dropped leaves what it was just telling as told or not, as a failure does.
    ///
    /// # Errors
    /// The last failure of the store. What it did not take is told the next time.
    pub async fn sync(&self, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.ledger.forget(now);
        self.resets.forget(now);
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

    /// Resets in the shared store what was reset here since the last time.
    async fn reset_shared(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut done = Ok(());
        let mut waiting = self.resets.take().into_iter();
        while let Some((name, reset)) = waiting.next() {
            let claim = Claim { id: name.id(), cost: 0, meter: reset.meter };
            let Err(error) = self.reset_one(&claim, now.max(reset.at)).await else { continue };
            if error.applied() == Applied::No {
                self.resets.put_back([(name, reset)]);
            }
            if is_out_of_reach(&error) {
                self.resets.put_back(waiting);
                return Err(error);
            }
            done = Err(error);
        }
        done
    }

    /// Forgets a meter in the shared store: for a window, each segment that is carried, and the one to come, in which
    /// nodes whose clocks are ahead may be. What is there of earlier ones does not count any more for this node.
    async fn reset_one(&self, claim: &Claim<'_>, at: Timestamp) -> Result<(), StoreError> {
        let scopes: Vec<Scope> = match &claim.meter {
            Meter::Window(window) => {
                let newest = window.place(at).0 + 1;
                let oldest = newest.saturating_sub(u64::from(window.carried()) + 1);
                if let Some(before) = oldest.checked_sub(1) {
                    let until = Scope::of_segment(&claim.id, window, before).forgotten_at();
                    self.resets.begin(&claim.id, window.instant(oldest, 0), until, at);
                }
                (oldest..=newest).map(|segment| Scope::of_segment(&claim.id, window, segment)).collect()
            }
            meter => vec![Scope::whole(&claim.id, *meter)],
        };
        for some in scopes.chunks(MAX_CLAIMS) {
            let claims: Vec<Claim<'_>> = some.iter().map(|scope| scope.claim(&claim.id, 0)).collect();
            // They are as many as one slice may have, and differ in their scopes.
            if let Ok(claims) = Claims::new(at, Mode::Charge, &claims) {
                self.shared.reset(claims).await?;
            }
        }
        Ok(())
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

    /// Forgets the meters here and in the shared store, once what this node is telling has been told. What another node is just
    /// telling may count on, and so may what was charged in earlier segments of a window, for another node whose clock is
    /// behind by as much.
    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        // Nothing is told meanwhile: what is told before the reset is forgotten with it, and what is charged from now on is
        // told after it.
        let _turn = self.turn.lock().await;
        let resets: Vec<_> =
            claims.iter().map(|claim| Reset::of(claim, &self.ledger, claims.now())).collect();
        self.ledger.reset_now(claims);
        for (claim, reset) in claims.iter().zip(resets) {
            self.reset_one(claim, reset.at).await?;
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> SyncCounterStore for Synced<S> {
    answer_now!();

    /// Forgets the meters here at once, and in the shared store with the next [`sync`](Synced::sync); before that nothing
    /// more is told of them.
    fn reset_now(&self, claims: Claims<'_>) {
        self.resets.add(&self.ledger, claims);
    }
}
