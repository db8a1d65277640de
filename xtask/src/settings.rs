//! Passes the settings for servers from the command line to the environment of the tests.

use std::os::unix::net::UnixStream;
use std::process::Command;

use clap::Args;

/// Options of every command that needs servers.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Servers {
    /// Run this image instead of the official one, in a Docker daemon: redis=NAME.
    #[arg(long = "image", value_name = "SERVER=IMAGE", value_parser = parse_image)]
    pub(crate) images: Vec<(String, String)>,
    /// Install the Debian package of a server that is not available otherwise; implied by CI=true.
    #[arg(long)]
    pub(crate) install: bool,
    /// Fail if something cannot run because a server is not available; implied by CI=true.
    #[arg(long)]
    strict: bool,
}

fn parse_image(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((server, image)) if !server.is_empty() && !image.is_empty() => {
            Ok((server.to_owned(), image.to_owned()))
        }
        _ => Err("say which server's image it is: redis=NAME".to_owned()),
    }
}

impl Servers {
    /// Whether it is a failure if something cannot run.
    pub(crate) fn are_strict(&self) -> bool {
        self.strict || std::env::var("CI").is_ok_and(|value| value == "true")
    }

    /// The command with these options in its environment.
    pub(crate) fn apply_to(&self, mut command: Command) -> Command {
        for (server, image) in &self.images {
            let name = server.to_uppercase().replace('-', "_");
            command.env(format!("RATELIMIT_{name}_IMAGE"), image);
        }
        if self.install {
            command.env("RATELIMIT_INSTALL", "1");
        }
        command
    }
}

/// Whether a Docker daemon listens on this machine. If not, its client need not be built.
pub(crate) fn has_docker() -> bool {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    host.strip_prefix("unix://").is_some_and(|path| UnixStream::connect(path).is_ok())
}
