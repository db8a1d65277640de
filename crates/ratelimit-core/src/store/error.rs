//! Why a store did not answer.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// A store did not answer. Whether the request may pass is the caller's decision (fail open or closed).
///
/// Says which store and where, what happened, whether trying again can help, and whether the claim may have been
/// charged all the same. Carries no password and no key.
///
/// ```
/// use ratelimit_core::{Applied, ErrorKind, StoreError};
///
/// let error = StoreError::new("redis", ErrorKind::Unreachable, "connection refused").at("127.0.0.1:6379");
/// assert!(error.is_retryable());
/// assert_eq!(error.applied(), Applied::No);
/// assert_eq!(
///     error.to_string(),
///     "redis at 127.0.0.1:6379 is unreachable: connection refused (nothing was charged; try again later)",
/// );
/// ```
#[derive(Debug)]
pub struct StoreError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    store: &'static str,
    kind: ErrorKind,
    address: Option<String>,
    applied: Applied,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection, or it broke.
    Unreachable,
    /// No answer within the store's time limit.
    Timeout,
    /// The server refused the log-in or forbids the operation.
    Denied,
    /// The server takes no writes (a replica, or set read-only).
    ReadOnly,
    /// The store is full.
    Full,
    /// What is stored under the meter's name is not a meter's state.
    Corrupt,
    /// Too many others claimed the same meter at the same moment.
    Contended,
    /// The store cannot do this (an old server, a feature that is switched off, a missing table).
    Unsupported,
    /// The server reported something else.
    Server,
}

/// Whether a claim that got no answer was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Surely not.
    No,
    /// It cannot be known: the request had been sent.
    Unknown,
}

impl StoreError {
    /// A failure of the store called `store`. Until [`maybe_applied`](Self::maybe_applied) is called it says that
    /// nothing was charged, except for [`ErrorKind::Timeout`].
    pub fn new(store: &'static str, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let applied = if kind == ErrorKind::Timeout { Applied::Unknown } else { Applied::No };
        Self(Box::new(Parts { store, kind, address: None, applied, message: message.into(), source: None }))
    }

    /// Where the store is: an address without user or password.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.0.address = Some(address.into());
        self
    }

    /// The claim may have been charged.
    #[must_use]
    pub fn maybe_applied(mut self) -> Self {
        self.0.applied = Applied::Unknown;
        self
    }

    /// The claim was surely not charged.
    #[must_use]
    pub fn not_applied(mut self) -> Self {
        self.0.applied = Applied::No;
        self
    }

    /// The error underneath.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The store's name: `redis`, `memory`, …
    pub fn store(&self) -> &'static str {
        self.0.store
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where the store is.
    pub fn address(&self) -> Option<&str> {
        self.0.address.as_deref()
    }

    /// Whether the claim was charged.
    pub fn applied(&self) -> Applied {
        self.0.applied
    }

    /// Whether the same call can succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Unreachable
            | ErrorKind::Timeout
            | ErrorKind::ReadOnly
            | ErrorKind::Full
            | ErrorKind::Contended => true,
            ErrorKind::Denied | ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Server => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        f.write_str(parts.store)?;
        if let Some(address) = &parts.address {
            write!(f, " at {address}")?;
        }
        let what = match parts.kind {
            ErrorKind::Unreachable => "is unreachable",
            ErrorKind::Timeout => "did not answer in time",
            ErrorKind::Denied => "denied access",
            ErrorKind::ReadOnly => "takes no writes",
            ErrorKind::Full => "is full",
            ErrorKind::Corrupt => "holds a foreign value",
            ErrorKind::Contended => "is contended",
            ErrorKind::Unsupported => "cannot do this",
            ErrorKind::Server => "reported an error",
        };
        let applied = match parts.applied {
            Applied::No => "nothing was charged",
            Applied::Unknown => "it may have been charged",
        };
        let advice = if self.is_retryable() { "try again later" } else { "trying again will not help" };
        write!(f, " {what}: {} ({applied}; {advice})", parts.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
