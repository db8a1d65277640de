//! The conformance suite on the SQLite store.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::DynCounterStore;
use sqlite_store::SqliteStore;
use tempfile::TempDir;

struct Sqlite;

#[async_trait]
impl Subject for Sqlite {
    fn name(&self) -> &str {
        "sqlite"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(Folder(TempDir::new()?)))
    }
}

struct Folder(TempDir);

#[async_trait]
impl Space for Folder {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(SqliteStore::open(self.0.path().join("meters")).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(SqliteStore::open(self.0.path().join("meters")).await?.meters().await?))
    }
}

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![Box::new(Sqlite)])
}
