//! The conformance suite on the store at the URL in `RATELIMIT_STORE_URL`, or on `memory:` if it is not set.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Space, Subject};
use ratelimit_stores::Store;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};

fn main() -> ExitCode {
    let url = std::env::var("RATELIMIT_STORE_URL").unwrap_or_else(|_| "memory:".to_owned());
    ratelimit_conformance::main(vec![Box::new(Url(url))])
}

struct Url(String);

/// Names on the server that no other test uses.
struct OneCase {
    url: String,
    /// The state that one process shares, if other processes cannot see it.
    shared: Option<Store>,
    /// Dropped at the end.
    schema: Option<(PgConnectOptions, String)>,
}

#[async_trait]
impl Subject for Url {
    fn name(&self) -> &str {
        "url"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("conformance-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        // Options that the suite needs are added unless the URL sets them.
        let with = |options: &[(&str, &str)]| {
            let absent = options.iter().filter(|(name, _)| !self.0.contains(&format!("{name}=")));
            absent.fold(self.0.clone(), |url, (name, value)| {
                format!("{url}{}{name}={value}", if url.contains('?') { '&' } else { '?' })
            })
        };
        let mut case = OneCase { url: self.0.clone(), shared: None, schema: None };
        match self.0.split([':', '+']).next() {
            Some("memory") => case.shared = Some(ratelimit_stores::connect(&self.0).await?),
            Some("postgres" | "postgresql") => {
                case.url = with(&[
                    ("schema", &name),
                    ("timeout", "5s"),
                    ("connections", "2"),
                    ("prune_every", "500ms"),
                ]);
                let server = ratelimit_postgres::PostgresConfig::from_url(&case.url)?.server;
                case.schema = Some((server, name));
            }
            _ => case.url = with(&[("prefix", &name), ("timeout", "5s")]),
        }
        Ok(Arc::new(case))
    }
}

#[async_trait]
impl Space for OneCase {
    async fn open(&self) -> Result<Store, BoxError> {
        match &self.shared {
            Some(store) => Ok(store.clone()),
            None => Ok(ratelimit_stores::connect(&self.url).await?),
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        let (scheme, rest) = self.url.split_once("://")?;
        // A proxy can neither read encrypted traffic nor follow a client from one server to others.
        if !["redis", "memcached", "postgres", "postgresql"].contains(&scheme) {
            return None;
        }
        let host = rest.split(['/', '?']).next()?.rsplit('@').next()?;
        let port = if scheme == "redis" {
            6_379
        } else if scheme == "memcached" {
            11_211
        } else {
            5_432
        };
        let mut addresses = match host.rsplit_once(':') {
            Some(_) => host.to_socket_addrs().ok()?,
            None => (host, port).to_socket_addrs().ok()?,
        };
        addresses.next()
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Store, BoxError> {
        let (scheme, rest) = self.url.split_once("://").ok_or("an address without a server")?;
        let (server, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let log_in = server.rsplit_once('@').map(|(log_in, _)| format!("{log_in}@")).unwrap_or_default();
        // Its requests are counted, so it must not make any by itself.
        let rest = rest.replace("prune_every=500ms", "prune_every=0s");
        Ok(ratelimit_stores::connect(&format!("{scheme}://{log_in}{address}{rest}")).await?)
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        Ok(None)
    }
}

impl Drop for OneCase {
    fn drop(&mut self) {
        let Some((server, schema)) = self.schema.take() else { return };
        tokio::spawn(async move {
            let sql = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
            let mut connection = PgConnection::connect_with(&server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await
        });
    }
}
