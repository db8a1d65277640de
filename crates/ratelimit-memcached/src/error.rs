//! Converts failures to [`StoreError`].

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};

/// Why a call failed. Unlike a [`StoreError`] it can be cloned for several callers.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: Cow<'static, str>,
    maybe_applied: bool,
    address: Option<Arc<str>>,
}

impl Failure {
    /// Nothing was charged.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), maybe_applied: false, address: None }
    }

    pub(crate) fn maybe_applied(self) -> Self {
        Self { maybe_applied: true, ..self }
    }

    pub(crate) fn not_applied(self) -> Self {
        Self { maybe_applied: false, ..self }
    }

    /// The same, with the address unless it has one already.
    pub(crate) fn at(self, address: &Arc<str>) -> Self {
        Self { address: self.address.or_else(|| Some(address.clone())), ..self }
    }

    pub(crate) fn is_maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.kind == ErrorKind::Denied
    }

    pub(crate) fn is_corrupt(&self) -> bool {
        self.kind == ErrorKind::Corrupt
    }

    /// The value under one of the keys is not the state of a meter.
    pub(crate) fn corrupt() -> Self {
        Self::new(
            ErrorKind::Corrupt,
            "the value under the meter's key is not the state of a meter; does another program write keys with this prefix?",
        )
    }

    /// Other writers won every attempt.
    pub(crate) fn contended() -> Self {
        Self::new(ErrorKind::Contended, "too many concurrent charges on the same meter")
    }

    /// The connection broke before the reply.
    pub(crate) fn broken() -> Self {
        Self::new(ErrorKind::Unreachable, "the connection broke; is the server running?")
    }

    /// The time limit passed before anything was sent.
    pub(crate) fn late() -> Self {
        Self::new(ErrorKind::Timeout, "no answer within the time limit")
    }

    /// The response is not a possible one to the request.
    pub(crate) fn strange_response() -> Self {
        Self::new(ErrorKind::Server, "the response does not belong to the request; is it a Memcached server?")
            .maybe_applied()
    }

    /// The task of the call ended early: the runtime is shutting down.
    pub(crate) fn abandoned() -> Self {
        Self::new(ErrorKind::Unreachable, "the tokio runtime of the call has shut down").maybe_applied()
    }

    /// The server closed the connection before it had answered anything.
    pub(crate) fn unanswered() -> Self {
        Self::new(
            ErrorKind::Unreachable,
            "the server closed the connection without an answer; does it require TLS, or support only the binary protocol \
             (its options -S and -B binary), which this crate does not?",
        )
    }

    /// Connecting failed.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        Self::new(ErrorKind::Unreachable, format!("{error}; is the server running?"))
    }

    /// The TLS handshake failed.
    #[cfg(feature = "tls")]
    pub(crate) fn from_tls(error: &io::Error) -> Self {
        Self::new(
            ErrorKind::Unreachable,
            format!(
                "TLS: {error}; does the server speak TLS, is its certificate signed by one of `authorities` for this \
                 host, and does it want a `client_certificate`?"
            ),
        )
    }

    /// The connection broke.
    pub(crate) fn from_stream(error: &io::Error) -> Self {
        #[cfg(feature = "tls")]
        if error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>()) {
            return Self::from_tls(error);
        }
        Self::new(ErrorKind::Unreachable, format!("the connection broke ({error}); is the server running?"))
    }

    /// The server's answer to a failed log-in.
    pub(crate) fn from_log_in(line: &str) -> Self {
        let line = line.trim_ascii_end();
        if line.starts_with("CLIENT_ERROR") {
            return Self::new(
                ErrorKind::Denied,
                "it refuses the log-in; check `user` and `password`, and the server's file of them (option -Y)",
            );
        }
        Self::from_refusal(line)
    }

    /// The server's answer to a command that it refused. It has then done nothing.
    pub(crate) fn from_refusal(line: &str) -> Self {
        let says = |words: &str| line.to_ascii_lowercase().contains(words);
        if says("non-numeric") {
            return Self::corrupt();
        }
        let (kind, message) = if says("unauthenticated") {
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
            let text = line.split_once(' ').map_or(line, |(_, text)| text);
            let text: String = text.chars().filter(char::is_ascii).take(100).collect();
            return Self::new(ErrorKind::Server, text);
        };
        Self::new(kind, message)
    }

    pub(crate) fn into_store_error(self) -> StoreError {
        let error = StoreError::new("memcached", self.kind, self.message);
        let error = if self.maybe_applied { error.maybe_applied() } else { error.not_applied() };
        match self.address {
            Some(address) => error.at(&*address),
            None => error,
        }
    }
}
