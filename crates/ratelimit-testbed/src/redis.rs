//! Redis, one server.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use crate::resp::Resp;
use crate::server::Server;
use crate::service::{Given, Place, Recipe, Service};
use crate::text::{percent_decoded, percent_encoded};
use crate::{Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "redis",
    variable: "RATELIMIT_REDIS_URL",
    image: "redis:7",
    program: "redis-server",
    package: "redis-server",
};

/// What a Redis server is to be like.
///
/// ```
/// let small = ratelimit_testbed::Redis {
///     arguments: vec!["--maxmemory".into(), "4mb".into()],
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redis {
    /// The password that clients have to give.
    pub password: Option<String>,
    /// Further arguments of `redis-server`.
    pub arguments: Vec<String>,
}

impl Testbed {
    /// A Redis server that keeps nothing on disk.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn redis(&self) -> Result<Server, Unavailable> {
        self.obtain_one(&RECIPE, Arc::new(Redis::default())).await
    }

    /// A Redis server like this. It is started in any case: an address in the environment is not used for it.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn redis_with(&self, redis: Redis) -> Result<Server, Unavailable> {
        self.start_one(&RECIPE, Arc::new(redis)).await
    }
}

#[async_trait]
impl Service for Redis {
    fn arguments(&self, place: Place<'_>) -> Vec<String> {
        let port = place.port.to_string();
        let mut arguments: Vec<String> = ["--bind", place.host, "--port", &port, "--dir", place.folder]
            .into_iter()
            .chain(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no"])
            .map(str::to_owned)
            .collect();
        if let Some(password) = &self.password {
            arguments.extend(["--requirepass".to_owned(), password.clone()]);
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        let log_in: Vec<String> = self.password.iter().cloned().collect();
        ping(address, &log_in).await
    }

    fn url(&self, address: SocketAddr) -> String {
        match &self.password {
            Some(password) => format!("redis://:{}@{address}/", percent_encoded(password)),
            None => format!("redis://{address}/"),
        }
    }

    fn given(&self, url: &str) -> Result<Given, String> {
        let elsewhere = Elsewhere::parse(url)?;
        Ok(Given { authority: elsewhere.authority.clone(), service: Arc::new(elsewhere) })
    }
}

/// A Redis server that somebody else runs.
struct Elsewhere {
    authority: String,
    log_in: Vec<String>,
    encrypted: bool,
}

impl Elsewhere {
    /// Takes `redis://[user][:password]@host[:port]/…` apart. What is wrong is told without the address: it may hold a
    /// password.
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
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { host.to_owned() } else { format!("{host}:6379") };
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let log_in =
            [name, password].into_iter().filter(|part| !part.is_empty()).map(percent_decoded).collect();
        Ok(Self { authority, log_in, encrypted })
    }
}

#[async_trait]
impl Service for Elsewhere {
    fn arguments(&self, _place: Place<'_>) -> Vec<String> {
        Vec::new()
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        if self.encrypted {
            // Whoever uses it will find out more; this only tells that somebody listens.
            let connect = tokio::net::TcpStream::connect(address);
            return match tokio::time::timeout(std::time::Duration::from_secs(5), connect).await {
                Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err("no connection within 5 s".to_owned()),
            };
        }
        ping(address, &self.log_in).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("redis://{address}/")
    }

    fn given(&self, _url: &str) -> Result<Given, String> {
        Err("it is somewhere else already".to_owned())
    }
}

/// Whether a server answers, and lets us in.
pub(crate) async fn ping(address: SocketAddr, log_in: &[String]) -> Result<(), String> {
    match Resp::connect(address, log_in).await?.ask(&["PING"]).await? {
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
    fn an_address_is_taken_apart() {
        check("redis://host", "host:6379", &[]);
        check("redis://host:7000/2", "host:7000", &[]);
        check("redis://:se%40cret@host:7000/", "host:7000", &["se@cret"]);
        check("rediss://me:secret@[::1]:7000?x", "[::1]:7000", &["me", "secret"]);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_password() {
        for url in ["http://:secret@host", ":secret@host", "redis://:secret@/"] {
            let error = Elsewhere::parse(url).err().expect(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
