//! A server that was found or started.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::service::Service;

/// How long a server may take to answer after its start.
const START: Duration = Duration::from_secs(30);

/// A server that answered when it was found or started.
///
/// Clones are the same server. If the [`Testbed`](crate::Testbed) has started it, it is stopped when the last clone is
/// dropped.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    name: &'static str,
    url: String,
    address: SocketAddr,
    service: Arc<dyn Service>,
    body: Option<Box<dyn Body>>,
}

/// What a server runs in: a process or a container.
#[async_trait]
pub(crate) trait Body: Send + Sync {
    async fn kill(&self) -> Result<(), String>;
    /// Starts it again, without waiting for an answer.
    async fn start(&self) -> Result<(), String>;
    async fn freeze(&self) -> Result<(), String>;
    async fn thaw(&self) -> Result<(), String>;
    /// Its last output, if it is no longer running.
    async fn obituary(&self) -> Option<String>;
}

/// A server could not be stopped, started, frozen or thawed.
#[derive(Debug)]
pub struct ServerError {
    name: &'static str,
    address: SocketAddr,
    message: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.name, self.address, self.message)
    }
}

impl Error for ServerError {}

impl ServerError {
    /// An error of several servers, one of which is this.
    pub(crate) fn of(name: &'static str, address: Option<SocketAddr>, message: String) -> Self {
        let nowhere = SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0));
        Self { name, address: address.unwrap_or(nowhere), message }
    }
}

impl Server {
    /// A server that `body` runs at `address`; returns when it answers.
    pub(crate) async fn started(
        name: &'static str,
        address: SocketAddr,
        service: Arc<dyn Service>,
        body: Box<dyn Body>,
    ) -> Result<Self, ServerError> {
        let url = service.url(address);
        let server = Self(Arc::new(Inner { name, url, address, service, body: Some(body) }));
        server.answers().await?;
        Ok(server)
    }

    /// A server that was given by an address.
    pub(crate) fn at_address(
        name: &'static str,
        url: String,
        address: SocketAddr,
        service: Arc<dyn Service>,
    ) -> Self {
        Self(Arc::new(Inner { name, url, address, service, body: None }))
    }

    /// Its address for clients, including the password if any: `redis://127.0.0.1:11434/`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Its address for a store, with a time limit that no busy machine exceeds: `redis://127.0.0.1:11434/?timeout=60s`. For
    /// tests that are not about time limits.
    pub fn patient_url(&self) -> String {
        format!("{}?timeout=60s", self.url())
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether it can be killed, started, frozen and thawed: not if it was given by an address.
    pub fn is_controlled(&self) -> bool {
        self.0.body.is_some()
    }

    /// Kills it, like `kill -9`. Does nothing if it has ended.
    ///
    /// # Errors
    /// If it was given by an address, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.body()?.kill().await.map_err(|message| self.error(message))
    }

    /// Starts it again at the same address; returns when it answers. Does nothing if it is running.
    ///
    /// # Errors
    /// If it was given by an address, cannot be started, or does not answer within 30 seconds.
    pub async fn start(&self) -> Result<(), ServerError> {
        self.body()?.start().await.map_err(|message| self.error(message))?;
        self.answers().await
    }

    /// Freezes it, like `kill -STOP`: it does not answer, and its connections stay open.
    ///
    /// # Errors
    /// If it was given by an address, or is not running.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        self.body()?.freeze().await.map_err(|message| self.error(message))
    }

    /// Thaws it.
    ///
    /// # Errors
    /// If it was given by an address, or is not running.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        self.body()?.thaw().await.map_err(|message| self.error(message))
    }

    /// Checks that it answers; the error says what is wrong.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.0.service.ready(self.0.address).await
    }

    fn body(&self) -> Result<&dyn Body, ServerError> {
        self.0
            .body
            .as_deref()
            .ok_or_else(|| self.error("somebody else runs it; it is not ours to stop".to_owned()))
    }

    async fn answers(&self) -> Result<(), ServerError> {
        let mut last = "it did not answer".to_owned();
        let waiting = async {
            loop {
                if let Some(obituary) = self.body()?.obituary().await {
                    return Err(self.error(format!("it ended while starting:\n{obituary}")));
                }
                match self.0.service.ready(self.0.address).await {
                    Ok(()) => return Ok(()),
                    Err(reason) => last = reason,
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let outcome = tokio::time::timeout(START, waiting).await;
        outcome.unwrap_or_else(|_| Err(self.error(format!("not ready after {START:?}: {last}"))))
    }

    pub(crate) fn error(&self, message: String) -> ServerError {
        ServerError { name: self.0.name, address: self.0.address, message }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.0.name)
            .field("address", &self.0.address)
            .finish_non_exhaustive()
    }
}
