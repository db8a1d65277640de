//! A few servers that belong together.

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

    /// Their addresses as clients name them.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url().to_owned()).collect()
    }

    /// Whether they can be killed, started, frozen and thawed.
    pub fn is_controlled(&self) -> bool {
        self.servers.iter().all(Server::is_controlled)
    }

    /// Ends all of them at once, as `kill -9` does.
    ///
    /// # Errors
    /// If somebody else runs them, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.kill().await?;
        }
        Ok(())
    }

    /// Starts all of them again at their addresses, and comes back when each answers.
    ///
    /// # Errors
    /// If somebody else runs them, or one cannot be started.
    pub async fn start(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.start().await?;
        }
        Ok(())
    }

    /// Stops all of them from answering while their connections stay open.
    ///
    /// # Errors
    /// If somebody else runs them, or one does not run.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.freeze().await?;
        }
        Ok(())
    }

    /// Lets all of them go on.
    ///
    /// # Errors
    /// If somebody else runs them, or one does not run.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            server.thaw().await?;
        }
        Ok(())
    }
}
