//! The conformance suite on the store with a server.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Server, Space, Subject};
use ratelimit_core::DynCounterStore;
use ratelimit_testbed::Testbed;

/// The suite gives a call 10 s to fail when the server is frozen. As close to that as is safe: a handle makes one call at a
/// time, and a case has hundreds of them wait for each other on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(8);

struct Remote(ratelimit_testbed::Server);

#[async_trait]
impl Subject for Remote {
    fn name(&self) -> &str {
        "remote"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("conformance {} {}:", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        Ok(Arc::new(Prefix { server: self.0.clone(), prefix }))
    }

    /// The suite kills, starts, suspends and resumes it.
    fn server(&self) -> Option<Arc<dyn Server>> {
        self.0.is_controlled().then(|| Arc::new(self.0.clone()) as Arc<dyn Server>)
    }
}

/// A key prefix that no other test uses.
struct Prefix {
    server: ratelimit_testbed::Server,
    prefix: String,
}

#[async_trait]
impl Space for Prefix {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_at(self.server.address()).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.server.address())
    }

    /// Connects through `address`: the suite counts the round trips there.
    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(Arc::new(remote_store::connect(&format!("redis://{address}/"), &self.prefix, TIME_LIMIT).await?))
    }

    async fn meters(&self) -> Result<Option<u64>, BoxError> {
        let client = redis::Client::open(self.server.url())?;
        // Not the client's half second: a machine may be busy.
        let config =
            redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut keys = redis::cmd("KEYS");
        let keys: Vec<Vec<u8>> = keys.arg(format!("{}*", self.prefix)).query_async(&mut connection).await?;
        Ok(Some(keys.len() as u64))
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(Testbed::from_env().redis()) {
        Ok(server) => ratelimit_conformance::main(vec![Box::new(Remote(server))]),
        Err(unavailable) => {
            eprintln!("error: {unavailable}");
            ExitCode::from(2)
        }
    }
}
