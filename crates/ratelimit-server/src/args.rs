//! The options of the command. Each can also be set in the environment: `--timeout` is `RATELIMIT_TIMEOUT`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::HeaderName;
use ratelimit_core::kit::parse_duration;
use tracing::level_filters::LevelFilter;

/// Checks rate limits for Envoy, gateways, and services in any language.
#[derive(Clone, Debug, Parser)]
#[command(name = "ratelimit-server", version)]
pub struct Args {
    /// The policies, in TOML or YAML, read again when the file changes. Without one there are only CL.THROTTLE and, with
    /// --allow-limits, limits in requests
    #[arg(long, env = "RATELIMIT_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check this file, print its policies as understood, and exit: with 0 if it is valid, otherwise with 1
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub check: Option<PathBuf>,
    /// Where the counts are stored: `memory:`, `redis://host:port`, `memcached://host:port`, `postgres://user@host/database`,
    /// with options as the query
    #[arg(long, env = "RATELIMIT_STORE", default_value = "memory:", hide_env_values = true)]
    pub store: String,
    /// How several servers on one store count together
    #[arg(long, env = "RATELIMIT_COUNTING", value_enum, default_value = "straight")]
    pub counting: Counting,
    /// How often servers that do not ask the store for each check exchange their counts
    #[arg(long, env = "RATELIMIT_INTERVAL", default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub interval: Duration,
    /// How long the store may take. After that, this server decides in its own memory
    #[arg(long, env = "RATELIMIT_TIMEOUT", default_value = "15ms", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    /// How many servers share the store: while it is away, each of them admits this part of a limit
    #[arg(long, env = "RATELIMIT_INSTANCES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub instances: u32,
    /// The namespace of the counts; a Rust service with the same one on the same store counts together with this server
    #[arg(long, env = "RATELIMIT_NAMESPACE", default_value = "", value_name = "NAME")]
    pub namespace: String,
    /// A domain that Envoy may ask for, which is the namespace of its counts, with a file of its own if one is given. Can be
    /// repeated. Without any, all domains are answered by the policies of --config
    #[arg(long = "domain", env = "RATELIMIT_DOMAINS", value_delimiter = ',', value_name = "NAME[=FILE]")]
    pub domains: Vec<Domain>,
    /// Where to listen for HTTP; `off` for nowhere
    #[arg(long, env = "RATELIMIT_HTTP", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub http: Listen,
    /// Where to listen for gRPC, as Envoy's rate limit service; `off` for nowhere
    #[arg(long, env = "RATELIMIT_GRPC", default_value = "127.0.0.1:8081", value_name = "ADDRESS")]
    pub grpc: Listen,
    /// Where to listen for the Redis protocol; `off` for nowhere
    #[arg(long, env = "RATELIMIT_REDIS", default_value = "127.0.0.1:6380", value_name = "ADDRESS")]
    pub redis: Listen,
    /// Where to listen for what changes counts: POST /v1/reset
    #[arg(long, env = "RATELIMIT_ADMIN", default_value = "off", value_name = "ADDRESS")]
    pub admin: Listen,
    /// Accept limits in requests: `limits` in HTTP, the override of a descriptor in gRPC
    #[arg(long, env = "RATELIMIT_ALLOW_LIMITS")]
    pub allow_limits: bool,
    /// The key that signs receipts, 32 characters or more, the same for all servers that have to accept them. Without one,
    /// each process makes its own
    #[arg(long, env = "RATELIMIT_RECEIPT_KEY", value_name = "KEY", hide_env_values = true)]
    pub receipt_key: Option<ReceiptKey>,
    /// How long a receipt can be used
    #[arg(long, env = "RATELIMIT_RECEIPT_LIFETIME", default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub receipt_lifetime: Duration,
    /// The header in which Envoy passes a receipt on to the service; none by default
    #[arg(long, env = "RATELIMIT_RECEIPT_HEADER", value_name = "NAME")]
    pub receipt_header: Option<HeaderName>,
    /// The certificate of this server, in PEM form: all addresses then take TLS only
    #[arg(long, env = "RATELIMIT_TLS_CERTIFICATE", value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, env = "RATELIMIT_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// The authorities of clients' certificates: then only clients with one are served
    #[arg(long, env = "RATELIMIT_TLS_CLIENTS", value_name = "FILE", requires = "tls_certificate")]
    pub tls_clients: Option<PathBuf>,
    /// The maximum number of connections at each address; further ones wait
    #[arg(long, env = "RATELIMIT_CONNECTIONS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "NUMBER")]
    pub connections: u32,
    /// How long a connection may stay silent, or take for one request
    #[arg(long, env = "RATELIMIT_IDLE", default_value = "60s", value_parser = duration, value_name = "DURATION")]
    pub idle: Duration,
    /// How long to go on accepting connections after SIGTERM, while /ready already says no
    #[arg(long, env = "RATELIMIT_LINGER", default_value = "0s", value_parser = duration_or_zero, value_name = "DURATION")]
    pub linger: Duration,
    /// How long to serve what has begun, after that
    #[arg(long, env = "RATELIMIT_DRAIN", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub drain: Duration,
    /// How much to log on stderr: off, error, warn, info, or debug, which has a line for each decision
    #[arg(long, env = "RATELIMIT_LOG", default_value = "info", value_name = "LEVEL")]
    pub log: LevelFilter,
}

/// How several servers on one store count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    /// Each check asks the store
    Straight,
    /// Parts of the quota are claimed from the store in advance and spent here: never exceeds the limit
    Leased,
    /// Counted here, and merged with the store at each interval
    Synced,
}

/// A domain, and its file if it has one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// The file of its policies.
    pub file: Option<PathBuf>,
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)));
        if name.is_empty() || file == Some("") {
            return Err("write NAME or NAME=FILE".to_owned());
        }
        Ok(Self { name: name.to_owned(), file: file.map(PathBuf::from) })
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let address =
            text.parse().map_err(|_| "write an address with its port, such as 127.0.0.1:8080, or off")?;
        Ok(Self(Some(address)))
    }
}

/// A key that signs receipts. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiptKey(pub(crate) Vec<u8>);

impl FromStr for ReceiptKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() < 32 {
            return Err("it is too short: use 32 random characters or more".to_owned());
        }
        Ok(Self(text.as_bytes().to_vec()))
    }
}

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptKey")
    }
}

/// Like [`duration`], but none is allowed.
fn duration_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0s" { Ok(Duration::ZERO) } else { duration(text) }
}

/// Reads `15ms`, `1s`, `5min` or `1h`; at least a millisecond.
fn duration(text: &str) -> Result<Duration, String> {
    let good = Duration::from_millis(1)..=Duration::from_secs(31_536_000);
    let read = parse_duration(text).filter(|duration| good.contains(duration));
    read.ok_or_else(|| "write a duration such as 15ms, 1s, 5min or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("15ms"), Ok(Duration::from_millis(15)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7_200)));
        for text in [
            "",
            "15",
            "0s",
            "ms",
            "-1s",
            "1us",
            "2y",
            "1.5s",
            "99999999999999999999h",
            "18446744073709551615h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_option_is_also_in_the_environment() {
        use clap::CommandFactory as _;

        for option in Args::command().get_arguments() {
            let name = option.get_id().as_str();
            let env = option.get_env().and_then(|env| env.to_str());
            match name {
                "check" | "help" | "version" => {}
                _ => assert_eq!(env, Some(&*format!("RATELIMIT_{}", name.to_uppercase())), "{name}"),
            }
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let key = "0123456789abcdef0123456789abcdef";
        let args = Args::try_parse_from(["ratelimit-server", "--receipt-key", key]).unwrap();
        assert!(!format!("{args:?}").contains(key));
        let error = Args::try_parse_from(["ratelimit-server", "--receipt-key", "short"]).unwrap_err();
        assert!(error.to_string().contains("too short"));
    }
}
