//! The servers in containers, as on most developers' machines.

use anyhow::Result;

use crate::docker::{has_docker, lacks_an_image, registry_answers};
use crate::executables::{Executable, Job, processors, run};
use crate::images;
use crate::settings::Servers;
use crate::step::{NotRun, Totals};

/// Runs the testbed's tests with containers only. If no registry answers, uses images of this system's packages instead of
/// the official ones.
pub(crate) fn test(executables: &[Executable], servers: &Servers, totals: &mut Totals) -> Result<()> {
    if !has_docker() {
        totals
            .not_run
            .push(NotRun { required: false, ..not_run("no Docker daemon listens here".to_owned()) });
        return Ok(());
    }
    if lacks_an_image()
        && !registry_answers()
        && let Err(error) = images::make(servers.install.allowed)
    {
        totals.not_run.push(not_run(format!("no registry answers, and {error}")));
        return Ok(());
    }
    let tests = executables.iter().filter(|test| test.is_test && test.package == "ratelimit-testbed");
    let jobs = tests.map(|test| {
        let mut command = servers.apply_to(test.command());
        command.env("RATELIMIT_ONLY", "docker");
        Job { name: format!("{test} in containers"), command }
    });
    run(jobs.collect(), processors(), totals)
}

fn not_run(why: String) -> NotRun {
    NotRun { what: "servers in containers".to_owned(), why, required: true }
}
