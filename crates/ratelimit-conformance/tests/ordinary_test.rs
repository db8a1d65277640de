//! The suite in an ordinary test, as in the documentation of the crate.

use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, ReferenceStore, Space, Subject, Suite};
use ratelimit_core::DynCounterStore;

struct MyStore;
struct Database(Arc<ReferenceStore>);

#[async_trait]
impl Subject for MyStore {
    fn name(&self) -> &str {
        "my-store"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(Database(Arc::default())))
    }
}

#[async_trait]
impl Space for Database {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.0.clone())
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(self.0.len()))
    }
}

#[tokio::test]
async fn my_store_passes() {
    Suite::default().check(MyStore).await;
}

#[tokio::test]
#[should_panic(expected = "FAIL charges-refusals worked-examples/only-successes-count")]
async fn a_store_that_does_not_pass_panics_with_the_case() {
    let store =
        ratelimit_broken_stores::all().into_iter().find(|store| store.name() == "charges-refusals").unwrap();
    Suite::default().filters(["worked-examples/"]).check(store).await;
}

#[tokio::test]
#[should_panic(expected = "0 passed, 0 failed, 0 skipped")]
async fn a_suite_without_cases_panics() {
    Suite::default().filters(["no such case"]).check(MyStore).await;
}
