//! The kinds of database errors, by their codes.
//!
//! They say what a caller can do. They do not say whether a call was applied: that depends on where it failed. What a database
//! has rolled back is not applied; if a connection breaks after the request was sent, call
//! [`maybe_applied`](ratelimit_core::StoreError::maybe_applied). Repeat what is [`ErrorKind::Contended`] with
//! [`retry`](crate::retry()).

use std::io;

use ratelimit_core::ErrorKind;

/// The kind of an error with this SQLSTATE, the five characters of the SQL standard. PostgreSQL and those that speak its protocol
/// use nearly all of them; MySQL and MariaDB have more specific [numbers](of_mysql).
///
/// A row that somebody else has inserted first (`23505`) is contention: read again, and decide again. After `40003` it is not
/// known whether the transaction was committed: call [`maybe_applied`](ratelimit_core::StoreError::maybe_applied).
///
/// ```
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::error_kind;
///
/// assert_eq!(error_kind::of_sqlstate("40P01"), ErrorKind::Contended); // a deadlock
/// assert_eq!(error_kind::of_sqlstate("40003"), ErrorKind::Unreachable); // never to be repeated
/// assert_eq!(error_kind::of_sqlstate("25006"), ErrorKind::ReadOnly);
/// ```
pub fn of_sqlstate(code: &str) -> ErrorKind {
    match code {
        "23505" => ErrorKind::Contended,
        // Unknown whether it was committed.
        "40003" => ErrorKind::Unreachable,
        "55P03" | "57014" | "25P04" => ErrorKind::Timeout,
        "42501" => ErrorKind::Denied,
        "25006" => ErrorKind::ReadOnly,
        "53100" | "53200" => ErrorKind::Full,
        "53300" => ErrorKind::Unreachable,
        "XX001" | "XX002" => ErrorKind::Corrupt,
        _ => match code.get(..2).unwrap_or_default() {
            "40" => ErrorKind::Contended,
            "08" | "57" => ErrorKind::Unreachable,
            "28" => ErrorKind::Denied,
            "0A" | "26" | "3D" | "3F" | "42" => ErrorKind::Unsupported,
            "22" => ErrorKind::Corrupt,
            _ => ErrorKind::Server,
        },
    }
}

/// The kind of an error with this number of MySQL or MariaDB.
///
/// ```
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::error_kind;
///
/// assert_eq!(error_kind::of_mysql(1213), ErrorKind::Contended); // a deadlock
/// ```
pub fn of_mysql(number: u16) -> ErrorKind {
    match number {
        // A deadlock, a row that was inserted first, a record that has changed since the last read.
        1213 | 1062 | 1020 => ErrorKind::Contended,
        // A lock or a statement took too long.
        1205 | 1969 | 3024 => ErrorKind::Timeout,
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 => ErrorKind::Denied,
        1290 | 1792 | 1836 => ErrorKind::ReadOnly,
        1021 | 1037 | 1038 | 1041 | 1114 => ErrorKind::Full,
        // Too many connections, a shutdown, an ended connection.
        1040 | 1053 | 1077 | 1079 | 1080 | 1203 | 1226 | 1927 | 2002 | 2003 | 2006 | 2013 => {
            ErrorKind::Unreachable
        }
        1046 | 1049 | 1054 | 1064 | 1146 | 1305 | 1193 => ErrorKind::Unsupported,
        1406 | 1366 | 1264 => ErrorKind::Corrupt,
        _ => ErrorKind::Server,
    }
}

/// The kind of an error with this result code of SQLite, also an extended one.
///
/// ```
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::error_kind;
///
/// assert_eq!(error_kind::of_sqlite(5), ErrorKind::Contended); // SQLITE_BUSY
/// assert_eq!(error_kind::of_sqlite(517), ErrorKind::Contended); // SQLITE_BUSY_SNAPSHOT
/// ```
pub fn of_sqlite(code: i32) -> ErrorKind {
    match code & 0xFF {
        // A row that somebody else has inserted first.
        _ if matches!(code, 1_555 | 2_067) => ErrorKind::Contended,
        5 | 6 => ErrorKind::Contended,
        8 => ErrorKind::ReadOnly,
        7 | 13 => ErrorKind::Full,
        3 | 23 => ErrorKind::Denied,
        11 | 26 => ErrorKind::Corrupt,
        10 | 14 => ErrorKind::Unreachable,
        _ => ErrorKind::Server,
    }
}

/// The kind of an error of Redis, by its first word: `READONLY`, `OOM`, …
///
/// ```
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::error_kind;
///
/// assert_eq!(error_kind::of_redis("READONLY"), ErrorKind::ReadOnly);
/// ```
pub fn of_redis(word: &str) -> ErrorKind {
    match word {
        "READONLY" | "MISCONF" | "NOREPLICAS" => ErrorKind::ReadOnly,
        "OOM" => ErrorKind::Full,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => ErrorKind::Denied,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => ErrorKind::Unreachable,
        "MOVED" | "ASK" | "CROSSSLOT" => ErrorKind::Unsupported,
        "WRONGTYPE" => ErrorKind::Corrupt,
        _ => ErrorKind::Server,
    }
}

/// The kind of an error of a connection.
///
/// ```
/// use ratelimit_core::ErrorKind;
/// use ratelimit_store_kit::error_kind;
///
/// assert_eq!(error_kind::of_io(std::io::ErrorKind::ConnectionRefused), ErrorKind::Unreachable);
/// ```
pub fn of_io(kind: io::ErrorKind) -> ErrorKind {
    match kind {
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        io::ErrorKind::InvalidInput => ErrorKind::Misconfigured,
        _ => ErrorKind::Unreachable,
    }
}
