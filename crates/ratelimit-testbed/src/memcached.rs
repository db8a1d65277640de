//! Memcached: one server, or several that share the keys.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpStream, UnixStream};

use crate::bounded::bounded;
use crate::group::Group;
use crate::server::Server;
use crate::service::{External, Placement, Recipe, Service};
use crate::text::{percent_encoded, with_port};
use crate::{Certificates, Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "memcached",
    variable: "RATELIMIT_MEMCACHED_URL",
    image: "memcached:1.6",
    program: "memcached",
    package: "memcached",
    wheel: None,
};

pub(crate) static PAIR: Recipe =
    Recipe { name: "memcached-pair", variable: "RATELIMIT_MEMCACHED_PAIR_URL", ..RECIPE };

/// The file of users and passwords in the server's directory.
const LOG_INS: &str = "log-ins";

const SCHEME: &str = "memcached://";
const PORT: u16 = 11_211;

/// The distance from the port of a server with certificates to its port without TLS. That port is reserved as well.
const PLAIN: u16 = 10_000;

/// The options of a Memcached server.
///
/// ```
/// use ratelimit_testbed::Memcached;
///
/// let small = Memcached { arguments: vec!["-m".into(), "2".into()], ..Memcached::default() };
/// ```
#[derive(Clone, Default)]
pub struct Memcached {
    /// Further arguments of `memcached`: `-m`, `-c`, `-o`, …
    pub arguments: Vec<String>,
    /// The user and the password that clients have to log in with. The user contains no colon.
    pub log_in: Option<(String, String)>,
    /// The certificates for TLS; the server then requires client certificates. It also listens without TLS: see
    /// [`without_tls`](Self::without_tls).
    pub certificates: Option<Arc<Certificates>>,
    /// Listens on a Unix socket at this path, and not on a port.
    pub socket: Option<PathBuf>,
    /// Supports only the binary protocol, like a server with SASL.
    pub binary: bool,
}

impl Memcached {
    /// The address on which a server with certificates also listens without TLS.
    pub fn without_tls(server: &Server) -> SocketAddr {
        plain(server.address())
    }
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + PLAIN)
}

impl Testbed {
    /// Finds or starts a Memcached server.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn memcached(&self) -> Result<Server, Unavailable> {
        self.obtain_one(&RECIPE, Arc::new(Memcached::default())).await
    }

    /// Starts a Memcached server with these options; does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn memcached_with(&self, memcached: Memcached) -> Result<Server, Unavailable> {
        self.start_one(&RECIPE, Arc::new(memcached)).await
    }

    /// Finds or starts two independent Memcached servers; uses those in the environment if set.
    ///
    /// # Errors
    /// If no servers could be found or started.
    pub async fn memcached_pair(&self) -> Result<Group, Unavailable> {
        Ok(Group::new(self.obtain(&PAIR, &services(2)).await?))
    }

    /// Starts three independent Memcached servers; does not use addresses in the environment.
    ///
    /// # Errors
    /// If they could not be started.
    pub async fn memcached_three(&self) -> Result<Group, Unavailable> {
        Ok(Group::new(self.starting(&PAIR).obtain(&PAIR, &services(3)).await?))
    }
}

fn services(count: usize) -> Vec<Arc<dyn Service>> {
    (0..count).map(|_| Arc::new(Memcached::default()) as Arc<dyn Service>).collect()
}

#[async_trait]
impl Service for Memcached {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let port = place.port.to_string();
        // It refuses to run as root, and otherwise ignores `-u`.
        let mut arguments: Vec<String> = ["-u", "nobody", "-U", "0"].map(str::to_owned).into();
        if let Some(socket) = &self.socket {
            arguments.extend(["-s".to_owned(), text(socket), "-a".to_owned(), "0777".to_owned()]);
        } else if let Some(certificates) = &self.certificates {
            let Placement { host, port, .. } = place;
            arguments.extend([
                "-l".to_owned(),
                format!("{host}:{port},notls:{host}:{}", port + PLAIN),
                "-Z".to_owned(),
            ]);
            for (option, path) in [
                ("ssl_chain_cert", certificates.server()),
                ("ssl_key", certificates.server_key()),
                ("ssl_ca_cert", certificates.authority()),
            ] {
                arguments.extend(["-o".to_owned(), format!("{option}={}", text(&path))]);
            }
            arguments.extend(["-o", "ssl_verify_mode=2"].map(str::to_owned));
        } else {
            arguments.extend(["-l", place.host, "-p", &port].map(str::to_owned));
        }
        if self.log_in.is_some() {
            arguments.extend(["-Y".to_owned(), format!("{}/{LOG_INS}", place.folder)]);
        }
        if self.binary {
            arguments.extend(["-B", "binary"].map(str::to_owned));
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    fn preparation(&self, _program: &Path, _place: Placement<'_>) -> Option<Command> {
        let (user, password) = self.log_in.as_ref()?;
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s:%s\\n' \"$1\" \"$2\" > \"$0\"", LOG_INS, user, password]);
        Some(command)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        let line = bounded(self.version(address)).await?;
        match line.starts_with("VERSION ") {
            true => Ok(()),
            false => Err(format!("it answers `version` with {line:?}")),
        }
    }

    fn url(&self, address: SocketAddr) -> String {
        let log_in = self.log_in.as_ref().map_or_else(String::new, |(user, password)| {
            format!("{}:{}@", percent_encoded(user), percent_encoded(password))
        });
        match (&self.socket, &self.certificates) {
            (Some(socket), _) => format!("memcached+unix://{log_in}{}", text(socket)),
            (None, Some(_)) => format!("memcacheds://{log_in}{address}"),
            (None, None) => format!("{SCHEME}{log_in}{address}"),
        }
    }

    fn at_address(&self, url: &str) -> Result<External, String> {
        Ok(External { authority: authority(url)?, service: Arc::new(Self::default()) })
    }
}

impl Memcached {
    async fn version(&self, address: SocketAddr) -> io::Result<String> {
        if let Some(socket) = &self.socket {
            return self.ask_version(UnixStream::connect(socket).await?).await;
        }
        let address = if self.certificates.is_some() { plain(address) } else { address };
        self.ask_version(TcpStream::connect(address).await?).await
    }

    async fn ask_version(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if self.binary {
            let mut request = [0; 24];
            (request[0], request[1]) = (0x80, 0x0b);
            stream.write_all(&request).await?;
            let mut response = [0; 24];
            stream.read_exact(&mut response).await?;
            let version = usize::from(response[11]);
            line = "VERSION ".to_owned();
            stream.take(version as u64).read_to_string(&mut line).await?;
            return Ok(line);
        }
        if let Some((user, password)) = &self.log_in {
            let value = format!("{user} {password}");
            stream.write_all(format!("set log-in 0 0 {}\r\n{value}\r\n", value.len()).as_bytes()).await?;
            stream.read_line(&mut line).await?;
            line.clear();
        }
        stream.write_all(b"version\r\n").await?;
        stream.read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Host and port of `memcached://host[:port]`. In a list, only the first address begins with the scheme.
pub(crate) fn authority(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix(SCHEME).unwrap_or(url).trim_end_matches('/');
    if rest.is_empty() || rest.contains(['/', '@']) {
        return Err(format!("an address looks like {SCHEME}host:{PORT}"));
    }
    Ok(with_port(rest, PORT))
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn addresses_are_parsed() {
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
