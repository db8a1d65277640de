//! `Synced`: counts locally, and synchronizes with the other nodes through a shared store.

mod config;
mod request;
mod resets;
mod sync;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::clock::Timer;
use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{
    Answer, Claim, Claims, Decisions, MAX_CLAIMS, MeterId, Mode, Promises, Refund, Time, Verdict,
};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, SyncCounterStore, Timestamp};
use tokio::sync::Mutex;

pub use self::config::SyncConfig;
use self::request::Scope;
use self::resets::{Reset, Resets};
use crate::ledger::{Ledger, counter_store_methods, sync_counter_store_methods};

/// A store that decides in the memory of this process, and sends its charges to a shared store once an interval. The answers
/// contain what all other nodes have charged.
///
/// # What it guarantees
/// A check never waits for the shared store, and does not fail when that fails. One node by itself never admits more than the
/// limit. Several nodes may: a node sees another one's charges after both have synchronized, and it reads a key only after it
/// has charged, refunded or refused that key itself. The excess is at most (nodes - 1) x limit and, while the store can be
/// reached, what the nodes admit within two intervals. The page *Counting together* of the project's documentation has the
/// details.
///
/// # What it costs
/// Each interval costs one claim for each key that was charged or refused in it, in batches; logs that were charged cost two,
/// and windows that carry earlier segments a few more after a segment has ended. Other keys cost nothing. Several batches are
/// in flight at once ([`SyncConfig::concurrent_batches`]); the charges of one meter are sent in order.
///
/// # Failures
/// Charges that the store did not apply are sent again the next time. Charges that it may have applied
/// ([`Applied::Unknown`](ratelimit_core::store::Applied::Unknown)) are not sent again, because a slow store would count them several
/// times. This node continues to count them by itself, and [`unsure`](Self::unsure) returns how often that happened. A reset
/// is repeated until the store has confirmed it.
///
/// # Limits that it cannot count
/// Fixed windows that start with a key's first request, buckets that are refilled in steps, and quotas in total: nodes
/// that count for themselves cannot agree on when a key's first request was. A check under such a limit is an error
/// ([`ErrorKind::Unsupported`](ratelimit_core::ErrorKind::Unsupported)). Use the shared store itself, or
/// [`Leased`](crate::Leased).
///
/// # Refunds and resets
/// A refund is sent like a charge. Under a log, refund on the node that made the charge.
///
/// A reset removes the meter on this node and in the shared store. Another node sees the reset with its first
/// [`sync`](Self::sync) after it has charged, refunded or refused the key. So does a node that refuses see what others have
/// refunded. Of segments of a window that have ended, it sees a reset only if it has refused the key and not charged it since
/// the last one.
///
/// ```
/// use ratelimit_cluster::Synced;
/// use ratelimit_core::{Clock, Limit, RateLimiter, SystemClock};
/// use ratelimit_memory::MemoryStore;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let shared = MemoryStore::new(); // in production: a store with a server
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
    /// Held while charges are sent to the store, or meters are reset there.
    turn: Mutex<()>,
    unsure: AtomicU64,
    /// Whether the last charges could not all be sent.
    has_failed: AtomicBool,
    resets: Resets,
}

impl<S: CounterStore> Synced<S> {
    /// Synchronizes through `shared`, with the default configuration.
    pub fn new(shared: S) -> Self {
        Self::with_config(shared, SyncConfig::default())
    }

    /// Synchronizes through `shared`.
    pub fn with_config(shared: S, config: SyncConfig) -> Self {
        Self {
            shared,
            ledger: Ledger::new(config.max_keys, config.seed),
            config,
            turn: Mutex::default(),
            unsure: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            resets: Resets::default(),
        }
    }

    /// The shared store.
    pub fn inner(&self) -> &S {
        &self.shared
    }

    /// The number of meters that this node counts.
    pub fn len(&self) -> usize {
        self.ledger.len()
    }

    /// Whether this node counts no meters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a meter's charges were sent without knowing whether the store applied them.
    pub fn unsure(&self) -> u64 {
        self.unsure.load(Ordering::Relaxed)
    }

    /// Sends the charges since the last call to the shared store, and reads those of the other nodes. Also call it before
    /// the process ends. Waits while another call or a reset is in progress.
    ///
    /// Dropping the future is like a failure: requests in flight may have been applied or not.
    ///
    /// # Errors
    /// If the store failed: one of its errors. Charges that it did not apply are sent the next time.
    pub async fn sync(&self, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.ledger.expire(now);
        self.resets.expire(now);
        let resets = self.reset_shared(self.resets.to_make(), now).await;
        resets.and(self.send_pending(now).await)
    }

    /// Calls [`sync`](Self::sync) each time `every` has passed, forever. Spawn this as a task. It ignores errors: charges
    /// that were not sent are sent the next time.
    pub async fn run<C: Timer>(&self, clock: C, every: Duration) {
        loop {
            clock.sleep(every).await;
            let _ = self.sync(clock.now()).await;
        }
    }

    /// Makes pending resets in the shared store. Those that fail, or are dropped, are made the next time.
    async fn reset_shared(&self, resets: Vec<(OwnedName, Reset)>, now: Timestamp) -> Result<(), StoreError> {
        let mut done = Ok(());
        for (name, reset) in resets {
            let claim = Claim { id: name.id(), cost: 0, meter: reset.meter };
            match self.reset_one(&claim, now.max(reset.at)).await {
                Ok(()) => self.resets.made(&name, &reset),
                Err(error) if is_unreachable(&error) => return Err(error),
                Err(error) => done = Err(error),
            }
        }
        done
    }

    /// Resets a meter in the shared store: for a window, the carried segments and the next one, in which nodes with a fast clock
    /// may be. This node ignores earlier segments from now on.
    async fn reset_one(&self, claim: &Claim<'_>, at: Timestamp) -> Result<(), StoreError> {
        let scopes: Vec<Scope> = match &claim.meter {
            Meter::Window(window) => {
                let newest = window.place(at).0 + 1;
                let oldest = newest.saturating_sub(u64::from(window.carried()) + 1);
                if let Some(before) = oldest.checked_sub(1) {
                    let until = Scope::of_segment(&claim.id, window, before).forgotten_at();
                    self.resets.add_cutoff(&claim.id, window.instant(oldest, 0), until, at);
                }
                (oldest..=newest).map(|segment| Scope::of_segment(&claim.id, window, segment)).collect()
            }
            meter => vec![Scope::whole(&claim.id, *meter)],
        };
        for some in scopes.chunks(MAX_CLAIMS) {
            let claims: Vec<Claim<'_>> = some.iter().map(|scope| scope.claim(&claim.id, 0)).collect();
            // Always valid: at most as many claims as a slice may have, with different scopes.
            if let Ok(claims) = Claims::new(at, Mode::Charge, &claims) {
                self.shared.reset(claims).await?;
            }
        }
        Ok(())
    }
}

/// Whether a call to the store failed because it cannot be reached.
fn is_unreachable(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
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

impl<S: CounterStore> CounterStore for Synced<S> {
    counter_store_methods!();

    /// Resets the meters on this node and in the shared store, after a [`sync`](Synced::sync) in progress has ended.
    /// Charges that another node is sending at that moment may still count afterwards. If the clock of another node is so
    /// far behind that it counts in earlier segments of a window, those segments may still count on it, too.
    ///
    /// If the store fails, or the call is dropped after it has reset the meters here, the next [`sync`](Synced::sync) makes
    /// what is left of it. Until then, no charges of these meters are sent. If the error is not
    /// [retryable](StoreError::is_retryable), for example because of missing rights, nothing is left: the meters are reset here
    /// until the node next reads them.
    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        // Nothing is sent in the meantime: charges sent before the reset are removed by it, and later ones are sent after it.
        let _turn = self.turn.lock().await;
        let resets = self.resets.add(&self.ledger, claims);
        let done = self.reset_shared(resets.clone(), claims.now()).await;
        if done.as_ref().is_err_and(|error| !error.is_retryable()) {
            resets.iter().for_each(|(name, reset)| self.resets.made(name, reset));
        }
        done
    }
}

impl<S: CounterStore> SyncCounterStore for Synced<S> {
    sync_counter_store_methods!();

    /// Resets the meters on this node immediately, and in the shared store with the next [`sync`](Synced::sync). Until
    /// then, no charges of them are sent.
    fn reset_now(&self, claims: Claims<'_>) {
        self.resets.add(&self.ledger, claims);
    }
}
