//! `cargo xtask images`: images of the servers from Debian packages.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::docker::has_docker;

/// Requires a Debian system, root and a Docker daemon. The images are used automatically if no other image is present.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Install debootstrap if it is missing; implied by CI=true.
    #[arg(long)]
    install: bool,
}

/// The packages in the images, and their names.
const IMAGES: &[(&str, &str)] = &[
    ("redis-server", "ratelimit-local/redis:7"),
    ("memcached", "ratelimit-local/memcached:1.6"),
    ("postgresql", "ratelimit-local/postgres:15"),
];

/// The commands in `/usr/local/bin` of the images.
const COMMANDS: &[(&str, &str)] = &[("postgres", include_str!("images/postgres.sh"))];

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(has_docker(), "no Docker daemon listens on this machine");
    make(arguments.install)
}

/// Builds them.
pub(crate) fn make(may_install: bool) -> Result<()> {
    if !exists("debootstrap") {
        let allowed = may_install || std::env::var("CI").is_ok_and(|value| value == "true");
        ensure!(allowed, "there is no debootstrap; install it, or use --install");
        println!("images: installing debootstrap");
        let script = "apt-get update -q && apt-get install -q -y --no-install-recommends debootstrap";
        sh(script, &[])?;
    }
    let packages: Vec<&str> = IMAGES.iter().map(|(package, _)| *package).collect();
    let mut arguments = vec![packages.join(",")];
    arguments.extend(IMAGES.iter().map(|(_, image)| (*image).to_owned()));
    sh(include_str!("images.sh"), &arguments)
}

fn exists(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$1\" > /dev/null", "sh", program])
        .status()
        .is_ok_and(|s| s.success())
}

fn sh(script: &str, arguments: &[String]) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "images"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    for (name, text) in COMMANDS {
        command.env(format!("COMMAND_{name}"), text);
    }
    let status = command.status().context("sh")?;
    if !status.success() {
        bail!("the images could not be made; this needs a Debian system and root");
    }
    Ok(())
}
