//! The suite for stores, on this crate's in their one-node form: memory underneath, and all handles on one node.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_cluster::Leased;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_memory::MemoryStore;

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![Box::new(OneNode {
        name: "leased",
        make: |shared| Arc::new(Leased::new(shared)),
    })])
}

type Make = fn(Arc<MemoryStore>) -> Arc<dyn DynCounterStore>;

/// One node on a shared store.
struct OneNode {
    name: &'static str,
    make: Make,
}

struct Node {
    shared: Arc<MemoryStore>,
    node: Arc<dyn DynCounterStore>,
}

#[async_trait]
impl Subject for OneNode {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let shared = Arc::new(MemoryStore::new());
        Ok(Arc::new(Node { node: (self.make)(shared.clone()), shared }))
    }
}

#[async_trait]
impl Space for Node {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.node.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.shared.len() as u64))
    }
}
