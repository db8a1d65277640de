//! The suite on its reference store, with the harness of a user.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, ReferenceStore, Space, Subject};
use ratelimit_core::DynCounterStore;

struct Reference;
struct OneStore(Arc<ReferenceStore>);

#[async_trait]
impl Subject for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(OneStore(Arc::default())))
    }
}

#[async_trait]
impl Space for OneStore {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.0.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.0.len()))
    }
}

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![Box::new(Reference)])
}
