//! A few servers that are controlled together.

use crate::server::{Server, ServerError};

/// A few servers that are stopped and started together.
#[derive(Clone, Debug)]
pub struct Group {
    servers: Vec<Server>,
}

impl Group {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self { servers }
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Their addresses for clients.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url().to_owned()).collect()
    }

    /// Whether they can be killed, started, frozen and thawed.
    pub fn is_controlled(&self) -> bool {
        self.servers.iter().all(Server::is_controlled)
    }

    /// Kills all of them, like `kill -9`.
    ///
    /// # Errors
    /// If they were given by an address, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.kill().await?;
        }
        Ok(())
    }

    /// Starts all of them again at their addresses; returns when each answers.
    ///
    /// # Errors
    /// If they were given by an address, or one cannot be started.
    pub async fn start(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.start().await?;
        }
        Ok(())
    }

    /// Freezes all of them: they do not answer, and their connections stay open.
    ///
    /// # Errors
    /// If they were given by an address, or one is not running.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.freeze().await?;
        }
        Ok(())
    }

    /// Thaws all of them.
    ///
    /// # Errors
    /// If they were given by an address, or one is not running.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.thaw().await?;
        }
        Ok(())
    }
}
