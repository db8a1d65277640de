//! `cargo xtask server-image`: builds the image of ratelimit-server, and tries a container of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::docker::{has_docker, is_present};
use crate::images;
use crate::step::shown;
use crate::workspace::root;

/// Requires a Docker daemon. Base images that are not there and cannot be pulled are made from Debian packages, this machine's
/// toolchain, and the crates that cargo has downloaded; that requires a Debian system and root.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Install debootstrap if it is missing; implied by CI=true.
    #[arg(long)]
    install: bool,
    /// Do not pull base images: make them if they are not there.
    #[arg(long)]
    offline: bool,
    /// Do not build it: only try the image that is there.
    #[arg(long)]
    built: bool,
}

/// The name of the image.
const IMAGE: &str = "ratelimit-server";

/// The base images: their arguments in the Dockerfile, their names, and those that are made in their place.
const BASES: [(&str, &str, &str); 2] = [
    ("BUILD", "rust:1.95-bookworm", "ratelimit-local/rust:1.95-bookworm"),
    ("BASE", "debian:bookworm-slim", "ratelimit-local/debian:bookworm-slim"),
];

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(has_docker(), "no Docker daemon listens on this machine");
    if !arguments.built {
        build(arguments)?;
    }
    attempt()?;
    println!("server-image: {IMAGE} answers over HTTP and the Redis protocol, and ends when it is asked to");
    Ok(())
}

fn build(arguments: &Arguments) -> Result<()> {
    let mut build = docker(&["build", "--file", "examples/server/Dockerfile", "--tag", IMAGE]);
    for (argument, official, local) in BASES {
        if is_present(official) || !is_present(local) && !arguments.offline && pull(official) {
            continue;
        }
        if !is_present(local) {
            match argument {
                "BUILD" => images::make_toolchain(local, arguments.install)?,
                _ => images::make_debian(local, &["ca-certificates"], arguments.install)?,
            }
        }
        build.arg("--build-arg").arg(format!("{argument}={local}"));
    }
    succeeds(build.arg("."))
}

/// A container that is removed at the end.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", &self.0]).stdout(Stdio::null()).status();
    }
}

/// Runs a container as the manifests for Kubernetes do, asks it, and ends it.
fn attempt() -> Result<()> {
    let mut run = docker(&["run", "--detach", "--read-only", "--cap-drop", "ALL"]);
    run.args(["--security-opt", "no-new-privileges", "--publish", "127.0.0.1::8080"]);
    let container = Container(printed(run.args(["--publish", "127.0.0.1::6380", IMAGE, "--linger", "1s"]))?);
    let id = &container.0;
    let port = |number: &str| printed(&mut docker(&["port", id, number]));
    let (http, redis) = (port("8080")?, port("6380")?);
    wait_for(&http).with_context(|| printed(&mut docker(&["logs", id])).unwrap_or_default())?;
    let user = printed(&mut docker(&["top", id, "-eo", "pid,uid,args"]))?;
    ensure!(
        user.lines().skip(1).all(|line| line.split_whitespace().nth(1) == Some("65532")),
        "it runs as another user: {user}"
    );
    let body = r#"{"policy": "requests", "key": "user:7", "cost": 10}"#;
    let check = format!(
        "POST /v1/check HTTP/1.1\r\nhost: {http}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    for status in ["200", "429"] {
        let answer = ask(&http, &check)?;
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "expected {status}: {answer}");
    }
    let answer = ask(&redis, "RL.CHECK requests user:8\r\nQUIT\r\n")?;
    ensure!(answer.starts_with("*5\r\n:0\r\n:10\r\n:9\r\n"), "expected 9 of 10: {answer}");
    printed(&mut docker(&["stop", "-t", "60", id]))?;
    let code = printed(&mut docker(&["inspect", "--format", "{{.State.ExitCode}}", id]))?;
    ensure!(code == "0", "it ended with {code}");
    Ok(())
}

/// Waits until the server in the container is ready.
fn wait_for(address: &str) -> Result<()> {
    let request = "GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for _ in 0..300 {
        if ask(address, request).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("the container is not ready after half a minute")
}

/// Sends this, and reads until the server closes the connection.
fn ask(address: &str, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn docker(arguments: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(arguments).current_dir(root());
    command
}

fn pull(image: &str) -> bool {
    let pulled = Command::new("timeout").args(["300", "docker", "pull", "--quiet", image]).output();
    pulled.is_ok_and(|output| output.status.success())
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| shown(command))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// What the command prints, without the end of its line.
fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| shown(command))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {error}", shown(command), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
