//! Redis, one server.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::TcpStream;

use crate::bounded::bounded;
use crate::resp::Resp;
use crate::server::Server;
use crate::service::{External, Placement, Recipe, Service};
use crate::text::{percent_decoded, percent_encoded, with_port};
use crate::{Testbed, Tls, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "redis",
    variable: "RATELIMIT_REDIS_URL",
    image: "redis:7",
    program: "redis-server",
    package: "redis-server",
    wheel: None,
};

/// The options of a Redis server.
///
/// ```
/// let small = ratelimit_testbed::Redis {
///     arguments: vec!["--maxmemory".into(), "4mb".into()],
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Default)]
pub struct Redis {
    /// The password of clients.
    pub password: Option<String>,
    /// Further arguments of `redis-server`.
    pub arguments: Vec<String>,
    /// The TLS options, if any; the server then accepts only TLS.
    pub tls: Option<Tls>,
}

impl Testbed {
    /// Finds or starts a Redis server that stores nothing on disk.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn redis(&self) -> Result<Server, Unavailable> {
        self.obtain_one(&RECIPE, Arc::new(Redis::default())).await
    }

    /// Starts a Redis server with these options; does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn redis_with(&self, redis: Redis) -> Result<Server, Unavailable> {
        let testbed = if redis.tls.is_some() { self.as_process() } else { self.clone() };
        testbed.start_one(&RECIPE, Arc::new(redis)).await
    }
}

impl Redis {
    /// A connection to such a server.
    pub(crate) async fn connect(&self, address: SocketAddr) -> Result<Resp, String> {
        let log_in: Vec<String> = self.password.iter().cloned().collect();
        match &self.tls {
            Some(tls) => Resp::connect_to_socket(&tls.certificates.socket(address.port()), &log_in).await,
            None => Resp::connect(address, &log_in).await,
        }
    }

    /// The scheme of its address.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    /// The part of its address before the host.
    pub(crate) fn log_in(&self) -> String {
        let password = self.password.as_ref();
        password.map(|password| format!(":{}@", percent_encoded(password))).unwrap_or_default()
    }
}

#[async_trait]
impl Service for Redis {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let port = place.port.to_string();
        let mut arguments: Vec<String> = ["--bind", place.host, "--dir", place.folder]
            .into_iter()
            .chain(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no"])
            .map(str::to_owned)
            .collect();
        match &self.tls {
            Some(tls) => arguments.extend(tls.arguments(place.port)),
            None => arguments.extend(["--port".to_owned(), port]),
        }
        if let Some(password) = &self.password {
            arguments.extend(["--requirepass".to_owned(), password.clone()]);
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        ping(self.connect(address).await?).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("{}://{}{address}/", self.scheme(), self.log_in())
    }

    fn at_address(&self, url: &str) -> Result<External, String> {
        let elsewhere = Elsewhere::parse(url)?;
        Ok(External { authority: elsewhere.authority.clone(), service: Arc::new(elsewhere) })
    }
}

/// A Redis server that was given by an address.
struct Elsewhere {
    authority: String,
    log_in: Vec<String>,
    encrypted: bool,
}

impl Elsewhere {
    /// Parses `redis://[user][:password]@host[:port]/…`. Errors do not quote the address, which may contain a password.
    fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("an address starts with redis:// or rediss://")?;
        let encrypted = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err("an address starts with redis:// or rediss://".to_owned()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if host.is_empty() {
            return Err("the address names no host".to_owned());
        }
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let log_in =
            [name, password].into_iter().filter(|part| !part.is_empty()).map(percent_decoded).collect();
        Ok(Self { authority: with_port(host, 6379), log_in, encrypted })
    }
}

#[async_trait]
impl Service for Elsewhere {
    fn arguments(&self, _place: Placement<'_>) -> Vec<String> {
        Vec::new()
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        if self.encrypted {
            // Only checks that a server listens: without TLS no more can be checked.
            return bounded(TcpStream::connect(address)).await.map(drop);
        }
        ping(Resp::connect(address, &self.log_in).await?).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("redis://{address}/")
    }
}

/// Whether a server answers and accepts the log-in.
async fn ping(mut server: Resp) -> Result<(), String> {
    match server.ask(&["PING"]).await? {
        pong if pong == "PONG" => Ok(()),
        other => Err(format!("it answers PING with {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::Elsewhere;

    fn check(url: &str, authority: &str, log_in: &[&str]) {
        let parsed = Elsewhere::parse(url).expect(url);
        assert_eq!(
            (parsed.authority.as_str(), parsed.log_in),
            (authority, log_in.iter().map(|s| (*s).to_owned()).collect())
        );
    }

    #[test]
    fn addresses_are_parsed() {
        check("redis://host", "host:6379", &[]);
        check("redis://host:7000/2", "host:7000", &[]);
        check("redis://:se%40cret@host:7000/", "host:7000", &["se@cret"]);
        check("rediss://me:secret@[::1]:7000?x", "[::1]:7000", &["me", "secret"]);
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for url in ["http://:secret@host", ":secret@host", "redis://:secret@/"] {
            let error = Elsewhere::parse(url).err().expect(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
