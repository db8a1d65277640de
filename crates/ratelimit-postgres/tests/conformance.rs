//! The suite for stores, on a real server: connections of the store's own, and those of a pool.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::{Schema, url};
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_postgres::{PostgresConfig, PostgresStore, TimeSource};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

fn main() -> ExitCode {
    ratelimit_conformance::main(vec![
        Box::new(Postgres { name: "postgres", time: TimeSource::Caller, pooled: false }),
        Box::new(Postgres { name: "postgres-pool", time: TimeSource::Caller, pooled: true }),
        Box::new(Postgres { name: "postgres-clock", time: TimeSource::Server, pooled: false }),
    ])
}

/// The store, on connections of its own or those of a pool.
struct Postgres {
    name: &'static str,
    time: TimeSource,
    pooled: bool,
}

struct OneSchema {
    schema: Schema,
    time: TimeSource,
    pooled: bool,
}

#[async_trait]
impl Subject for Postgres {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        let schema = Schema::new();
        PostgresStore::connect_with(schema.config()).await?.migrate().await?;
        Ok(Arc::new(OneSchema { schema, time: self.time, pooled: self.pooled }))
    }
}

impl OneSchema {
    async fn open_with(
        &self,
        server: PgConnectOptions,
        prune_every: Option<Duration>,
    ) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let config = PostgresConfig {
            server: server.clone(),
            time: self.time,
            timeout: PostgresConfig::default().timeout,
            connections: 2,
            prune_every,
            ..self.schema.config()
        };
        if !self.pooled {
            return Ok(Arc::new(PostgresStore::connect_with(config).await?));
        }
        let pool =
            PgPoolOptions::new().max_connections(2).test_before_acquire(false).connect_with(server).await?;
        Ok(Arc::new(PostgresStore::with_pool(pool, config)?))
    }
}

#[async_trait]
impl Space for OneSchema {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_with(url().parse()?, Some(Duration::from_millis(500))).await
    }

    fn address(&self) -> Option<SocketAddr> {
        // A pool asks its connections between calls whether they are alive.
        if self.pooled {
            return None;
        }
        let server: PgConnectOptions = url().parse().ok()?;
        Some(SocketAddr::new(server.get_host().parse().ok()?, server.get_port()))
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let server: PgConnectOptions = url().parse()?;
        // Its requests are counted, so it makes none by itself.
        self.open_with(server.host(&address.ip().to_string()).port(address.port()), None).await
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(Some(u64::try_from(self.schema.rows().await)?))
    }
}
