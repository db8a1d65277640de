//! Converts failures to [`StoreError`].

use std::borrow::Cow;

use ratelimit_core::store::Applied;
use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::{Errors, error_kind};
use redis::{ErrorKind as Kind, RedisError};

/// The errors of this store.
pub(crate) const ERRORS: Errors = Errors::new("redis");

const LOG_IN: &str = "the log-in failed; check the user and password in the address (for sentinels, `sentinel_user` and \
                      `sentinel_password`)";

/// The address asks for TLS, which is not compiled in.
pub(crate) const WITHOUT_TLS: &str = "the address asks for TLS: enable the feature `tls` of ratelimit-redis";

/// The value under one of the keys is not the state of a meter, found after the script has charged the meter, if it has.
pub(crate) fn corrupt_after(charged: bool) -> StoreError {
    if charged { ERRORS.corrupt_value().maybe_applied() } else { ERRORS.corrupt_value() }
}

/// The reply does not come from one of the scripts.
pub(crate) fn strange_reply() -> StoreError {
    ERRORS.of(ErrorKind::Server, "the reply does not come from this crate's scripts").maybe_applied()
}

/// An error that the client library or the server reported. A connection error counts as not charged; a caller that has
/// sent a request adds [`maybe_applied`](StoreError::maybe_applied).
pub(crate) fn from_redis(error: RedisError) -> StoreError {
    let (kind, message) = explain(&error);
    let converted = ERRORS.of(kind, message);
    // A server refuses before the script has written anything. For every other error that is not certain.
    let is_certain =
        kind != ErrorKind::Server && error.kind() != Kind::Parse && !is_of_command_in_script(&error);
    let converted = if is_certain { converted } else { converted.maybe_applied() };
    // The text of a source may quote the request, and with it a key: only I/O errors are passed on. The message of others than
    // timeouts contains theirs.
    if error.kind() == Kind::Io && error.is_timeout() { converted.caused_by(error) } else { converted }
}

/// Whether the user may run the script but not one of its commands: those before it may have written. The text of Redis 6 and
/// 7.0, and of later ones.
fn is_of_command_in_script(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.contains("executing the script") || detail.contains("ACL failure in script")
}

/// Whether the request can be sent again, to another server: this one has certainly not charged it.
pub(crate) fn may_go_elsewhere(error: &StoreError) -> bool {
    error.applied() == Applied::No && matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::ReadOnly)
}

/// The kind of an error, and a message that says what to do.
fn explain(error: &RedisError) -> (ErrorKind, Cow<'static, str>) {
    match error.kind() {
        Kind::Io if error.is_timeout() => (ErrorKind::Timeout, "no answer within the time limit".into()),
        Kind::Io => (ErrorKind::Unreachable, format!("{error}; is the server running?").into()),
        Kind::ClusterConnectionNotFound => {
            (ErrorKind::Unreachable, "no connection to any node of the cluster; are they running?".into())
        }
        Kind::AuthenticationFailed => (ErrorKind::Denied, LOG_IN.into()),
        Kind::InvalidClientConfig => (ErrorKind::Misconfigured, invalid_address(error)),
        // The client library has no kind of its own for this.
        Kind::Parse if error.to_string().contains("Unexpected end of input") => {
            (ErrorKind::Unreachable, "the connection broke in the middle of a reply".into())
        }
        Kind::Parse => (ErrorKind::Server, "its reply is not Redis's protocol; is it a Redis server?".into()),
        _ => by_word(error.code().unwrap_or_default(), error.detail().unwrap_or_default()),
    }
}

/// Does not quote the address, which may contain a password.
fn invalid_address(error: &RedisError) -> Cow<'static, str> {
    if error.to_string().to_ascii_lowercase().contains("tls") {
        WITHOUT_TLS.into()
    } else {
        "the address is not valid; it looks like redis://user:password@host:6379/0".into()
    }
}

/// The kind of an error that the server reported, by its first word.
fn by_word(word: &str, detail: &str) -> (ErrorKind, Cow<'static, str>) {
    let message = match word {
        "WRONGPASS" | "NOAUTH" => LOG_IN,
        "NOPERM" => {
            "the user may not do this; it needs EVAL, EVALSHA, SCRIPT LOAD and UNLINK (on a cluster also CLUSTER SLOTS, \
             CLUSTER INFO and ASKING), the commands of the scripts, and the keys' prefix"
        }
        "READONLY" => "it is a read-only replica; connect to the primary, or wait for the failover to end",
        "OOM" => "it has reached `maxmemory`; raise it, or let `volatile-ttl` evict",
        "MISCONF" | "NOREPLICAS" => "it refuses writes until its disk or its replicas are back",
        "LOADING" => "it is still loading its data",
        "BUSY" => "it is busy running a script; SCRIPT KILL ends one that does not end by itself",
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" => "the cluster is down or moving slots",
        "MOVED" | "ASK" | "CROSSSLOT" => {
            "it is a cluster; use an address that begins with redis+cluster://, or for your own connection or pool \
             with_cluster_connection or with_cluster_pool"
        }
        "WRONGTYPE" => "a key holds a value of another type; does another program use the prefix?",
        _ => return by_text(detail),
    };
    (error_kind::of_redis(word), message.into())
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
        ("no permissions to", "NOPERM"),
        ("can't access at least one of the keys", "NOPERM"),
        ("WRONGPASS", "WRONGPASS"),
        ("NOAUTH", "NOAUTH"),
        ("invalid password", "WRONGPASS"),
        ("is busy running a script", "BUSY"),
    ];
    if let Some((_, word)) = known.iter().find(|(text, _)| detail.contains(text)) {
        return by_word(word, "");
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
            "it does not know the commands EVAL and EVALSHA; connect to a server that has them and does not rename them".into(),
        );
    }
    let safe: String = detail.split("with args").next().unwrap_or_default().chars().take(200).collect();
    (ErrorKind::Server, safe.into())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    /// Programs print an error and its sources one after another.
    #[test]
    fn no_source_repeats_the_text_of_its_error() {
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof]
        {
            let error = from_redis(io::Error::new(kind, "the cable is cut").into());
            let repeats =
                error.source().is_some_and(|source| error.to_string().contains(&source.to_string()));
            assert!(!repeats && error.kind() != ErrorKind::Server, "{error}");
        }
    }
}
