//! A server that was obtained.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::service::Service;

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(30);

/// A server that answers, or did when it was obtained.
///
/// Clones are the same server. If it was started by the [`Testbed`](crate::Testbed), it is stopped when the last of them
/// is dropped.
#[derive(Clone)]
pub struct Server(Arc<Parts>);

struct Parts {
    name: &'static str,
    url: String,
    address: SocketAddr,
    service: Arc<dyn Service>,
    body: Option<Box<dyn Body>>,
}

/// What runs a server: a process, a container.
#[async_trait]
pub(crate) trait Body: Send + Sync {
    async fn kill(&self) -> Result<(), String>;
    /// Starts it again, without waiting until it answers.
    async fn start(&self) -> Result<(), String>;
    async fn freeze(&self) -> Result<(), String>;
    async fn thaw(&self) -> Result<(), String>;
    /// What it said last, if it is no longer there.
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

impl Server {
    /// A server that `body` runs at `address`; comes back when it answers.
    pub(crate) async fn started(
        name: &'static str,
        address: SocketAddr,
        service: Arc<dyn Service>,
        body: Box<dyn Body>,
    ) -> Result<Self, ServerError> {
        let url = service.url(address);
        let server = Self(Arc::new(Parts { name, url, address, service, body: Some(body) }));
        server.answers().await?;
        Ok(server)
    }

    /// A server that somebody else runs.
    pub(crate) fn given(
        name: &'static str,
        url: String,
        address: SocketAddr,
        service: Arc<dyn Service>,
    ) -> Self {
        Self(Arc::new(Parts { name, url, address, service, body: None }))
    }

    /// How clients name it, with the password if it has one: `redis://127.0.0.1:11434/`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether it can be killed, started, frozen and thawed: not if somebody else runs it.
    pub fn is_controlled(&self) -> bool {
        self.0.body.is_some()
    }

    /// Ends it at once, as `kill -9` does. Does nothing if it has ended.
    ///
    /// # Errors
    /// If somebody else runs it, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.body()?.kill().await.map_err(|message| self.error(message))
    }

    /// Starts it again at the same address, and comes back when it answers. Does nothing if it runs.
    ///
    /// # Errors
    /// If somebody else runs it, it cannot be started, or it does not answer within 30 seconds.
    pub async fn start(&self) -> Result<(), ServerError> {
        self.body()?.start().await.map_err(|message| self.error(message))?;
        self.answers().await
    }

    /// Stops it from answering while its connections stay open, as `kill -STOP` does.
    ///
    /// # Errors
    /// If somebody else runs it, or it does not run.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        self.body()?.freeze().await.map_err(|message| self.error(message))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If somebody else runs it, or it does not run.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        self.body()?.thaw().await.map_err(|message| self.error(message))
    }

    /// What is wrong with it now.
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
