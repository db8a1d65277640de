//! Converts failures to [`StoreError`].

use std::borrow::Cow;

use ratelimit_core::{ErrorKind, StoreError};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// The store's name in errors.
pub(crate) const STORE: &str = "postgres";

/// Nothing was charged.
pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> StoreError {
    StoreError::new(STORE, kind, message).not_applied()
}

/// A row is not the state of a meter.
pub(crate) fn corrupt() -> StoreError {
    new(
        ErrorKind::Corrupt,
        "the row of the meter is not the state of one; does another program write to the table?",
    )
}

/// The reply does not come from one of the functions.
pub(crate) fn strange_reply() -> StoreError {
    new(ErrorKind::Server, "the reply does not come from this crate's functions; run migrate()")
        .maybe_applied()
}

/// An error while connecting: nothing was sent.
pub(crate) fn connecting(error: sqlx::Error) -> StoreError {
    calling(error).not_applied()
}

/// An error of the migration, which the server has rolled back.
pub(crate) fn migrating(error: sqlx::Error) -> StoreError {
    match code_of(&error) {
        "42501" => new(
            ErrorKind::Denied,
            "the user may not create the schema, the table or the functions; migrate with the role that owns them, and set `migrate=false` here",
        ),
        "55P03" => new(
            ErrorKind::Timeout,
            "the migration waited too long for a lock; find the transaction in `pg_stat_activity`, and migrate when it has ended",
        ),
        _ => connecting(error),
    }
}

/// An error after a statement was sent.
pub(crate) fn calling(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(error) => reported(&error.code().unwrap_or_default(), error.message()),
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            let message = format!("no encrypted connection: {error}; check the certificates");
            new(ErrorKind::Unsupported, message).maybe_applied()
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
            new(ErrorKind::Unreachable, message).maybe_applied()
        }
        sqlx::Error::PoolTimedOut => new(ErrorKind::Unreachable, "the pool had no connection in time"),
        sqlx::Error::PoolClosed => {
            new(ErrorKind::Unsupported, "the pool has been closed; keep it open while the store is used")
        }
        sqlx::Error::Tls(_) => new(
            ErrorKind::Unsupported,
            "no encrypted connection; check `sslmode` and certificates, and enable the feature `tls` of ratelimit-postgres",
        ),
        sqlx::Error::Configuration(_) => {
            new(ErrorKind::Misconfigured, "the connection's options are not valid")
        }
        _ => strange_reply(),
    }
}

/// An error that the server reported within an answer, with the SQLSTATE first.
pub(crate) fn from_answer(text: &str) -> StoreError {
    text.split_at_checked(5).map_or_else(strange_reply, |(code, message)| reported(code, message))
}

/// An error that the server reported. It has then rolled back the statement.
fn reported(code: &str, message: &str) -> StoreError {
    let (kind, text) = explain(code, message);
    // A server process that is terminated during a call may have committed it just before. A pooler sends 08P01 if it
    // has lost the server, but with `query_wait_timeout` it never had one for the call.
    let waited = message.contains("query_wait_timeout");
    let ended = code.starts_with("57P") || code.starts_with("08") && !waited;
    if ended { new(kind, text).maybe_applied() } else { new(kind, text) }
}

/// Whether the connection can be used again after this error. Not if it has lost its statements, or leads to a standby: after
/// a failover, a new one leads to the primary.
pub(crate) fn keeps_connection(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| {
        let ended = matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic);
        !ended && !error.code().starts_with("08") && !matches!(error.code(), "0A000" | "25006" | "26000")
    })
}

/// Whether the server rolled back the statement because of concurrent ones.
pub(crate) fn is_conflict(error: &sqlx::Error) -> bool {
    matches!(code_of(error), "40001" | "40P01")
}

/// Whether the server ended the statement at a time limit, wherever it was.
pub(crate) fn is_cancelled(error: &sqlx::Error) -> bool {
    matches!(code_of(error), "57014" | "25P04")
}

/// Whether the migration found the functions of a newer version.
pub(crate) fn is_newer(error: &sqlx::Error) -> bool {
    code_of(error) == "RL002"
}

/// The SQLSTATE of an error that the server reported; empty for other errors.
fn code_of(error: &sqlx::Error) -> &str {
    database_error(error).map_or("", PgDatabaseError::code)
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether another attempt on the general path may succeed: a concurrent statement interfered, or a row is not a state.
pub(crate) fn is_undone(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Contended | ErrorKind::Corrupt)
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
        "0A000" if message.contains("during recovery") => (
            ErrorKind::ReadOnly,
            "it is a standby, where unlogged tables cannot be read; connect to the primary, or wait for the failover to end",
        ),
        "53100" => (ErrorKind::Full, "its disk is full; free space on it"),
        "53200" => (
            ErrorKind::Full,
            "it is out of memory; lower its `work_mem` and `max_connections`, or give it more",
        ),
        "53300" => (
            ErrorKind::Unreachable,
            "it has too many connections; raise `max_connections` or lower `connections`",
        ),
        "57014" | "25P04" => (ErrorKind::Timeout, "it cancelled the statement at its time limit"),
        "55P03" => (ErrorKind::Timeout, "a row was locked for longer than the time limit"),
        "40001" | "40P01" => {
            (ErrorKind::Contended, "it rolled back the statement several times because of concurrent ones")
        }
        "RL001" => (ErrorKind::Contended, "a meter was deleted between the read and the charge"),
        "26000" | "42P05" => (
            ErrorKind::Unsupported,
            "prepared statements are lost between calls, so there must be a pooler; set `PostgresConfig::pooler`",
        ),
        "08P01" if message.contains("startup parameter") => {
            let message = beginning(message);
            let advice = "leave it out of the address, or add it to the pooler's `ignore_startup_parameters`";
            return (ErrorKind::Unsupported, format!("the pooler reports {message:?}; {advice}").into());
        }
        "08P01" => {
            let message = beginning(message);
            let advice = "if it is a pooler, is the server behind it running?";
            return (ErrorKind::Unreachable, format!("it reports {message:?}; {advice}").into());
        }
        "57P03" => (ErrorKind::Unreachable, "it is starting up or shutting down"),
        _ if code.starts_with("57P") || code.starts_with("08") => {
            (ErrorKind::Unreachable, "it closed the connection")
        }
        _ if code.starts_with("22") || matches!(code, "XX001" | "XX002") => {
            let advice = "does another program write to the table?";
            let text = format!("a row is not the state of a meter (SQLSTATE {code}); {advice}");
            return (ErrorKind::Corrupt, text.into());
        }
        _ => {
            return (ErrorKind::Server, format!("{} (SQLSTATE {code})", beginning(message)).into());
        }
    };
    (kind, text.into())
}

/// The beginning of a message from the server.
fn beginning(message: &str) -> String {
    message.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    /// Programs print an error and its sources one after another.
    #[test]
    fn no_source_repeats_the_text_of_its_error() {
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound, io::ErrorKind::InvalidData] {
            let error = calling(sqlx::Error::Io(io::Error::new(kind, "the cable is cut")));
            assert!(error.to_string().contains("the cable is cut") && error.source().is_none(), "{error}");
        }
    }
}
