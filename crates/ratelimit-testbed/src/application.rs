//! A program under test that is an HTTP server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::Signal;

use crate::configured::filled;
use crate::server::Server;
use crate::service::{Placement, Service};
use crate::{ServerError, process};

/// A program that is an HTTP server.
///
/// ```
/// let service = ratelimit_testbed::Application {
///     program: "/usr/bin/python3".into(),
///     arguments: ["-m", "http.server", "<port>", "--bind", "127.0.0.1"].map(String::from).to_vec(),
///     environment: Vec::new(),
///     ready: "/".into(),
/// };
/// ```
#[derive(Clone, Debug)]
pub struct Application {
    /// Its path.
    pub program: PathBuf,
    /// Its arguments: `<port>` stands for the port it is to listen on, `<folder>` for a directory it may write to, in which
    /// it runs.
    pub arguments: Vec<String>,
    /// Variables for it; `<port>` and `<folder>` as above.
    pub environment: Vec<(String, String)>,
    /// The path that it answers with success once it is ready.
    pub ready: String,
}

impl Application {
    /// Starts it as a process; returns when it is ready. It is asked to end (`SIGTERM`) when the last clone is dropped, and
    /// killed if that takes longer than 10 seconds.
    ///
    /// # Errors
    /// If it cannot be started, or does not become ready.
    pub async fn start(self) -> Result<Server, ServerError> {
        let program = self.program.clone();
        let outcome = process::start_one("application", &program, Arc::new(self)).await;
        outcome.map_err(|message| ServerError::of("application", None, message))
    }
}

#[async_trait]
impl Service for Application {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        self.arguments.iter().map(|argument| filled(argument, place)).collect()
    }

    fn environment(&self, place: Placement<'_>) -> Vec<(String, String)> {
        self.environment.iter().map(|(name, value)| (name.clone(), filled(value, place))).collect()
    }

    fn farewell(&self) -> Signal {
        Signal::TERM
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        crate::http::answers(address, &self.ready).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/")
    }
}
