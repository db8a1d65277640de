//! Caddy, a web server that can ask another one whether a request may pass.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;

use crate::configured::{filled, write};
use crate::http::refuses_a_request_without_host;
use crate::service::{Placement, Recipe, Service};
use crate::{Server, Testbed, Unavailable};

static RECIPE: Recipe =
    Recipe { name: "caddy", variable: "", image: "", program: "caddy", package: "caddy", wheel: None };

/// A Caddy with one site.
#[derive(Clone, Debug)]
pub struct Caddy {
    /// The lines of its site, without the address.
    pub site: String,
}

impl Testbed {
    /// Starts a Caddy, as a process; returns when it answers.
    ///
    /// # Errors
    /// If it cannot be installed or started.
    pub async fn caddy(&self, caddy: Caddy) -> Result<Server, Unavailable> {
        self.as_process().start_one(&RECIPE, Arc::new(caddy)).await
    }
}

const FILE: &str = "Caddyfile";

impl Caddy {
    /// Its configuration: it has no administrative address, which is the same one for every Caddy, and no certificates.
    fn configuration(&self, place: Placement<'_>) -> String {
        let (host, port, site) = (place.host, place.port, filled(&self.site, place));
        format!(
            "{{\n    admin off\n    auto_https off\n}}\n\
             http://:{port} {{\n    bind {host}\n{site}\n}}\n"
        )
    }
}

#[async_trait]
impl Service for Caddy {
    fn arguments(&self, _place: Placement<'_>) -> Vec<String> {
        ["run", "--config", FILE, "--adapter", "caddyfile"].map(str::to_owned).to_vec()
    }

    fn environment(&self, place: Placement<'_>) -> Vec<(String, String)> {
        // Its directories of data and settings are below these.
        ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name.into(), place.folder.into())).to_vec()
    }

    fn preparation(&self, _program: &Path, place: Placement<'_>) -> Option<Command> {
        Some(write(FILE, &self.configuration(place)))
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        refuses_a_request_without_host(address).await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/")
    }
}
