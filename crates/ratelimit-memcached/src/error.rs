//! The errors of this store.

use std::io;

use ratelimit_core::store::Applied;
use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::Errors;
#[cfg(feature = "tls")]
use ratelimit_store_kit::tls::failure_of;

/// The errors of this store.
pub(crate) const ERRORS: Errors = Errors::new("memcached");

pub(crate) fn is_maybe_applied(error: &StoreError) -> bool {
    error.applied() == Applied::Unknown
}

pub(crate) fn is_corrupt(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Corrupt
}

/// Other writers were faster in every attempt.
pub(crate) fn contended() -> StoreError {
    ERRORS.of(
        ErrorKind::Contended,
        "too many concurrent charges on the same meter; use a window, or split the key",
    )
}

/// The connection broke before the reply.
pub(crate) fn broken() -> StoreError {
    ERRORS.of(ErrorKind::Unreachable, "the connection broke; is the server running?")
}

/// The response is not a possible one to the request.
pub(crate) fn strange_response() -> StoreError {
    ERRORS
        .of(ErrorKind::Server, "the response does not belong to the request; is it a Memcached server?")
        .maybe_applied()
}

/// The server closed the connection before it had answered anything.
pub(crate) fn unanswered() -> StoreError {
    ERRORS.of(
        ErrorKind::Unreachable,
        "the server closed the connection without an answer; does it require TLS, or support only the binary protocol \
         (its options -S and -B binary), which this crate does not?",
    )
}

/// Connecting failed.
pub(crate) fn from_io(error: &io::Error) -> StoreError {
    ERRORS.of(ErrorKind::Unreachable, format!("{error}; is the server running?"))
}

/// The TLS handshake failed. The text of rustls names the cause.
#[cfg(feature = "tls")]
pub(crate) fn from_tls(error: &io::Error) -> StoreError {
    ERRORS.of(
        ErrorKind::Unreachable,
        format!(
            "TLS: {error}; does the server speak TLS, is its certificate signed by one of `authorities` for this \
             host, and does it want a `client_certificate`?"
        ),
    )
}

/// The connection broke.
pub(crate) fn from_stream(error: &io::Error) -> StoreError {
    #[cfg(feature = "tls")]
    if failure_of(error).is_some() {
        return from_tls(error);
    }
    ERRORS.of(ErrorKind::Unreachable, format!("the connection broke ({error}); is the server running?"))
}

/// The server's answer to a failed log-in.
pub(crate) fn from_log_in(line: &str) -> StoreError {
    let line = line.trim_ascii_end();
    if line.starts_with("CLIENT_ERROR") {
        return ERRORS.of(
            ErrorKind::Denied,
            "it refuses the log-in; check `user` and `password`, and the server's file of them (option -Y)",
        );
    }
    from_refusal(line)
}

/// The server's answer to a command that it refused. It has then done nothing.
pub(crate) fn from_refusal(line: &str) -> StoreError {
    let says = |words: &str| line.to_ascii_lowercase().contains(words);
    if says("non-numeric") {
        return ERRORS.corrupt_value();
    }
    let (kind, message) = if line.starts_with('-') {
        (
            ErrorKind::Misconfigured,
            "a Redis server answers there; give the address of a Memcached server, or use a Redis store",
        )
    } else if says("unauthenticated") {
        (
            ErrorKind::Denied,
            "it requires a log-in; set `user` and `password` in the URL or in the configuration",
        )
    } else if line == "ERROR" || says("invalid flag") || says("bad token") {
        (ErrorKind::Unsupported, "it does not support the meta commands; use Memcached 1.6.13 or later")
    } else if says("out of memory") {
        (ErrorKind::Full, "it is out of memory; increase it (option -m)")
    } else if says("too large") {
        (
            ErrorKind::Unsupported,
            "the log does not fit into an item; raise the server's option -I and `max_item_size`",
        )
    } else {
        return ERRORS.of(ErrorKind::Server, text_of(line));
    };
    ERRORS.of(kind, message)
}

/// The text of an error after its first word.
pub(crate) fn text_of(line: &str) -> String {
    let text = line.split_once(' ').map_or(line, |(_, text)| text);
    text.chars().filter(char::is_ascii).take(100).collect()
}
