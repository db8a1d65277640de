//! From what went wrong on the way to [`StoreError`].

use std::borrow::Cow;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use sqlx::error::DatabaseError;

/// What this store is called in errors.
pub(crate) const STORE: &str = "postgres";

/// Why there is no answer. Unlike a [`StoreError`] it can be handed to several callers.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    message: Cow<'static, str>,
    maybe_applied: bool,
    address: Option<Arc<str>>,
    source: Option<Arc<std::io::Error>>,
    /// The connection can go on.
    pub(crate) sane: bool,
    /// The server undid the statement because of others who ran at the same time.
    pub(crate) conflict: bool,
    /// A row has gone between the short way's look and its charge.
    pub(crate) overtaken: bool,
}

impl Failure {
    /// Nothing was charged.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self {
            kind,
            message,
            maybe_applied: false,
            address: None,
            source: None,
            sane: false,
            conflict: false,
            overtaken: false,
        }
    }

    pub(crate) fn maybe_applied(self) -> Self {
        Self { maybe_applied: true, ..self }
    }

    pub(crate) fn at(self, address: &Arc<str>) -> Self {
        Self { address: Some(address.clone()), ..self }
    }

    /// A row is no state of a meter.
    pub(crate) fn corrupt() -> Self {
        let message =
            "the row of the meter is not the state of one; does another program write to the table?";
        Self { sane: true, ..Self::new(ErrorKind::Corrupt, message) }
    }

    /// The reply is not one of the functions'.
    pub(crate) fn strange_reply() -> Self {
        let message = "the reply is not one of this crate's functions; run migrate()";
        Self::new(ErrorKind::Server, message).maybe_applied()
    }

    /// An error while connecting: nothing had been sent.
    pub(crate) fn connecting(error: sqlx::Error) -> Self {
        Self { maybe_applied: false, sane: false, ..Self::calling(error) }
    }

    /// An error after a statement was sent.
    pub(crate) fn calling(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::reported(error.as_ref()),
            sqlx::Error::Io(error) => {
                let message = format!("{error}; is the server running?");
                let failure = Self::new(ErrorKind::Unreachable, message).maybe_applied();
                Self { source: Some(Arc::new(error)), ..failure }
            }
            sqlx::Error::PoolTimedOut => {
                Self::new(ErrorKind::Unreachable, "the pool had no connection in time")
            }
            sqlx::Error::PoolClosed => Self::new(ErrorKind::Unsupported, "the pool has been closed"),
            sqlx::Error::Tls(_) => Self::new(
                ErrorKind::Unsupported,
                "no encrypted connection; check `sslmode` and certificates, and enable the feature `tls` of ratelimit-postgres",
            ),
            sqlx::Error::Configuration(_) => {
                Self::new(ErrorKind::Unsupported, "the connection's options are not valid")
            }
            _ => Self::strange_reply(),
        }
    }

    /// What the server reported. It has undone the statement then.
    fn reported(error: &dyn DatabaseError) -> Self {
        Self::coded(&error.code().unwrap_or_default(), error.message())
    }

    /// What the server reported within an answer, the SQLSTATE first.
    pub(crate) fn told(text: &str) -> Self {
        text.split_at_checked(5)
            .map_or_else(Self::strange_reply, |(code, message)| Self::coded(code, message))
    }

    fn coded(code: &str, message: &str) -> Self {
        let (kind, message) = explain(code, message);
        let lost = code.starts_with("57P") || code.starts_with("08") || code == "26000";
        let conflict = code == "40001" || code == "40P01";
        let failure = Self { sane: !lost, conflict, overtaken: code == "RL001", ..Self::new(kind, message) };
        // Told to end in the middle of a call, a server process may have committed it just before.
        if code.starts_with("57P") { failure.maybe_applied() } else { failure }
    }

    /// Whether the same may well be done in another way: others have come between, or a row is no state.
    pub(crate) fn is_undone(&self) -> bool {
        self.overtaken || self.conflict || self.kind == ErrorKind::Corrupt
    }

    pub(crate) fn into_store_error(self) -> StoreError {
        let error = StoreError::new(STORE, self.kind, self.message);
        let error = if self.maybe_applied { error.maybe_applied() } else { error.not_applied() };
        let error = match self.address {
            Some(address) => error.at(&*address),
            None => error,
        };
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// The kind of an error by its SQLSTATE, and what to do about it.
fn explain(code: &str, message: &str) -> (ErrorKind, Cow<'static, str>) {
    let (kind, text) = match code {
        "28000" | "28P01" => (ErrorKind::Denied, "the log-in failed; check user, password and pg_hba.conf"),
        "42501" => (
            ErrorKind::Denied,
            "the user may not do this; it needs USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on the table",
        ),
        "3D000" => (ErrorKind::Unsupported, "the database does not exist; create it"),
        "3F000" | "42883" | "42P01" | "42703" | "42704" | "42804" => (
            ErrorKind::Unsupported,
            "the table or the functions of schema version 1 are missing; run PostgresStore::migrate()",
        ),
        "25006" => (
            ErrorKind::ReadOnly,
            "it takes no writes; connect to the primary, or wait for the failover to end",
        ),
        "55000" => (
            ErrorKind::ReadOnly,
            "it is a standby, where unlogged tables cannot be read; connect to the primary",
        ),
        "53100" => (ErrorKind::Full, "its disk is full"),
        "53200" => (ErrorKind::Full, "it is out of memory"),
        "53300" => (
            ErrorKind::Unreachable,
            "it has too many connections; raise `max_connections` or lower `connections`",
        ),
        "57014" => (ErrorKind::Timeout, "it gave the statement up at its time limit"),
        "55P03" => (ErrorKind::Contended, "a row was locked for longer than the time limit"),
        "40001" | "40P01" => {
            (ErrorKind::Contended, "it undid the statement because of others, several times")
        }
        "26000" | "42P05" => (
            ErrorKind::Unsupported,
            "prepared statements are lost between calls; a pooler in transaction mode must support them",
        ),
        "57P03" => (ErrorKind::Unreachable, "it is starting up or shutting down"),
        _ if code.starts_with("57P") || code.starts_with("08") => {
            (ErrorKind::Unreachable, "it has ended the connection")
        }
        _ if code.starts_with("22") || code.starts_with("XX") => return corrupt(code),
        _ => {
            let message: String = message.chars().take(200).collect();
            return (ErrorKind::Server, format!("{message} (SQLSTATE {code})").into());
        }
    };
    (kind, text.into())
}

fn corrupt(code: &str) -> (ErrorKind, Cow<'static, str>) {
    (
        ErrorKind::Corrupt,
        format!("a row of the table cannot be the state of a meter (SQLSTATE {code})").into(),
    )
}
