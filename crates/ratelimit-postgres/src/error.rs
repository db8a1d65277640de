//! Converts failures to [`StoreError`].

use std::borrow::Cow;

use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::{Errors, error_kind};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// The errors of this store.
pub(crate) const ERRORS: Errors = Errors::new("postgres");

/// A row is not the state of a meter.
pub(crate) fn corrupt() -> StoreError {
    ERRORS.of(
        ErrorKind::Corrupt,
        "the row of the meter is not the state of one; does another program write to the table?",
    )
}

/// The reply does not come from one of the functions.
pub(crate) fn strange_reply() -> StoreError {
    ERRORS
        .of(ErrorKind::Server, "the reply does not come from this crate's functions; run migrate()")
        .maybe_applied()
}

/// An error while connecting: nothing was sent.
pub(crate) fn connecting(error: sqlx::Error) -> StoreError {
    calling(error).not_applied()
}

/// An error of the migration, which the server has rolled back.
pub(crate) fn migrating(error: sqlx::Error) -> StoreError {
    match code_of(&error) {
        "42501" => ERRORS.of(
            ErrorKind::Denied,
            "the user may not create the schema, the table or the functions; migrate with the role that owns them, and set `migrate=false` here",
        ),
        "55P03" => ERRORS.of(
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
            ERRORS.of(ErrorKind::Unsupported, message).maybe_applied()
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
            ERRORS.of(ErrorKind::Unreachable, message).maybe_applied()
        }
        sqlx::Error::PoolTimedOut => ERRORS.of(ErrorKind::Unreachable, "the pool had no connection in time"),
        sqlx::Error::PoolClosed => {
            ERRORS.pool_closed()
        }
        sqlx::Error::Tls(_) => ERRORS.of(
            ErrorKind::Unsupported,
            "no encrypted connection; check `sslmode` and certificates, and enable the feature `tls` of ratelimit-postgres",
        ),
        sqlx::Error::Configuration(_) => {
            ERRORS.of(ErrorKind::Misconfigured, "the connection's options are not valid")
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
    if ended { ERRORS.of(kind, text).maybe_applied() } else { ERRORS.of(kind, text) }
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
    let kind = match code {
        // A function of this crate raises it.
        "RL001" => ErrorKind::Contended,
        "0A000" if message.contains("during recovery") => ErrorKind::ReadOnly,
        "08P01" if message.contains("startup parameter") => ErrorKind::Unsupported,
        _ => error_kind::of_sqlstate(code),
    };
    let text = match code {
        "28000" | "28P01" => "the log-in failed; check user, password and pg_hba.conf",
        "42501" => {
            "the user may not do this; it needs USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on the table"
        }
        "3D000" => "the database does not exist; create it",
        "3F000" | "42883" | "42P01" | "42703" | "42704" | "42804" => {
            "the table or the functions of schema version 1 are missing; run PostgresStore::migrate()"
        }
        "25006" => "it does not accept writes; connect to the primary, or wait for the failover to end",
        "0A000" if kind == ErrorKind::ReadOnly => {
            "it is a standby, where unlogged tables cannot be read; connect to the primary, or wait for the failover to end"
        }
        "53100" => "its disk is full; free space on it",
        "53200" => "it is out of memory; lower its `work_mem` and `max_connections`, or give it more",
        "53300" => "it has too many connections; raise `max_connections` or lower `connections`",
        "57014" | "25P04" => "it cancelled the statement at its time limit",
        "55P03" => "a row was locked for longer than the time limit",
        "40001" | "40P01" => "it rolled back the statement several times because of concurrent ones",
        "RL001" => "a meter was deleted between the read and the charge",
        "26000" | "42P05" => {
            "prepared statements are lost between calls, so there must be a pooler; set `PostgresConfig::pooler`"
        }
        "57P03" => "it is starting up or shutting down",
        _ => return (kind, reported_text(code, kind, message).into()),
    };
    (kind, text.into())
}

/// The message for an error whose text says more than its code.
fn reported_text(code: &str, kind: ErrorKind, message: &str) -> String {
    let reported = beginning(message);
    match code {
        "08P01" if kind == ErrorKind::Unsupported => format!(
            "the pooler reports {reported:?}; leave it out of the address, or add it to the pooler's \
             `ignore_startup_parameters`"
        ),
        "08P01" => format!("it reports {reported:?}; if it is a pooler, is the server behind it running?"),
        _ if code.starts_with("57P") || code.starts_with("08") => "it closed the connection".to_owned(),
        _ if kind == ErrorKind::Corrupt => format!(
            "a row is not the state of a meter (SQLSTATE {code}); does another program write to the table?"
        ),
        _ => format!("{reported} (SQLSTATE {code})"),
    }
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
