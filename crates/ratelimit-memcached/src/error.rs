//! The errors of this store.

use std::borrow::Cow;
use std::io;

use ratelimit_core::{Applied, ErrorKind, StoreError};

/// Nothing was charged.
pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> StoreError {
    StoreError::new("memcached", kind, message).not_applied()
}

/// The configuration is not valid.
pub(crate) fn misconfigured(message: impl Into<Cow<'static, str>>) -> StoreError {
    new(ErrorKind::Misconfigured, message)
}

pub(crate) fn is_maybe_applied(error: &StoreError) -> bool {
    error.applied() == Applied::Unknown
}

pub(crate) fn is_corrupt(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Corrupt
}

/// The value under one of the keys is not the state of a meter.
pub(crate) fn corrupt() -> StoreError {
    new(
        ErrorKind::Corrupt,
        "the value under the meter's key is not the state of a meter; does another program write keys with this prefix?",
    )
}

/// Other writers were faster in every attempt.
pub(crate) fn contended() -> StoreError {
    new(ErrorKind::Contended, "too many concurrent charges on the same meter; use a window, or split the key")
}

/// The connection broke before the reply.
pub(crate) fn broken() -> StoreError {
    new(ErrorKind::Unreachable, "the connection broke; is the server running?")
}

/// The time limit passed before anything was sent.
pub(crate) fn late() -> StoreError {
    new(ErrorKind::Timeout, "no answer within the time limit")
}

/// The response is not a possible one to the request.
pub(crate) fn strange_response() -> StoreError {
    new(ErrorKind::Server, "the response does not belong to the request; is it a Memcached server?")
        .maybe_applied()
}

/// The task of the call ended early: the runtime is shutting down.
pub(crate) fn abandoned() -> StoreError {
    new(ErrorKind::Unreachable, "the tokio runtime of the call has shut down").maybe_applied()
}

/// The server closed the connection before it had answered anything.
pub(crate) fn unanswered() -> StoreError {
    new(
        ErrorKind::Unreachable,
        "the server closed the connection without an answer; does it require TLS, or support only the binary protocol \
         (its options -S and -B binary), which this crate does not?",
    )
}

/// Connecting failed.
pub(crate) fn from_io(error: &io::Error) -> StoreError {
    new(ErrorKind::Unreachable, format!("{error}; is the server running?"))
}

/// The TLS handshake failed.
#[cfg(feature = "tls")]
pub(crate) fn from_tls(error: &io::Error) -> StoreError {
    new(
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
    if error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>()) {
        return from_tls(error);
    }
    new(ErrorKind::Unreachable, format!("the connection broke ({error}); is the server running?"))
}

/// The server's answer to a failed log-in.
pub(crate) fn from_log_in(line: &str) -> StoreError {
    let line = line.trim_ascii_end();
    if line.starts_with("CLIENT_ERROR") {
        return new(
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
        return corrupt();
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
        return new(ErrorKind::Server, text_of(line));
    };
    new(kind, message)
}

/// The text of an error after its first word.
pub(crate) fn text_of(line: &str) -> String {
    let text = line.split_once(' ').map_or(line, |(_, text)| text);
    text.chars().filter(char::is_ascii).take(100).collect()
}
