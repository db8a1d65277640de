//! The suite for stores, on this one: as it is, behind a pointer, and decorated.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_memory::core::{BatchConfig, Batched, DynCounterStore, RefusalCache, Timeout};
use ratelimit_memory::{MemoryConfig, MemoryStore};

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![
        Box::new(Memory { name: "memory", dress: |store| store }),
        Box::new(Memory {
            name: "memory-erased",
            dress: |store| Arc::new(store as Arc<dyn DynCounterStore>),
        }),
        Box::new(Memory {
            name: "memory-timeout",
            dress: |store| Arc::new(Timeout::new(store, Duration::from_secs(10))),
        }),
        Box::new(Memory {
            name: "memory-batched",
            // However few there are: who goes alone goes straight to the store.
            dress: |store| {
                Arc::new(Batched::with_config(store, BatchConfig { alone: 0, ..BatchConfig::default() }))
            },
        }),
        Box::new(Memory { name: "memory-refusals", dress: |store| Arc::new(RefusalCache::new(store)) }),
    ])
}

/// The store, dressed up.
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
        // A second cache would be another process, whose knowledge may be a second old.
        let one_process = self.name == "memory-refusals";
        Ok(if one_process { self.shared.clone() } else { (self.dress)(self.store.clone()) })
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.store.len() as u64))
    }
}
