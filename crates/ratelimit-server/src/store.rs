//! The store, with the layers around it: a time limit, a breaker, and a fallback in memory.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_cluster::{Leased, Synced};
use ratelimit_core::layers::Resilience;
use ratelimit_core::{Clock as _, CounterStore, DynCounterStore, StoreError, SystemClock};
use ratelimit_memory::{MemoryConfig, MemoryStore};

use crate::args::{Args, Counting};

/// A store that is chosen when the server starts.
pub(crate) type Store = Arc<dyn DynCounterStore>;

/// How many calls to the store may be in progress at once.
const CALLS: usize = 10_000;

/// How many clients the fallback remembers, so that a flood of new ones while the store is away does not fill the memory.
const KEYS: usize = 1_000_000;

/// The store of this server, and what it has to do for it in the background and at the end.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) store: Store,
    counting: Fleet,
    interval: Duration,
}

#[derive(Clone, Debug)]
enum Fleet {
    Straight,
    Leased(Arc<Leased<Store>>),
    Synced(Arc<Synced<Store>>),
}

impl Member {
    /// Opens the store, which need not answer yet. Must be called in a tokio runtime.
    pub(crate) fn open(args: &Args) -> Result<Self, StoreError> {
        let Args { counting, interval, .. } = *args;
        let shared = ratelimit_stores::lazy(&args.store)?;
        if args.store.split([':', '?']).next() == Some("memory") {
            return Ok(Self { store: shared, counting: Fleet::Straight, interval });
        }
        let (store, counting) = match counting {
            Counting::Straight => (guarded(shared, args), Fleet::Straight),
            Counting::Leased => {
                let leased = Arc::new(Leased::new(shared));
                (guarded(leased.clone(), args), Fleet::Leased(leased))
            }
            // It counts here, and so needs no fallback.
            Counting::Synced => {
                let synced = Arc::new(Synced::new(shared));
                (synced.clone() as Store, Fleet::Synced(synced))
            }
        };
        Ok(Self { store, counting, interval })
    }

    /// The background work. Never ends.
    pub(crate) async fn run(&self) {
        let clock = SystemClock::new();
        match &self.counting {
            Fleet::Straight => std::future::pending().await,
            Fleet::Leased(store) => store.run(clock, self.interval).await,
            Fleet::Synced(store) => store.run(clock, self.interval).await,
        }
    }

    /// Gives back what others could use, or tells them what was counted here.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let now = SystemClock::new().now();
        match &self.counting {
            Fleet::Straight => Ok(()),
            Fleet::Leased(store) => store.give_back_all(now).await,
            Fleet::Synced(store) => store.sync(now).await,
        }
    }
}

/// The layers around a store that may be away.
fn guarded(store: impl CounterStore + 'static, args: &Args) -> Store {
    let store = Resilience::new(store).timeout(args.timeout).concurrent_calls(CALLS);
    let memory = MemoryStore::with_config(MemoryConfig::default().max_keys(KEYS));
    Arc::new(store.fallback(memory, args.instances))
}
