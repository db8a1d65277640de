//! Converts failures to [`StoreError`].

use std::borrow::Cow;

use ratelimit_core::{ErrorKind, StoreError};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

/// The store's name in errors.
pub(crate) const STORE: &str = "redis";

/// Why a call failed, with what the client library reported.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: Cow<'static, str>,
    maybe_applied: bool,
    address: Option<String>,
    source: Option<RedisError>,
}

impl Failure {
    /// The runtime that ran the task has shut down.
    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Unreachable, "the tokio runtime of the call has shut down")
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the request can be sent again, to another server: this one has certainly not charged it.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        !self.maybe_applied && matches!(self.kind, ErrorKind::Unreachable | ErrorKind::ReadOnly)
    }

    /// Nothing was charged.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), maybe_applied: false, address: None, source: None }
    }

    /// The configuration or the request is not valid.
    pub(crate) fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Misconfigured, message)
    }

    pub(crate) fn maybe_applied(self) -> Self {
        Self { maybe_applied: true, ..self }
    }

    /// Certainly not charged, whatever the error says: nothing was sent.
    #[cfg(feature = "deadpool")]
    pub(crate) fn not_applied(self) -> Self {
        Self { maybe_applied: false, ..self }
    }

    pub(crate) fn at(self, address: &str) -> Self {
        Self { address: Some(address.to_owned()), ..self }
    }

    /// The same, with the address unless it has one already.
    pub(crate) fn or_at(self, address: &str) -> Self {
        if self.address.is_some() { self } else { self.at(address) }
    }

    /// Whether the client library or the server reported it.
    pub(crate) fn is_reported(&self) -> bool {
        self.source.is_some()
    }

    /// Whether it says only that a server did not answer.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Timeout)
    }

    /// The value under one of the keys is not the state of a meter.
    pub(crate) fn corrupt() -> Self {
        Self::new(
            ErrorKind::Corrupt,
            "the value under the meter's key is not the state of a meter; does another program write keys with this prefix?",
        )
    }

    /// The reply does not come from one of the scripts.
    pub(crate) fn strange_reply() -> Self {
        Self::new(ErrorKind::Server, "the reply does not come from this crate's scripts").maybe_applied()
    }

    /// An error that the client library or the server reported. A connection error counts as not charged; a caller that has
    /// sent a request adds [`maybe_applied`](Self::maybe_applied).
    pub(crate) fn from_redis(error: RedisError) -> Self {
        let (kind, message) = explain(&error);
        // A server refuses before the script has written anything. For every other error that is not certain.
        let maybe_applied = kind == ErrorKind::Server;
        Self { kind, message, maybe_applied, address: None, source: Some(error) }
    }

    pub(crate) fn into_store_error(self) -> StoreError {
        let error = StoreError::new(STORE, self.kind, self.message);
        let error = if self.maybe_applied { error.maybe_applied() } else { error.not_applied() };
        let error = match self.address {
            Some(address) => error.at(address),
            None => error,
        };
        // The text of a source may quote the request, and with it a key: only I/O errors are passed on.
        match self.source {
            Some(source) if source.kind() == Kind::Io => error.caused_by(source),
            _ => error,
        }
    }
}

/// The kind of an error, and a message that says what to do.
fn explain(error: &RedisError) -> (ErrorKind, Cow<'static, str>) {
    let code = error.code().unwrap_or_default();
    match error.kind() {
        Kind::Io if error.is_timeout() => (ErrorKind::Timeout, "no answer within the time limit".into()),
        Kind::Io => (ErrorKind::Unreachable, format!("{error}; is the server running?").into()),
        Kind::ClusterConnectionNotFound => {
            (ErrorKind::Unreachable, "no connection to any node of the cluster; are they running?".into())
        }
        Kind::AuthenticationFailed => {
            (ErrorKind::Denied, "the log-in failed; check the user and password in the address".into())
        }
        Kind::InvalidClientConfig => (ErrorKind::Misconfigured, invalid_address(error)),
        Kind::Server(kind) => server_error(kind, error),
        _ => by_code(code, error.detail().unwrap_or_default()),
    }
}

/// Does not quote the address, which may contain a password.
fn invalid_address(error: &RedisError) -> Cow<'static, str> {
    if error.to_string().to_ascii_lowercase().contains("tls") {
        "the address asks for TLS: enable the feature `tls` of ratelimit-redis".into()
    } else {
        "the address is not valid; it looks like redis://user:password@host:6379/0".into()
    }
}

fn server_error(kind: ServerErrorKind, error: &RedisError) -> (ErrorKind, Cow<'static, str>) {
    match kind {
        ServerErrorKind::ReadOnly => (
            ErrorKind::ReadOnly,
            "it is a read-only replica; connect to the primary, or wait for the failover to end".into(),
        ),
        ServerErrorKind::BusyLoading => (ErrorKind::Unreachable, "it is still loading its data".into()),
        ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain => {
            (ErrorKind::Unreachable, "the cluster is down or moving slots".into())
        }
        ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot => (
            ErrorKind::Unsupported,
            "it is a cluster; use an address that begins with redis+cluster://, or for your own connection or pool \
             with_cluster_connection or with_cluster_pool"
                .into(),
        ),
        ServerErrorKind::NoPerm => by_code("NOPERM", ""),
        _ => by_text(error.detail().unwrap_or_default()),
    }
}

fn by_code(code: &str, detail: &str) -> (ErrorKind, Cow<'static, str>) {
    match code {
        "WRONGPASS" | "NOAUTH" => {
            (ErrorKind::Denied, "the log-in failed; check the user and password in the address".into())
        }
        "NOPERM" => (
            ErrorKind::Denied,
            "the user may not do this; it needs EVAL, EVALSHA and SCRIPT LOAD, the commands of the scripts and the keys' prefix"
                .into(),
        ),
        "OOM" => (ErrorKind::Full, "it has reached `maxmemory`; raise it, or let `volatile-ttl` evict".into()),
        "MISCONF" | "NOREPLICAS" => {
            (ErrorKind::ReadOnly, "it refuses writes until its disk or its replicas are back".into())
        }
        "BUSY" => (ErrorKind::Unreachable, "it is busy running a script".into()),
        "WRONGTYPE" => {
            (ErrorKind::Corrupt, "a key holds a value of another type; does another program use the prefix?".into())
        }
        _ => by_text(detail),
    }
}

/// Servers before Redis 7 wrap an error inside a script in a general error.
fn by_text(detail: &str) -> (ErrorKind, Cow<'static, str>) {
    let known = [
        ("OOM command not allowed", "OOM"),
        ("WRONGTYPE", "WRONGTYPE"),
        ("MISCONF", "MISCONF"),
        ("NOREPLICAS", "NOREPLICAS"),
        ("NOPERM", "NOPERM"),
        ("can't run this command", "NOPERM"),
        ("can't access at least one of the keys", "NOPERM"),
        ("WRONGPASS", "WRONGPASS"),
        ("NOAUTH", "NOAUTH"),
        ("invalid password", "WRONGPASS"),
    ];
    if let Some((_, code)) = known.iter().find(|(text, _)| detail.contains(text)) {
        return by_code(code, "");
    }
    if detail.contains("cluster support disabled") {
        return (
            ErrorKind::Unsupported,
            "it is not a node of a cluster; use an address that begins with redis://".into(),
        );
    }
    if detail.contains("READONLY") {
        return (ErrorKind::ReadOnly, "it is a read-only replica; connect to the primary".into());
    }
    if detail.contains("unknown command") {
        return (
            ErrorKind::Unsupported,
            "it does not know the commands EVAL and EVALSHA, or they are renamed".into(),
        );
    }
    let safe: String = detail.split("with args").next().unwrap_or_default().chars().take(200).collect();
    (ErrorKind::Server, safe.into())
}
