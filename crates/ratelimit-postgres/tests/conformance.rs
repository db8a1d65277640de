//! The conformance suite on real servers: both kinds of table, both clocks, every kind of connection.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_postgres::{Logged, PostgresConfig, PostgresStore, Time};
use ratelimit_testbed::{
    Asked, Certificates, OtherVersion, POSTGRES_VERSIONS, PgBouncer, Postgres, Testbed, Unavailable,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Longer than any call takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Longer than a call with thousands of claims takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let subjects = runtime.block_on(subjects());
    ratelimit_conformance::main(
        subjects.into_iter().map(|subject| Box::new(subject) as Box<dyn Subject>).collect(),
    )
}

/// All targets. A server that no requested target needs is not started.
async fn subjects() -> Vec<Target> {
    let versions = POSTGRES_VERSIONS.each_ref().map(OtherVersion::name);
    let asked = Asked::from_args(&[&NAMES[..], &versions].concat());
    let testbed = Testbed::from_env();
    let mut subjects = Vec::new();
    if PLAIN.iter().any(|name| asked.has(name)) {
        let server = Arc::new(testbed.postgres().await.map(Way::direct));
        let plain = |name, settings| Target { name, way: server.clone(), settings, pool: false };
        subjects.extend([
            plain("postgres", |config| config),
            plain("postgres-logged", |config| config.logged(Logged::Logged)),
            plain("postgres-server-clock", |config| config.time(Time::Server)),
            Target { pool: true, ..plain("postgres-pool", |config| config) },
        ]);
    }
    if asked.has("postgres-unix") {
        let server = testbed.postgres_with(Postgres { socket: true, ..Postgres::default() }).await;
        // A proxy that counts round trips can only be reached over the network.
        let way = server.map(|server| Way { counted: false, ..Way::direct(server) });
        subjects.push(Target::new("postgres-unix", way));
    }
    if cfg!(feature = "tls") && asked.has("postgres-tls") {
        let certificates = Some(Arc::new(Certificates::new().expect("certificates")));
        let server = testbed.postgres_with(Postgres { certificates, ..Postgres::default() }).await;
        // Each connection reads all of the machine's authorities, which takes long on a busy machine.
        let settings = |config: PostgresConfig| config.timeout(Duration::from_secs(9));
        subjects.push(Target { settings, ..Target::new("postgres-tls", server.map(Way::direct)) });
    }
    if asked.has("postgres-pgbouncer") || asked.has("postgres-pgbouncer-pool") {
        let way = Arc::new(pooled(&testbed).await);
        let target = Target { name: "postgres-pgbouncer", way, settings: |config| config, pool: false };
        let pool = Target { name: "postgres-pgbouncer-pool", pool: true, way: target.way.clone(), ..target };
        subjects.extend([target, pool]);
    }
    for version in POSTGRES_VERSIONS.iter().filter(|version| asked.names(version.name())) {
        let server = testbed.postgres_version(version).await;
        subjects.push(Target::new(version.name(), server.map(Way::direct)));
    }
    subjects
}

/// The targets that share one server.
const PLAIN: [&str; 4] = ["postgres", "postgres-logged", "postgres-server-clock", "postgres-pool"];

/// All targets on the usual version.
const NAMES: [&str; 8] = [
    PLAIN[0],
    PLAIN[1],
    PLAIN[2],
    PLAIN[3],
    "postgres-unix",
    "postgres-tls",
    "postgres-pgbouncer",
    "postgres-pgbouncer-pool",
];

/// How the server is reached.
struct Way {
    /// The server that the store connects to, and that is killed and frozen.
    server: ratelimit_testbed::Server,
    /// PostgreSQL itself.
    direct: ratelimit_testbed::Server,
    /// Whether round trips to it can be counted.
    counted: bool,
}

impl Way {
    fn direct(server: ratelimit_testbed::Server) -> Self {
        Self { direct: server.clone(), server, counted: true }
    }
}

/// PgBouncer in transaction mode, which gives each statement a different connection.
async fn pooled(testbed: &Testbed) -> Result<Way, Unavailable> {
    // PgBouncer rejects every password here, so the server is one for this test.
    let direct = testbed.postgres_with(Postgres::default()).await?;
    // Each case has its own schema. A connection that had served hundreds of them would have the plans of all, and would
    // search them whenever one is created or dropped, which takes seconds.
    let settings = vec!["server_lifetime = 5".to_owned()];
    let server = testbed.pgbouncer(&direct, PgBouncer { settings }).await?;
    Ok(Way { server, direct, counted: true })
}

struct Target {
    name: &'static str,
    way: Arc<Result<Way, Unavailable>>,
    settings: fn(PostgresConfig) -> PostgresConfig,
    /// Over the connections of a pool of the program.
    pool: bool,
}

impl Target {
    fn new(name: &'static str, way: Result<Way, Unavailable>) -> Self {
        Self { name, way: Arc::new(way), settings: |config| config, pool: false }
    }
}

/// A schema that nothing else uses.
struct Schema {
    config: PostgresConfig,
    direct: PgConnectOptions,
    address: Option<SocketAddr>,
    pool: bool,
}

#[async_trait]
impl Subject for Target {
    fn name(&self) -> &str {
        self.name
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let way = match &*self.way {
            Ok(way) => way,
            Err(unavailable) => return Err(unavailable.to_string().into()),
        };
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let config = PostgresConfig::from_url(way.server.url())?
            .schema(format!("conformance {} {number}", std::process::id()))
            .timeout(TIMEOUT)
            .connections(2)
            .prune_every(Duration::from_millis(500));
        let config = (self.settings)(config);
        PostgresStore::connect_with(config.clone().prune_every(None)).await?.migrate().await?;
        // A pool checks its connections between calls.
        let address = (way.counted && !self.pool).then(|| way.server.address());
        Ok(Arc::new(Schema { config, direct: way.direct.url().parse()?, address, pool: self.pool }))
    }

    fn unavailable(&self) -> Option<String> {
        Some(self.way.as_ref().as_ref().err()?.to_string())
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        let server = &self.way.as_ref().as_ref().ok()?.server;
        server.is_controlled().then(|| Arc::new(server.clone()) as Arc<dyn Server>)
    }
}

impl Schema {
    async fn open_with(&self, config: PostgresConfig) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        if !self.pool {
            return Ok(Arc::new(PostgresStore::connect_with(config).await?));
        }
        // PgBouncer refuses this setting, which sqlx sets by default.
        let server = config.server.clone().extra_float_digits(None);
        let pool = PgPoolOptions::new().max_connections(2).test_before_acquire(false).connect_with(server);
        Ok(Arc::new(PostgresStore::with_pool(pool.await?, config)?))
    }
}

#[async_trait]
impl Space for Schema {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_with(self.config.clone()).await
    }

    async fn open_patient(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_with(self.config.clone().timeout(PATIENT)).await
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let server = self.config.server.clone().host(&address.ip().to_string()).port(address.port());
        // Its requests are counted, so it must not send any in the background.
        self.open_with(self.config.clone().server(server).prune_every(None)).await
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let mut connection = PgConnection::connect_with(&self.direct).await?;
        let sql = format!("SELECT count(*) FROM \"{}\".meters", self.config.schema);
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
        Ok(Some(u64::try_from(rows)?))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (server, schema) = (self.direct.clone(), self.config.schema.clone());
        // Not awaited: what a case leaves behind matters only on a server that keeps running.
        tokio::spawn(async move {
            let sql = format!("SET client_min_messages = error; DROP SCHEMA \"{schema}\" CASCADE");
            let mut connection = PgConnection::connect_with(&server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await
        });
    }
}
