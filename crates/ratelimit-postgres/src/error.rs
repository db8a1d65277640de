//! Converts failures to [`StoreError`].

use std::borrow::Cow;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use sqlx::error::DatabaseError;

/// The store's name in errors.
pub(crate) const STORE: &str = "postgres";

/// Why a call failed, and what that says about the connection and the statement.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    message: Cow<'static, str>,
    maybe_applied: bool,
    address: Option<Arc<str>>,
    source: Option<Arc<std::io::Error>>,
    /// Whether the connection can be used again.
    pub(crate) sane: bool,
    /// Whether the server rolled back the statement because of concurrent ones.
    pub(crate) conflict: bool,
    /// Whether a row was deleted between the read and the charge on the fast path.
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

    /// A row is not the state of a meter.
    pub(crate) fn corrupt() -> Self {
        let message =
            "the row of the meter is not the state of one; does another program write to the table?";
        Self { sane: true, ..Self::new(ErrorKind::Corrupt, message) }
    }

    /// The reply does not come from one of the functions.
    pub(crate) fn strange_reply() -> Self {
        let message = "the reply does not come from this crate's functions; run migrate()";
        Self::new(ErrorKind::Server, message).maybe_applied()
    }

    /// An error while connecting: nothing was sent.
    pub(crate) fn connecting(error: sqlx::Error) -> Self {
        Self { maybe_applied: false, sane: false, ..Self::calling(error) }
    }

    /// An error after a statement was sent.
    pub(crate) fn calling(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::reported(error.as_ref()),
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let message = format!("no encrypted connection: {error}; check the certificates");
                Self::new(ErrorKind::Unsupported, message)
            }
            sqlx::Error::Io(error) => {
                let message = match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        format!(
                            "{error}; is the server running, and do the socket and the certificate files exist?"
                        )
                    }
                    _ => format!("{error}; is the server running?"),
                };
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
                Self::new(ErrorKind::Misconfigured, "the connection's options are not valid")
            }
            _ => Self::strange_reply(),
        }
    }

    /// An error that the server reported. It has then rolled back the statement.
    fn reported(error: &dyn DatabaseError) -> Self {
        Self::coded(&error.code().unwrap_or_default(), error.message())
    }

    /// An error that the server reported within an answer, with the SQLSTATE first.
    pub(crate) fn told(text: &str) -> Self {
        text.split_at_checked(5)
            .map_or_else(Self::strange_reply, |(code, message)| Self::coded(code, message))
    }

    fn coded(code: &str, message: &str) -> Self {
        let waited = message.contains("query_wait_timeout");
        let (kind, message) = explain(code, message);
        let lost = code.starts_with("57P") || code.starts_with("08") || code == "26000";
        let conflict = code == "40001" || code == "40P01";
        let failure = Self { sane: !lost, conflict, overtaken: code == "RL001", ..Self::new(kind, message) };
        // A server process that is terminated during a call may have committed it just before. A pooler sends 08P01 if it
        // has lost the server, but with `query_wait_timeout` it never had one for the call.
        let ended = code.starts_with("57P") || code.starts_with("08") && !waited;
        if ended { failure.maybe_applied() } else { failure }
    }

    /// Whether another attempt on the general path may succeed: a concurrent statement interfered, or a row is not a state.
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

/// The kind of an error by its SQLSTATE, and a message that says what to do.
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
            "it does not accept writes; connect to the primary, or wait for the failover to end",
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
        "57014" => (ErrorKind::Timeout, "it cancelled the statement at its time limit"),
        "55P03" => (ErrorKind::Contended, "a row was locked for longer than the time limit"),
        "40001" | "40P01" => {
            (ErrorKind::Contended, "it rolled back the statement several times because of concurrent ones")
        }
        "26000" | "42P05" => (
            ErrorKind::Unsupported,
            "prepared statements are lost between calls, so there must be a pooler; set `PostgresConfig::pooler`",
        ),
        "08P01" if message.contains("startup parameter") => {
            let message = told(message);
            let advice = "leave it out of the address, or add it to the pooler's `ignore_startup_parameters`";
            return (ErrorKind::Unsupported, format!("the pooler reports {message:?}; {advice}").into());
        }
        "08P01" => {
            let message = told(message);
            let advice = "if it is a pooler, is the server behind it running?";
            return (ErrorKind::Unreachable, format!("it reports {message:?}; {advice}").into());
        }
        "57P03" => (ErrorKind::Unreachable, "it is starting up or shutting down"),
        _ if code.starts_with("57P") || code.starts_with("08") => {
            (ErrorKind::Unreachable, "it closed the connection")
        }
        _ if code.starts_with("22") || matches!(code, "XX001" | "XX002") => return corrupt(code),
        _ => {
            return (ErrorKind::Server, format!("{} (SQLSTATE {code})", told(message)).into());
        }
    };
    (kind, text.into())
}

/// The beginning of a message from the server.
fn told(message: &str) -> String {
    message.chars().take(200).collect()
}

fn corrupt(code: &str) -> (ErrorKind, Cow<'static, str>) {
    (
        ErrorKind::Corrupt,
        format!(
            "a row is not the state of a meter (SQLSTATE {code}); does another program write to the table?"
        )
        .into(),
    )
}
