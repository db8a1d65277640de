//! The servers in containers: the way that most people's machines take.

use std::process::Command;

use anyhow::Result;

use crate::images;
use crate::settings::{Servers, has_docker};
use crate::step::{Totals, run as command};
use crate::workspace::cargo;

/// Runs the testbed's tests with containers and nothing else. Where no registry answers, images of this system's packages
/// take the place of the official ones.
pub(crate) fn test(servers: &Servers, totals: &mut Totals) -> Result<()> {
    if !has_docker() {
        println!("no Docker daemon listens here: the servers are not tried in containers");
        return Ok(());
    }
    if !images::are_present() && !registry_answers() {
        images::make(servers.install)?;
    }
    let mut tests = cargo();
    tests.args(["test", "--package", "ratelimit-testbed", "--all-features", "--no-fail-fast", "--tests"]);
    servers.tell(&mut tests);
    command(tests.env("RATELIMIT_ONLY", "docker"), totals)
}

/// Whether one of the official images can be had, or is here already.
fn registry_answers() -> bool {
    let mut pull = Command::new("timeout");
    pull.args(["60", "docker", "pull", "--quiet", "redis:7"]).stdout(std::process::Stdio::null());
    println!("asking the registry for redis:7");
    pull.status().is_ok_and(|status| status.success())
}
