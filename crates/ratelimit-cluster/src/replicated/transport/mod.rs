//! How messages get to the other nodes.

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

/// Carries messages from each node of a fleet to all of them.
///
/// # Contract
///
/// ## What has to be kept
/// A message that arrives is what was sent, whole. It arrives at every node that was there, or at some, or nowhere; once or
/// several times, late, in any order; also at the one that sent it. [`Replicated`](crate::Replicated) copes with all of
/// that; the less of it happens, the more exact the decisions.
///
/// ## Errors
/// A transport that has lost its server connects again by itself, at the next call. [`send`](Self::send) gives an
/// error if it is not certain that the server has all of the messages; they are then sent again.
///
/// ## No waiting without end
/// [`send`](Self::send) ends within a time limit. [`receive`](Self::receive) waits until there is a message.
///
/// ## Dropped futures
/// A caller may drop either future at any time. A message may be lost by that.
pub trait Transport: fmt::Debug + Send + Sync {
    /// The most bytes in one message; at least 1,024.
    fn largest(&self) -> usize;

    /// Sends messages to all nodes, in this order if it can.
    ///
    /// # Errors
    /// If not all of them may have been sent.
    fn send(&self, messages: &[Arc<[u8]>]) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Waits for the next message. Only one call at a time is of use.
    ///
    /// # Errors
    /// If there is no connection, and none could be made. To be called again after a pause.
    fn receive(&self) -> impl Future<Output = Result<Arc<[u8]>, TransportError>> + Send;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn largest(&self) -> usize {
        (**self).largest()
    }

    fn send(&self, messages: &[Arc<[u8]>]) -> impl Future<Output = Result<(), TransportError>> + Send {
        (**self).send(messages)
    }

    fn receive(&self) -> impl Future<Output = Result<Arc<[u8]>, TransportError>> + Send {
        (**self).receive()
    }
}

/// Messages could not be sent or received. Carries no password.
///
/// ```
/// use ratelimit_cluster::TransportError;
///
/// let error = TransportError::new("redis", "connection refused").at("127.0.0.1:6379");
/// assert_eq!(error.to_string(), "redis at 127.0.0.1:6379 carries no messages: connection refused");
/// ```
#[derive(Debug)]
pub struct TransportError {
    transport: &'static str,
    address: Option<String>,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// A failure of the transport called `transport`.
    pub fn new(transport: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { transport, address: None, message: message.into(), source: None }
    }

    /// Where its server is: an address without user or password.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The error underneath.
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

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
