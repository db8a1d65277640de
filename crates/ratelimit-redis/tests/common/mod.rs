//! A private Redis server for a test.
#![allow(dead_code)] // each test file uses a part of it

pub(crate) mod cutter;
pub(crate) mod ways;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use ratelimit_core::meter::Meter;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, Timestamp};
use ratelimit_redis::RedisStore;
use ratelimit_testbed::{Redis, Settings, Testbed, Way};

pub(crate) struct Server {
    pub(crate) port: u16,
    server: ratelimit_testbed::Server,
}

/// Starts servers for the tests only, as processes, so that no other server is disturbed.
pub(crate) fn testbed() -> Testbed {
    let addresses = std::collections::BTreeMap::new();
    Testbed::new(Settings { addresses, only: Some(Way::Process), ..Settings::from_env() })
}

impl Server {
    /// Starts a server on a free port, with these options added to the usual ones.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let arguments = options.iter().map(|option| (*option).to_owned()).collect();
        Self::start_with(Redis { arguments, ..Redis::default() }).await
    }

    pub(crate) async fn start_with(redis: Redis) -> Self {
        let server = testbed().redis_with(redis).await.unwrap();
        Self { port: server.address().port(), server }
    }

    /// The address, without a password.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Kills it if it is running, and starts it empty.
    pub(crate) async fn restart(&self) {
        self.kill().await;
        self.server.start().await.unwrap();
    }

    pub(crate) async fn kill(&self) {
        self.server.kill().await.unwrap();
    }

    pub(crate) async fn freeze(&self) {
        self.server.freeze().await.unwrap();
    }

    pub(crate) async fn thaw(&self) {
        self.server.thaw().await.unwrap();
    }

    /// [`say`] to this server.
    pub(crate) fn say(&self, line: &str) -> String {
        say(self.port, line)
    }
}

/// Sends an inline command and returns the reply.
pub(crate) fn say(port: u16, line: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply);
    reply.strip_suffix("+OK\r\n").unwrap_or(&reply).to_owned()
}

/// A port on which nothing listens.
pub(crate) fn free_port() -> u16 {
    let port = ratelimit_testbed::Port::reserve().unwrap();
    let number = port.number();
    std::mem::forget(port); // reserved until the tests end
    number
}

/// The instant of the callers.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

pub(crate) fn id(scope: &str) -> MeterId<'_> {
    MeterId { namespace: "", scope, key: b"k" }
}

pub(crate) fn meter(text: &str) -> Meter {
    text.parse::<Limit>().unwrap().meter_for(b"k")
}

/// Charges one unit under the limit `text`.
pub(crate) async fn charge(store: &RedisStore, text: &str) -> Result<Answer, StoreError> {
    let claim = [Claim { id: id(text), cost: 1, meter: meter(text) }];
    store.claim(Claims::new(NOW, Mode::Charge, &claim).unwrap()).await
}

/// Checks what an error says, that it names the server, and that it does not contain the password.
pub(crate) fn check(error: &StoreError, kind: ErrorKind, applied: Applied, retryable: bool) {
    assert_eq!((error.kind(), error.applied(), error.is_retryable()), (kind, applied, retryable), "{error}");
    assert!(error.address().is_some_and(|address| address.starts_with("127.0.0.1:")), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
}
