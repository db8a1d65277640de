//! Twemproxy: a proxy that distributes keys over Memcached servers and knows only the plain protocol.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::bounded::bounded;
use crate::group::Group;
use crate::service::{External, Placement, Recipe, Service};
use crate::{Memcached, Server, Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "twemproxy",
    variable: "RATELIMIT_TWEMPROXY_URL",
    image: "",
    program: "nutcracker",
    package: "nutcracker",
    wheel: None,
};

/// The distance from its port to the port for its statistics, which is required and reserved with it.
const STATISTICS: u16 = 10_000;

/// Twemproxy in front of these servers.
struct Twemproxy {
    servers: Vec<String>,
}

impl Testbed {
    /// Starts two Memcached servers and, as the last of the group, a twemproxy in front of them; uses only the one in the
    /// environment if set. There is no official image, so they are always private processes.
    ///
    /// # Errors
    /// If none could be found or started.
    pub async fn twemproxy(&self) -> Result<Group, Unavailable> {
        let service = |servers| Arc::new(Twemproxy { servers }) as Arc<dyn Service>;
        if self.is_given(&RECIPE) {
            return Ok(Group::new(self.obtain(&RECIPE, &[service(Vec::new())]).await?));
        }
        let memcached = || Arc::new(Memcached::default()) as Arc<dyn Service>;
        let behind = self.starting(&crate::memcached::PAIR).as_process();
        let mut servers = behind.obtain(&crate::memcached::PAIR, &[memcached(), memcached()]).await?;
        let addresses = servers.iter().map(|server| server.address().to_string()).collect();
        servers.push(self.obtain_one(&RECIPE, service(addresses)).await?);
        Ok(Group::new(servers))
    }

    /// Starts a twemproxy in front of these Memcached servers (`host:port`); does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn twemproxy_before(&self, servers: Vec<String>) -> Result<Server, Unavailable> {
        self.as_process().start_one(&RECIPE, Arc::new(Twemproxy { servers })).await
    }
}

#[async_trait]
impl Service for Twemproxy {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let statistics = (place.port + STATISTICS).to_string();
        ["-c", FILE, "-a", place.host, "-s", &statistics].into_iter().map(str::to_owned).collect()
    }

    fn preparation(&self, _program: &Path, place: Placement<'_>) -> Option<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", "printf %s \"$1\" > \"$2\"", "sh", &self.file(place), FILE]);
        Some(command)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        let line = bounded(read(address)).await?;
        // Not all versions support `version`.
        if line == "END" { Ok(()) } else { Err(format!("it answers `get` with {line:?}")) }
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("memcached://{address}")
    }

    fn at_address(&self, url: &str) -> Result<External, String> {
        let authority = crate::memcached::authority(url)?;
        Ok(External { authority, service: Arc::new(Self { servers: Vec::new() }) })
    }
}

/// The name of its configuration file in its directory.
const FILE: &str = "nutcracker.yml";

impl Twemproxy {
    /// Its configuration.
    fn file(&self, place: Placement<'_>) -> String {
        let mut text = format!("limits:\n  listen: {}:{}\n", place.host, place.port);
        text +=
            "  hash: md5\n  distribution: ketama\n  auto_eject_hosts: false\n  timeout: 2000\n  servers:\n";
        text.extend(self.servers.iter().map(|server| format!("   - {server}:1\n")));
        text
    }
}

/// Its reply to a `get` of an item that does not exist.
async fn read(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    stream.write_all(b"get testbed!ready\r\n").await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_lists_the_servers() {
        let servers = [1, 2].map(|port| format!("127.0.0.1:{port}")).to_vec();
        let place = Placement { host: "127.0.0.1", port: 11_500, folder: "" };
        let file = Twemproxy { servers }.file(place);
        assert!(file.starts_with("limits:\n  listen: 127.0.0.1:11500\n"), "{file}");
        assert!(file.ends_with("  servers:\n   - 127.0.0.1:1:1\n   - 127.0.0.1:2:1\n"), "{file}");
    }
}
