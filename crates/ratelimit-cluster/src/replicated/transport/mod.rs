//! Transports: how messages get to the other nodes.

mod in_process;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

pub use in_process::{Hub, InProcess};
#[cfg(feature = "postgres")]
pub use postgres::PostgresTransport;
#[cfg(feature = "redis")]
pub use redis::RedisTransport;

/// Carries messages from each node of a fleet to all nodes.
///
/// # Contract
///
/// ## Delivery
/// A message arrives unchanged. It may arrive at all nodes, at some or at none; once or several times; late; in any order; also
/// at its sender. [`Replicated`](crate::Replicated) tolerates all of that, but decides more exactly the less of it happens.
///
/// ## Errors
/// A transport that has lost its connection reconnects at the next call. [`send`](Self::send) returns an error unless it is
/// certain that the server has all messages. After an error, `Replicated` sends them again.
///
/// ## Time limits
/// [`send`](Self::send) ends within a time limit. [`receive`](Self::receive) waits until there is a message.
///
/// ## Dropped futures
/// A caller may drop either future at any time. A message may be lost then.
pub trait Transport: fmt::Debug + Send + Sync {
    /// The maximum length of a message, in bytes; at least 1,024.
    fn largest(&self) -> usize;

    /// Sends messages to all nodes, in this order if possible.
    ///
    /// # Errors
    /// If it is not certain that all messages were sent.
    fn send(&self, messages: &[Arc<[u8]>]) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Waits for the next message. Make only one call at a time.
    ///
    /// # Errors
    /// If there is no connection and none could be made. Call it again after a pause.
    fn receive(&self) -> impl Future<Output = Result<Arc<[u8]>, TransportError>> + Send;
}

/// An error of sending or receiving messages. It contains no password.
///
/// ```
/// use ratelimit_cluster::TransportError;
///
/// let error = TransportError::new("redis", "connection refused").at("127.0.0.1:6379");
/// assert_eq!(error.to_string(), "redis at 127.0.0.1:6379 carries no messages: connection refused");
/// ```
pub struct TransportError {
    transport: &'static str,
    address: Option<String>,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// Creates an error of the transport named `transport`.
    pub fn new(transport: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { transport, address: None, message: message.into(), source: None }
    }

    /// Sets the address of the server, without user and password.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets the error that caused this one. Its text should not be in the message, because programs print the texts of both.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport)?;
        if let Some(address) = &self.address {
            write!(f, " at {address}")?;
        }
        write!(f, " carries no messages: {}", self.message)
    }
}

impl fmt::Debug for TransportError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
