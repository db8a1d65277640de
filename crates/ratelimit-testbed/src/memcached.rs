//! Memcached: one server, or two that share the keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::group::Group;
use crate::server::Server;
use crate::service::{Given, Place, Recipe, Service};
use crate::{Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "memcached",
    variable: "RATELIMIT_MEMCACHED_URL",
    image: "memcached:1.6",
    program: "memcached",
    package: "memcached",
};

pub(crate) static PAIR: Recipe =
    Recipe { name: "memcached-pair", variable: "RATELIMIT_MEMCACHED_PAIR_URL", ..RECIPE };

/// How long a server may take to say its version.
const PATIENCE: Duration = Duration::from_secs(2);

const SCHEME: &str = "memcached://";
const PORT: u16 = 11_211;

/// What a Memcached server is to be like.
///
/// ```
/// let small = ratelimit_testbed::Memcached { arguments: vec!["-m".into(), "2".into()] };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memcached {
    /// Further arguments of `memcached`: `-m`, `-c`, `-o`, …
    pub arguments: Vec<String>,
}

impl Testbed {
    /// A Memcached server.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn memcached(&self) -> Result<Server, Unavailable> {
        self.obtain_one(&RECIPE, Arc::new(Memcached::default())).await
    }

    /// A Memcached server like this. It is started in any case: an address in the environment is not used for it.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn memcached_with(&self, memcached: Memcached) -> Result<Server, Unavailable> {
        self.start_one(&RECIPE, Arc::new(memcached)).await
    }

    /// Two Memcached servers that know nothing of each other; those that the environment names, if it does.
    ///
    /// # Errors
    /// If no way to them worked.
    pub async fn memcached_pair(&self) -> Result<Group, Unavailable> {
        let service = || Arc::new(Memcached::default()) as Arc<dyn Service>;
        Ok(Group::new(self.obtain(&PAIR, &[service(), service()]).await?))
    }
}

#[async_trait]
impl Service for Memcached {
    fn arguments(&self, place: Place<'_>) -> Vec<String> {
        let port = place.port.to_string();
        // It refuses to run as root, and takes no notice of `-u` otherwise.
        let own = ["-u", "nobody", "-l", place.host, "-p", &port, "-U", "0"];
        own.into_iter().map(str::to_owned).chain(self.arguments.iter().cloned()).collect()
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        let asked = tokio::time::timeout(PATIENCE, version(address)).await;
        let line = asked.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
        let line = line.map_err(|error| error.to_string())?;
        match line.starts_with("VERSION ") {
            true => Ok(()),
            false => Err(format!("it answers `version` with {line:?}")),
        }
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("{SCHEME}{address}")
    }

    fn given(&self, url: &str) -> Result<Given, String> {
        Ok(Given { authority: authority(url)?, service: Arc::new(Self::default()) })
    }
}

async fn version(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    stream.write_all(b"version\r\n").await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// Host and port of `memcached://host[:port]`. Of several in a row, only the first begins with the scheme.
fn authority(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix(SCHEME).unwrap_or(url).trim_end_matches('/');
    if rest.is_empty() || rest.contains(['/', '@']) {
        return Err(format!("an address looks like {SCHEME}host:{PORT}"));
    }
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    // The end of a bare IPv6 address in brackets is no port.
    Ok(if has_port && !rest.ends_with(']') { rest.to_owned() } else { format!("{rest}:{PORT}") })
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn addresses_are_taken_apart() {
        for (url, expected) in [
            ("memcached://cache", "cache:11211"),
            ("memcached://cache:7000/", "cache:7000"),
            ("cache:7000", "cache:7000"),
            ("memcached://[::1]", "[::1]:11211"),
            ("memcached://[::1]:7000", "[::1]:7000"),
        ] {
            assert_eq!(authority(url).as_deref(), Ok(expected), "{url}");
        }
        for wrong in ["memcached://", "redis://cache", "memcached://:secret@cache"] {
            let error = authority(wrong).expect_err(wrong);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
