//! PostgreSQL, one server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bounded::bounded;
use crate::server::Server;
use crate::service::{External, Placement, Recipe, Service};
use crate::text::{percent_decoded, percent_encoded, with_port};
use crate::{Certificates, Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "postgres",
    variable: "RATELIMIT_POSTGRES_URL",
    image: "postgres:15",
    program: "postgres",
    package: "postgresql",
    wheel: None,
};

/// The options of a PostgreSQL server. Its superuser and its database are both named `postgres`.
///
/// ```
/// let logging = ratelimit_testbed::Postgres {
///     arguments: vec!["-c".into(), "log_statement=all".into()],
///     ..Default::default()
/// };
/// ```
#[derive(Clone, Default)]
pub struct Postgres {
    /// The password of clients. Without one, every local client is accepted.
    pub password: Option<String>,
    /// Further arguments of `postgres`.
    pub arguments: Vec<String>,
    /// Also listens on a Unix socket in the directory for temporary files; the address then uses the socket.
    pub socket: bool,
    /// Accepts only encrypted connections from clients with a certificate of this authority; the address then contains the
    /// paths of the files.
    pub certificates: Option<Arc<Certificates>>,
    /// Is a hot standby of the server without a password at this address, and replicates from it. Always a process.
    pub primary: Option<SocketAddr>,
}

impl Testbed {
    /// Finds or starts a PostgreSQL server that does not wait for the disk.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn postgres(&self) -> Result<Server, Unavailable> {
        self.obtain_one(&RECIPE, Arc::new(Postgres::default())).await
    }

    /// Starts a PostgreSQL server with these options; does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn postgres_with(&self, postgres: Postgres) -> Result<Server, Unavailable> {
        // A container sees neither the files of this machine nor its loopback interface.
        let local = postgres.socket || postgres.certificates.is_some() || postgres.primary.is_some();
        let testbed = if local { self.as_process() } else { self.clone() };
        testbed.start_one(&RECIPE, Arc::new(postgres)).await
    }
}

#[async_trait]
impl Service for Postgres {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let port = place.port.to_string();
        let listen = format!("listen_addresses={}", place.host);
        // The data does not outlive the server, so it need not survive a crash of the machine.
        let mut arguments: Vec<String> =
            ["-p", &port, "-c", &listen, "-c", "max_connections=300", "-c", "fsync=off"]
                .map(str::to_owned)
                .to_vec();
        let mut set = |name: &str, path: &Path| {
            arguments.extend(["-c".to_owned(), format!("{name}={}", path.display())]);
        };
        if self.socket {
            set("unix_socket_directories", &std::env::temp_dir());
        }
        if let Some(certificates) = &self.certificates {
            set("ssl", Path::new("on"));
            set("ssl_ca_file", &certificates.authority());
            set("ssl_cert_file", &certificates.server());
            // See `postgres.sh`.
            set("ssl_key_file", Path::new("server.key"));
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    fn versions(&self) -> Option<&'static str> {
        Some("/usr/lib/postgresql")
    }

    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn farewell(&self) -> Signal {
        // An immediate shutdown, which releases its shared memory.
        Signal::QUIT
    }

    fn environment(&self, place: Placement<'_>) -> Vec<(String, String)> {
        let mut variables = vec![("PGDATA".to_owned(), format!("{}/data", place.folder))];
        // For the start script of the official image.
        variables.push(match &self.password {
            Some(password) => ("POSTGRES_PASSWORD".to_owned(), password.clone()),
            None => ("POSTGRES_HOST_AUTH_METHOD".to_owned(), "trust".to_owned()),
        });
        if let Some(certificates) = &self.certificates {
            variables.push(("SERVER_KEY".to_owned(), certificates.server_key().display().to_string()));
        }
        if let Some(primary) = &self.primary {
            variables.push(("PRIMARY_HOST".to_owned(), primary.ip().to_string()));
            variables.push(("PRIMARY_PORT".to_owned(), primary.port().to_string()));
        }
        variables
    }

    fn preparation(&self, program: &Path, _place: Placement<'_>) -> Option<Command> {
        let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("postgres.sh"), "initdb"]);
        command.arg(program.parent()?).arg(self.password.as_deref().unwrap_or_default());
        Some(command)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        match greet(address, "postgres", "postgres").await {
            // It would not report this while it is starting.
            Err(reason) if self.certificates.is_some() && reason.contains("no pg_hba.conf entry") => Ok(()),
            outcome => outcome,
        }
    }

    fn url(&self, address: SocketAddr) -> String {
        let password = self.password.as_ref().map(|password| format!(":{}", percent_encoded(password)));
        let mut options: Vec<(&str, PathBuf)> = Vec::new();
        if self.socket {
            options.push(("host", std::env::temp_dir()));
        }
        if let Some(certificates) = &self.certificates {
            options.push(("sslmode", "verify-full".into()));
            options.push(("sslrootcert", certificates.authority()));
            options.extend([("sslcert", certificates.client()), ("sslkey", certificates.client_key())]);
        }
        let options: Vec<String> = options
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encoded(&value.to_string_lossy())))
            .collect();
        let options = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
        format!("postgres://postgres{}@{address}/postgres{options}", password.unwrap_or_default())
    }

    fn at_address(&self, url: &str) -> Result<External, String> {
        let elsewhere = Elsewhere::parse(url)?;
        Ok(External { authority: elsewhere.authority.clone(), service: Arc::new(elsewhere) })
    }
}

/// A PostgreSQL server that was given by an address.
struct Elsewhere {
    authority: String,
    user: String,
    database: String,
    encrypted: bool,
}

impl Elsewhere {
    /// Parses `postgres://[user][:password@]host[:port][/database][?…]`. Errors do not quote the address, which may contain
    /// a password.
    fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if scheme != "postgres" && scheme != "postgresql" {
            return Err("an address starts with postgres://".to_owned());
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (log_in, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if host.is_empty() {
            return Err("the address names no host".to_owned());
        }
        let user = match log_in.split(':').next().unwrap_or_default() {
            "" => "postgres".to_owned(),
            user => percent_decoded(user),
        };
        let database = if database.is_empty() { user.clone() } else { percent_decoded(database) };
        let encrypted = ["sslmode=require", "sslmode=verify"].iter().any(|mode| options.contains(mode));
        Ok(Self { authority: with_port(host, 5432), user, database, encrypted })
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
        greet(address, &self.user, &self.database).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("postgres://{address}/")
    }
}

/// Starts a log-in. Succeeds if the server accepts it or asks for a password, which is not known here.
pub(crate) async fn greet(address: SocketAddr, user: &str, database: &str) -> Result<(), String> {
    let mut stream = bounded(TcpStream::connect(address)).await?;
    let body = format!("user\0{user}\0database\0{database}\0\0");
    let length = u32::try_from(body.len() + 8).map_err(|error| error.to_string())?;
    let mut hello = length.to_be_bytes().to_vec();
    hello.extend(196_608_u32.to_be_bytes()); // version 3.0 of the protocol
    hello.extend(body.as_bytes());
    bounded(stream.write_all(&hello)).await?;
    loop {
        let (kind, body) = message(&mut stream).await?;
        match (kind, body.as_slice()) {
            (b'R', [0, 0, 0, 0, ..]) => {}
            (b'R', _) => return Ok(()),
            (b'Z', _) => return bounded(stream.write_all(b"X\0\0\0\x04")).await, // Terminate
            (b'E', fields) => return Err(complaint(fields)),
            _ => {}
        }
    }
}

/// The next message: its kind and its body.
async fn message(stream: &mut TcpStream) -> Result<(u8, Vec<u8>), String> {
    let mut head = [0; 5];
    bounded(stream.read_exact(&mut head)).await?;
    let [kind, length @ ..] = head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(4..1 << 20).contains(&length) {
        return Err("it does not speak PostgreSQL's protocol".to_owned());
    }
    let mut body = vec![0; length - 4];
    bounded(stream.read_exact(&mut body)).await?;
    Ok((kind, body))
}

/// The message of an error: the field that begins with `M`.
fn complaint(fields: &[u8]) -> String {
    let text = fields.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(b"an error without a text")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Elsewhere, complaint};

    fn check(url: &str, authority: &str, user: &str, database: &str) {
        let parsed = Elsewhere::parse(url).expect(url);
        let found = (parsed.authority.as_str(), parsed.user.as_str(), parsed.database.as_str());
        assert_eq!(found, (authority, user, database));
    }

    #[test]
    fn addresses_are_parsed() {
        check("postgres://host", "host:5432", "postgres", "postgres");
        check("postgresql://me:se%40cret@host:7000/db?sslmode=disable", "host:7000", "me", "db");
        check("postgres://m%65@[::1]/", "[::1]:5432", "me", "me");
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for url in ["http://:secret@host", ":secret@host", "postgres://:secret@/"] {
            let error = Elsewhere::parse(url).err().expect(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn errors_contain_the_servers_message() {
        assert_eq!(complaint(b"SFATAL\0C57P03\0Mstarting up\0\0"), "starting up");
    }
}
