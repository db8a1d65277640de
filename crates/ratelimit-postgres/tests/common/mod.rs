//! Shared by the tests: a schema for each test on a real server, and a small random number generator.
#![allow(dead_code)] // each test uses a part of it

pub(crate) mod relay;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_testbed::{Postgres, Server, Settings, Testbed, Way};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// The address of the server that all tests of this file share. It stops with this process.
pub(crate) fn url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let obtain = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Testbed::from_env().postgres()).unwrap_or_else(|error| panic!("{error}"))
    };
    // On its own thread, because the caller's may belong to a runtime.
    SERVER.get_or_init(|| std::thread::spawn(obtain).join().unwrap()).url().to_owned()
}

/// A server for one test, as a process, so that no other server is disturbed.
pub(crate) async fn own_server(postgres: Postgres) -> Server {
    let settings =
        Settings { addresses: Default::default(), only: Some(Way::Process), ..Settings::from_env() };
    Testbed::new(settings).postgres_with(postgres).await.unwrap_or_else(|error| panic!("{error}"))
}

/// A schema that is dropped at the end.
pub(crate) struct Schema {
    pub(crate) name: String,
}

impl Schema {
    /// A new name; nothing is created yet.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("test {} {number}", std::process::id()) }
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::from_url(&url())
            .unwrap()
            .schema(&self.name)
            .prune_every(None)
            .timeout(std::time::Duration::from_secs(20))
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        let store = PostgresStore::connect_with(self.config()).await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&url()).await.unwrap()
    }

    /// Runs SQL, with `{s}` replaced by the schema.
    pub(crate) async fn run(&self, sql: &str) {
        let mut connection = PgConnection::connect(&url()).await.unwrap();
        let sql = sql.replace("{s}", &format!("\"{}\"", self.name));
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    /// The number of rows in the table.
    pub(crate) async fn rows(&self) -> i64 {
        let mut connection = PgConnection::connect(&url()).await.unwrap();
        let sql = format!("SELECT count(*) FROM \"{}\".meters", self.name);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.name);
        // On its own runtime, because the test's may be shutting down, and a drop cannot wait for it.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                if let Ok(mut connection) = PgConnection::connect(&url()).await {
                    let _ = connection.execute(AssertSqlSafe(sql)).await;
                }
            });
        });
        let _ = cleaner.join();
    }
}

/// A small generator with the same numbers each time, so that failures can be reproduced.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
