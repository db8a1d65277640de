//! nginx, a web server that can ask another one whether a request may pass.

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
    Recipe { name: "nginx", variable: "", image: "", program: "nginx", package: "nginx", wheel: None };

/// An nginx with one server.
#[derive(Clone, Debug)]
pub struct Nginx {
    /// The lines of its `server` block, without `listen`.
    pub server: String,
}

impl Testbed {
    /// Starts an nginx, as a process; returns when it answers.
    ///
    /// # Errors
    /// If it cannot be installed or started.
    pub async fn nginx(&self, nginx: Nginx) -> Result<Server, Unavailable> {
        self.as_process().start_one(&RECIPE, Arc::new(nginx)).await
    }
}

const FILE: &str = "nginx.conf";

impl Nginx {
    /// Its configuration: what is written goes into its directory, and the log into that of the testbed.
    fn configuration(&self, place: Placement<'_>) -> String {
        let Placement { host, port, folder } = place;
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let written = kinds.map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n")).concat();
        let server = filled(&self.server, place);
        format!(
            "daemon off;\npid {folder}/nginx.pid;\nerror_log stderr notice;\nworker_processes 2;\n\
             events {{}}\nhttp {{\n    access_log off;\n{written}    \
             server {{\n        listen {host}:{port};\n{server}\n    }}\n}}\n"
        )
    }
}

#[async_trait]
impl Service for Nginx {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        // What it logs before it has read its configuration goes to stderr too.
        let file = format!("{}/{FILE}", place.folder);
        ["-c", &file, "-p", place.folder, "-e", "stderr"].into_iter().map(str::to_owned).collect()
    }

    fn user(&self) -> Option<&'static str> {
        Some("www-data")
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
