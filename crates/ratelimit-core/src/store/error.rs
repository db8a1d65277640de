//! Why a store did not answer.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A store did not answer. You decide whether the request may pass (fail open or closed).
///
/// The error says which store failed and at which address, what happened, whether a retry can help, and whether the claim
/// may have been charged all the same. It never contains a password or a key.
///
/// ```
/// use ratelimit_core::store::Applied;
/// use ratelimit_core::{ErrorKind, StoreError};
///
/// let error = StoreError::new("redis", ErrorKind::Unreachable, "connection refused").at("127.0.0.1:6379");
/// assert!(error.is_retryable());
/// assert_eq!(error.applied(), Applied::No);
/// assert_eq!(
///     error.to_string(),
///     "redis at 127.0.0.1:6379 is unreachable: connection refused (nothing was charged; try again later)",
/// );
/// ```
#[derive(Clone)]
pub struct StoreError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    store: &'static str,
    kind: ErrorKind,
    address: Option<String>,
    applied: Applied,
    message: Message,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What happened.
#[derive(Clone)]
enum Message {
    Text(Cow<'static, str>),
    /// Formatted only when it is printed.
    Lazy(Arc<dyn fmt::Display + Send + Sync>),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Lazy(lazy) => lazy.fmt(f),
        }
    }
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no connection: it could not be opened, was not open in time, or broke.
    Unreachable,
    /// The server did not answer within the store's time limit.
    Timeout,
    /// The server rejected the credentials or forbids the operation.
    Denied,
    /// The server accepts no writes (a replica, or read-only).
    ReadOnly,
    /// The store is full.
    Full,
    /// The value that is stored under the meter's name is not a meter's state.
    Corrupt,
    /// Too many other callers claimed the same meter at the same time. Nothing was applied, so the call can be repeated at
    /// once. Only of a refund or a reset of several meters, a part may have been applied; then the error
    /// [says so](StoreError::applied).
    Contended,
    /// The store cannot do this (an old server, a feature that is switched off, a missing table).
    Unsupported,
    /// The address or an option of the store is not valid.
    Misconfigured,
    /// The server reported another error.
    Server,
    /// The store was not called, because its recent calls failed: a [`Breaker`](crate::layers::Breaker) is open.
    CircuitOpen,
    /// The store was not called, because too many calls are in progress: a [`Bulkhead`](crate::layers) is full.
    Overloaded,
}

impl ErrorKind {
    /// The name for logs and metrics, such as `read_only`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::Contended => "contended",
            Self::Unsupported => "unsupported",
            Self::Misconfigured => "misconfigured",
            Self::Server => "server",
            Self::CircuitOpen => "circuit_open",
            Self::Overloaded => "overloaded",
        }
    }
}

/// Whether a claim without an answer was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It was not charged.
    No,
    /// It is unknown: the request had been sent.
    Unknown,
}

impl StoreError {
    /// Creates an error of the store with the name `store`.
    ///
    /// It says that nothing was charged ([`Applied::No`]); for [`ErrorKind::Timeout`], that this is unknown
    /// ([`Applied::Unknown`]). Call [`maybe_applied`](Self::maybe_applied) or [`not_applied`](Self::not_applied) to
    /// change that.
    pub fn new(store: &'static str, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let applied = if kind == ErrorKind::Timeout { Applied::Unknown } else { Applied::No };
        Self(Box::new(Inner {
            store,
            kind,
            address: None,
            applied,
            message: Message::Text(message.into()),
            source: None,
        }))
    }

    /// Replaces the message by one that is formatted only when it is printed.
    pub(crate) fn with_lazy_message(mut self, message: impl fmt::Display + Send + Sync + 'static) -> Self {
        self.0.message = Message::Lazy(Arc::new(message));
        self
    }

    /// Sets the store's address, unless the error has one. Pass it without user and password.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.0.address.get_or_insert_with(|| address.into());
        self
    }

    /// Marks that the claim may have been charged.
    #[must_use]
    pub fn maybe_applied(mut self) -> Self {
        self.0.applied = Applied::Unknown;
        self
    }

    /// Marks that the claim was not charged.
    #[must_use]
    pub fn not_applied(mut self) -> Self {
        self.0.applied = Applied::No;
        self
    }

    /// Sets the underlying error. Its text should not be in the message, because programs print the texts of both.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Renames the store, for a store that contains a layer such as `Batched`.
    #[must_use]
    pub fn of_store(mut self, store: &'static str) -> Self {
        self.0.store = store;
        self
    }

    /// The store's name: `redis`, `memory`, …
    pub fn store(&self) -> &'static str {
        self.0.store
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The store's address.
    pub fn address(&self) -> Option<&str> {
        self.0.address.as_deref()
    }

    /// Whether the claim was charged.
    pub fn applied(&self) -> Applied {
        self.0.applied
    }

    /// Whether the same call can succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Unreachable
            | ErrorKind::Timeout
            | ErrorKind::ReadOnly
            | ErrorKind::Full
            | ErrorKind::Contended
            | ErrorKind::CircuitOpen
            | ErrorKind::Overloaded => true,
            ErrorKind::Denied
            | ErrorKind::Corrupt
            | ErrorKind::Unsupported
            | ErrorKind::Misconfigured
            | ErrorKind::Server => false,
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
            ErrorKind::ReadOnly => "accepts no writes",
            ErrorKind::Full => "is full",
            ErrorKind::Corrupt => "contains unexpected data",
            ErrorKind::Contended => "is contended",
            ErrorKind::Unsupported => "does not support this",
            // Nothing was sent, so there is nothing to report about charges.
            ErrorKind::Misconfigured => return write!(f, " is misconfigured: {}", parts.message),
            ErrorKind::Server => "reported an error",
            ErrorKind::CircuitOpen => "is open",
            ErrorKind::Overloaded => "has too many calls in progress",
        };
        let applied = match parts.applied {
            Applied::No => "nothing was charged",
            Applied::Unknown => "it may have been charged",
        };
        let advice = if self.is_retryable() { "try again later" } else { "trying again will not help" };
        write!(f, " {what}: {} ({applied}; {advice})", parts.message)
    }
}

impl fmt::Debug for StoreError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
