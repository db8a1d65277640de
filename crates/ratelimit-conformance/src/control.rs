//! Control over the server, which is restored after a case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{BoxError, Server};

/// A server that the suite controls.
pub(crate) struct Control {
    server: Arc<dyn Server>,
    killed: AtomicBool,
    frozen: AtomicBool,
}

impl Control {
    /// Control over `server`, which is running.
    pub(crate) fn new(server: Arc<dyn Server>) -> Self {
        Self { server, killed: AtomicBool::new(false), frozen: AtomicBool::new(false) }
    }

    pub(crate) async fn kill(&self) -> Result<(), BoxError> {
        self.killed.store(true, Ordering::SeqCst);
        self.server.kill().await?;
        self.frozen.store(false, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) async fn start(&self) -> Result<(), BoxError> {
        self.server.start().await?;
        self.killed.store(false, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) async fn freeze(&self) -> Result<(), BoxError> {
        self.frozen.store(true, Ordering::SeqCst);
        self.server.freeze().await
    }

    pub(crate) async fn thaw(&self) -> Result<(), BoxError> {
        self.server.thaw().await?;
        self.frozen.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Makes the server run again, whatever the case has done.
    pub(crate) async fn restore(&self) -> Result<(), BoxError> {
        if self.frozen.load(Ordering::SeqCst) {
            self.thaw().await?;
        }
        if self.killed.load(Ordering::SeqCst) {
            self.start().await?;
        }
        Ok(())
    }
}
