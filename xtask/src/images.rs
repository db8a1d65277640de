//! `cargo xtask images`: images of the servers from Debian packages.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::docker::has_docker;
use crate::workspace::{cargo, root};

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
    need_debootstrap(may_install)?;
    let packages: Vec<&str> = IMAGES.iter().map(|(package, _)| *package).collect();
    let mut arguments = vec![packages.join(",")];
    arguments.extend(IMAGES.iter().map(|(_, image)| (*image).to_owned()));
    sh(include_str!("images.sh"), &arguments, COMMANDS)
}

/// Builds one image with these packages.
pub(crate) fn make_debian(image: &str, packages: &[&str], may_install: bool) -> Result<()> {
    need_debootstrap(may_install)?;
    sh(include_str!("images.sh"), &[packages.join(","), image.to_owned()], &[])
}

/// Builds an image with a C compiler, this machine's Rust toolchain, and the crates that the workspace needs.
pub(crate) fn make_toolchain(image: &str, may_install: bool) -> Result<()> {
    let base = format!("{image}-base");
    make_debian(&base, &["ca-certificates", "gcc", "libc6-dev"], may_install)?;
    let fetched = cargo().args(["fetch", "--locked"]).status().context("cargo fetch")?;
    ensure!(fetched.success(), "cargo fetch ended with {fetched}");
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output()?;
    let toolchain = String::from_utf8_lossy(&rustc.stdout).trim().to_owned();
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
    sh(include_str!("images/toolchain.sh"), &[base, image.to_owned(), toolchain, home], &[])
}

fn need_debootstrap(may_install: bool) -> Result<()> {
    if !exists("debootstrap") {
        let allowed = may_install || std::env::var("CI").is_ok_and(|value| value == "true");
        ensure!(allowed, "there is no debootstrap; install it, or use --install");
        println!("images: installing debootstrap");
        let script = "apt-get update -q && apt-get install -q -y --no-install-recommends debootstrap";
        sh(script, &[], &[])?;
    }
    Ok(())
}

fn exists(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$1\" > /dev/null", "sh", program])
        .status()
        .is_ok_and(|s| s.success())
}

fn sh(script: &str, arguments: &[String], commands: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "images"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    for (name, text) in commands {
        command.env(format!("COMMAND_{name}"), text);
    }
    let status = command.status().context("sh")?;
    if !status.success() {
        bail!("an image could not be made; this needs a Debian system and root");
    }
    Ok(())
}
