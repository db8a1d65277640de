//! The suite for stores, on a real server: tables of both kinds, both clocks, connections of the store's own and of a pool.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_postgres::{Logged, PostgresConfig, PostgresStore, TimeSource};
use ratelimit_testbed::{Testbed, Unavailable};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Longer than a machine that is busy with something else takes for a call.
const TIMEOUT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Arc::new(runtime.block_on(Testbed::from_env().postgres()));
    let plain = Postgres {
        name: "postgres",
        server,
        logged: Logged::Unlogged,
        time: TimeSource::Caller,
        pooled: false,
    };
    ratelimit_conformance::main(vec![
        Box::new(plain.clone()),
        Box::new(Postgres { name: "postgres-logged", logged: Logged::Logged, ..plain.clone() }),
        Box::new(Postgres { name: "postgres-server-clock", time: TimeSource::Server, ..plain.clone() }),
        Box::new(Postgres { name: "postgres-pool", pooled: true, ..plain }),
    ])
}

#[derive(Clone)]
struct Postgres {
    name: &'static str,
    server: Arc<Result<ratelimit_testbed::Server, Unavailable>>,
    logged: Logged,
    time: TimeSource,
    pooled: bool,
}

/// A schema that nobody else uses.
struct Schema {
    config: PostgresConfig,
    address: SocketAddr,
    pooled: bool,
}

#[async_trait]
impl Subject for Postgres {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let server = match &*self.server {
            Ok(server) => server,
            Err(unavailable) => return Err(unavailable.to_string().into()),
        };
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let config = PostgresConfig {
            schema: format!("conformance {} {number}", std::process::id()),
            logged: self.logged,
            time: self.time,
            timeout: TIMEOUT,
            connections: 2,
            prune_every: Some(Duration::from_millis(500)),
            ..PostgresConfig::from_url(server.url())?
        };
        let quiet = PostgresConfig { prune_every: None, ..config.clone() };
        PostgresStore::connect_with(quiet).await?.migrate().await?;
        Ok(Arc::new(Schema { config, address: server.address(), pooled: self.pooled }))
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        let server = self.server.as_ref().as_ref().ok()?;
        server.is_controlled().then(|| Arc::new(server.clone()) as Arc<dyn Server>)
    }
}

impl Schema {
    async fn open_with(&self, config: PostgresConfig) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        if !self.pooled {
            return Ok(Arc::new(PostgresStore::connect_with(config).await?));
        }
        let server = config.server.clone();
        let pool = PgPoolOptions::new().max_connections(2).test_before_acquire(false).connect_with(server);
        Ok(Arc::new(PostgresStore::with_pool(pool.await?, config)?))
    }
}

#[async_trait]
impl Space for Schema {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_with(self.config.clone()).await
    }

    fn address(&self) -> Option<SocketAddr> {
        // A pool asks its connections between calls whether they are alive.
        (!self.pooled).then_some(self.address)
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let server = self.config.server.clone().host(&address.ip().to_string()).port(address.port());
        // Its requests are counted, so it makes none by itself.
        self.open_with(PostgresConfig { server, prune_every: None, ..self.config.clone() }).await
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let mut connection = PgConnection::connect_with(&self.config.server).await?;
        let sql = format!("SELECT count(*) FROM \"{}\".meters", self.config.schema);
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
        Ok(Some(u64::try_from(rows)?))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (server, schema) = (self.config.server.clone(), self.config.schema.clone());
        // Nobody waits for it: what a case leaves behind is only in the way on a server that stays.
        tokio::spawn(async move {
            let sql = format!("SET client_min_messages = error; DROP SCHEMA \"{schema}\" CASCADE");
            let mut connection = PgConnection::connect_with(&server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await
        });
    }
}
