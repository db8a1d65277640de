//! The conformance suite on this store: by itself, as a trait object, by its synchronous methods, and with layers.

mod away;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use away::{Away, Unmarked};
use ratelimit_conformance::{BoxError, InProcess, Space, Subject};
use ratelimit_memory::core::DynCounterStore;
use ratelimit_memory::core::layers::{
    BatchConfig, Batched, Breaker, BreakerConfig, Divided, Fallback, RefusalCache, Resilience, Timeout,
};
use ratelimit_memory::{MemoryConfig, MemoryStore};

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![
        Box::new(Memory { name: "memory", dress: |store| store }),
        Box::new(Memory {
            name: "memory-erased",
            dress: |store| Arc::new(store as Arc<dyn DynCounterStore>),
        }),
        Box::new(Memory { name: "memory-at-once", dress: |store| Arc::new(InProcess(store)) }),
        Box::new(Memory {
            name: "memory-timeout",
            dress: |store| Arc::new(Timeout::new(store, Duration::from_secs(10))),
        }),
        Box::new(Memory {
            name: "memory-batched",
            // Batches however few claims there are; by default, few are sent directly.
            dress: |store| Arc::new(Batched::with_config(store, BatchConfig::default().unbatched(0))),
        }),
        Box::new(Memory {
            name: "memory-breaker",
            dress: |store| Arc::new(Breaker::new(store, BreakerConfig::default())),
        }),
        Box::new(Memory {
            name: "memory-resilience",
            dress: |store| {
                // A loaded machine may need longer than the default.
                let stack = Resilience::new(store).timeout(Duration::from_secs(10));
                Arc::new(stack.fallback(MemoryStore::new(), 4))
            },
        }),
        Box::new(Memory {
            name: "memory-fallback",
            // The fallback decides everything, and gets all refunds.
            dress: |store| Arc::new(Unmarked(Fallback::new(Away, Divided::new(store, 1)))),
        }),
        Box::new(Memory { name: "memory-refusals", dress: |store| Arc::new(RefusalCache::new(store)) }),
    ])
}

/// The store with a layer.
struct Memory {
    name: &'static str,
    dress: Dress,
}

type Dress = fn(Arc<MemoryStore>) -> Arc<dyn DynCounterStore>;

struct OneStore {
    store: Arc<MemoryStore>,
    name: &'static str,
    dress: Dress,
    /// What one process shares.
    shared: Arc<dyn DynCounterStore>,
}

#[async_trait]
impl Subject for Memory {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let store = Arc::new(MemoryStore::with_config(MemoryConfig::default()));
        let shared = (self.dress)(store.clone());
        Ok(Arc::new(OneStore { store, name: self.name, dress: self.dress, shared }))
    }
}

#[async_trait]
impl Space for OneStore {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        // A second cache would act as another process, whose knowledge may be a second old.
        let one_process = self.name == "memory-refusals";
        Ok(if one_process { self.shared.clone() } else { (self.dress)(self.store.clone()) })
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.store.len() as u64))
    }
}
