//! From what went wrong on the way to [`StoreError`].

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};

/// Why there is no answer. Unlike a [`StoreError`] it can be handed to several callers.
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

    /// It happened there, unless it is known where.
    pub(crate) fn at(self, address: &Arc<str>) -> Self {
        Self { address: self.address.or_else(|| Some(address.clone())), ..self }
    }

    pub(crate) fn is_maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    pub(crate) fn is_corrupt(&self) -> bool {
        self.kind == ErrorKind::Corrupt
    }

    /// A value under one of the keys is no state of a meter.
    pub(crate) fn corrupt() -> Self {
        Self::new(
            ErrorKind::Corrupt,
            "the value under the meter's key is not the state of a meter; does another program write keys with this prefix?",
        )
    }

    /// Others were faster, time and again.
    pub(crate) fn contended() -> Self {
        Self::new(ErrorKind::Contended, "too many others charge the same meter at the same moment")
    }

    /// The connection ended before the answer.
    pub(crate) fn broken() -> Self {
        Self::new(ErrorKind::Unreachable, "the connection broke; is the server running?")
    }

    /// The time limit has passed before anything was sent.
    pub(crate) fn late() -> Self {
        Self::new(ErrorKind::Timeout, "no answer within the time limit")
    }

    /// The response is none that the request can have.
    pub(crate) fn strange_response() -> Self {
        Self::new(ErrorKind::Server, "the response does not belong to the request; is it a Memcached server?")
            .maybe_applied()
    }

    /// The task that carried the call has ended early: the runtime shuts down.
    pub(crate) fn abandoned() -> Self {
        Self::new(ErrorKind::Unreachable, "the tokio runtime that carried the call has shut down")
            .maybe_applied()
    }

    /// The connection could not be made, or broke.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        Self::new(ErrorKind::Unreachable, format!("{}; is the server running?", error.kind()))
    }

    /// What the server said instead of doing what it was asked. It has done nothing then.
    pub(crate) fn from_refusal(line: &str) -> Self {
        let says = |words: &str| line.to_ascii_lowercase().contains(words);
        if says("non-numeric") {
            return Self::corrupt();
        }
        let (kind, message) = if says("unauthenticated") {
            (ErrorKind::Denied, "it wants a log-in, which this crate does not support")
        } else if line == "ERROR" || says("invalid flag") || says("bad token") {
            (
                ErrorKind::Unsupported,
                "it does not know the meta commands; it has to be Memcached 1.6.13 or later",
            )
        } else if says("out of memory") {
            (ErrorKind::Full, "it is out of memory; give it more (option -m) or allow evictions")
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
