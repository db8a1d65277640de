//! The suite for stores, on this one: as it is, behind a pointer, and decorated.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_memory::core::{Batched, DynCounterStore, Timeout};
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
        Box::new(Memory { name: "memory-batched", dress: |store| Arc::new(Batched::new(store)) }),
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
    dress: Dress,
}

#[async_trait]
impl Subject for Memory {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let store = Arc::new(MemoryStore::with_config(MemoryConfig::default()));
        Ok(Arc::new(OneStore { store, dress: self.dress }))
    }
}

#[async_trait]
impl Space for OneStore {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok((self.dress)(self.store.clone()))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.store.len() as u64))
    }
}
