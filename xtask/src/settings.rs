//! Passes the settings for servers from the command line to the environment of the tests.

use std::process::Command;

use clap::Args;
use ratelimit_testbed::{Settings, Testbed, images};

use crate::docker::{has_docker, has_no_image};

/// The option of the commands that need servers or other programs.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Install {
    /// Install the Debian package of what is not available otherwise; implied by CI=true.
    #[arg(long = "install")]
    pub(crate) allowed: bool,
}

impl Install {
    /// The command with this option in its environment.
    pub(crate) fn apply_to(self, mut command: Command) -> Command {
        if self.allowed {
            command.env("RATELIMIT_INSTALL", "1");
        }
        command
    }

    /// A testbed for this process.
    pub(crate) fn testbed(self) -> Testbed {
        let mut settings = Settings::from_env();
        settings.install |= self.allowed;
        Testbed::new(settings)
    }
}

/// Options of the commands that run tests on servers.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Servers {
    /// Run this image instead of the official one, in a Docker daemon: redis=NAME.
    #[arg(long = "image", value_name = "SERVER=IMAGE", value_parser = parse_image)]
    images: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) install: Install,
    /// Fail if something cannot run because a server is not available; implied by CI=true. Only servers in containers may
    /// be left out, where no Docker daemon runs.
    #[arg(long)]
    strict: bool,
}

fn parse_image(text: &str) -> Result<(String, String), String> {
    let known = images();
    match text.split_once('=') {
        Some((server, image)) if known.contains(&server) && !image.is_empty() => {
            Ok((server.to_owned(), image.to_owned()))
        }
        _ => Err(format!("write SERVER=IMAGE; the servers are {}", known.join(", "))),
    }
}

impl Servers {
    /// Whether it is a failure if something cannot run.
    pub(crate) fn are_strict(&self) -> bool {
        self.strict || std::env::var("CI").is_ok_and(|value| value == "true")
    }

    /// The command with these options in its environment. If no image can be had, it starts processes at once: otherwise
    /// it would ask the registry again for each server.
    pub(crate) fn apply_to(&self, command: Command) -> Command {
        let mut command = self.install.apply_to(command);
        let settings = Settings::from_env();
        let is_free = settings.only.is_none() && settings.images.is_empty() && self.images.is_empty();
        if is_free && has_docker() && has_no_image() {
            command.env("RATELIMIT_ONLY", "process");
        }
        for (server, image) in &self.images {
            let name = server.to_uppercase().replace('-', "_");
            command.env(format!("RATELIMIT_{name}_IMAGE"), image);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::parse_image;

    #[test]
    fn an_image_belongs_to_a_known_server() {
        for text in ["redis=redis:8", "redis-cluster=valkey/valkey:9", "postgres-17=postgres:17"] {
            let (server, image) = parse_image(text).expect("a known server");
            assert_eq!(format!("{server}={image}"), text);
        }
        for text in ["valkey=valkey/valkey:9", "redsi=redis:8", "twemproxy=x", "redis=", "redis"] {
            let error = parse_image(text).expect_err("no known server");
            assert!(error.contains("redis, redis-cluster") && error.contains("valkey-9"), "{error}");
        }
    }
}
