//! Stores that are broken on purpose, to see that the checks find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_stores::Store;

/// A broken store misbehaves at one in this many calls.
const EACH: u64 = 10;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Broken {
    /// It admits some claims without charging them.
    Forgets,
    /// It decides by itself when its server does not answer, and does not mark the decisions as degraded.
    Generous,
    /// It charges some claims twice.
    Repeats,
    /// It starts a task for some calls that never ends.
    Leaks,
    /// It answers some calls late.
    Dawdles,
    /// It charges nothing and refuses everything.
    Refuses,
    /// It never answers some calls.
    Hangs,
    /// It blocks the thread of some calls.
    Blocks,
    /// Some calls fail, whatever the server does.
    Fails,
    /// It charges the first of several keys although it refuses them.
    Halves,
    /// It refuses all calls of several keys.
    Single,
}

impl Broken {
    /// The store, broken.
    pub(crate) fn around(self, store: Store) -> Store {
        Arc::new(BrokenStore { how: self, store, local: MemoryStore::new(), calls: AtomicU64::new(0) })
    }
}

#[derive(Debug)]
struct BrokenStore {
    how: Broken,
    store: Store,
    local: MemoryStore,
    calls: AtomicU64,
}

impl CounterStore for BrokenStore {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let is_chosen = self.calls.fetch_add(1, Ordering::Relaxed) % EACH == EACH - 1;
        match self.how {
            Broken::Forgets if is_chosen => self.store.claim(claims.with_mode(Mode::Peek)).await,
            Broken::Generous => match self.store.claim(claims).await {
                Err(_) => self.local.claim(claims).await,
                answer => answer,
            },
            Broken::Repeats if is_chosen => {
                let _ = self.store.claim(claims).await;
                self.store.claim(claims).await
            }
            Broken::Leaks if is_chosen => {
                tokio::spawn(std::future::pending::<()>());
                self.store.claim(claims).await
            }
            Broken::Dawdles if is_chosen => {
                tokio::time::sleep(std::time::Duration::from_secs(3)).await;
                self.store.claim(claims).await
            }
            Broken::Refuses | Broken::Single
                if claims.mode() != Mode::Peek && (self.how == Broken::Refuses || claims.len() > 1) =>
            {
                let mut answer = self.store.claim(claims.with_mode(Mode::Peek)).await?;
                answer.admitted = false;
                answer.verdicts.iter_mut().for_each(|verdict| verdict.fits = false);
                Ok(answer)
            }
            Broken::Hangs if is_chosen && claims.mode() != Mode::Peek => std::future::pending().await,
            Broken::Blocks if is_chosen && claims.mode() != Mode::Peek => {
                std::thread::sleep(std::time::Duration::from_secs(3));
                self.store.claim(claims).await
            }
            Broken::Fails if is_chosen && claims.mode() != Mode::Peek => {
                Err(StoreError::new("broken", ErrorKind::Server, "broken on purpose"))
            }
            Broken::Halves if claims.len() > 1 => {
                let answer = self.store.claim(claims).await?;
                if !answer.admitted
                    && let Ok(first) = Claims::new(claims.now(), claims.mode(), &claims[..1])
                {
                    self.store.claim(first).await?;
                }
                Ok(answer)
            }
            _ => self.store.claim(claims).await,
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}
