//! The tests as executables: built together, then run several at a time.
//!
//! `cargo test` runs one executable after another, and most of these wait for servers and timeouts rather than for the
//! processor.
#![allow(clippy::disallowed_methods, reason = "tells people how long a test took")]

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::step::{Printed, Totals, shown};
use crate::workspace::{cargo, list, target, text};

/// An executable that cargo has built.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    pub(crate) package: String,
    /// The directory of its crate.
    folder: PathBuf,
    /// The name of the integration test or example; for unit tests the name of the crate.
    pub(crate) name: String,
    /// Whether it runs tests; it may also be an example.
    pub(crate) is_test: bool,
    /// Whether it runs unit tests, of a library or a program.
    pub(crate) is_unit_tests: bool,
    pub(crate) path: PathBuf,
}

impl Executable {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command
    }
}

/// `ratelimit-redis: faults`, `ratelimit-redis: unit tests`.
impl fmt::Display for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_unit_tests { "unit tests" } else { &self.name };
        write!(f, "{}: {name}", self.package)
    }
}

/// Builds the tests that `selection` selects for cargo, with all features.
pub(crate) fn build(selection: &[&str]) -> Result<Vec<Executable>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--all-features", "--message-format", "json-render-diagnostics"]);
    command.args(selection);
    executables(&mut command)
}

/// The executables that a command of cargo builds.
pub(crate) fn executables(command: &mut Command) -> Result<Vec<Executable>> {
    println!("$ {}", shown(command));
    let output = command.stderr(Stdio::inherit()).output().context("cargo test")?;
    ensure!(output.status.success(), "the tests do not build");
    let lines = String::from_utf8(output.stdout).context("what cargo test prints")?;
    Ok(lines.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect())
}

fn executable(message: &Value) -> Option<Executable> {
    let path = message["executable"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let kind = list(&message["target"]["kind"]).first().map(text)?;
    let is_test = message["profile"]["test"] == true;
    Some(Executable {
        package: package(message["package_id"].as_str()?)?,
        folder: folder.to_owned(),
        name: text(&message["target"]["name"]),
        is_test,
        is_unit_tests: is_test && kind != "test",
        path: path.into(),
    })
}

/// The name in a crate's identifier: `…/folder#name@version`, or `…/name#version`.
fn package(id: &str) -> Option<String> {
    let (folder, rest) = id.rsplit_once('#')?;
    let name = rest.split_once('@').map_or_else(|| folder.rsplit('/').next(), |(name, _)| Some(name))?;
    Some(name.to_owned())
}

/// A command that runs tests.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// The number of processors.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A running job.
struct Running {
    name: String,
    child: Child,
    start: Instant,
    /// The file with its output.
    log: PathBuf,
}

/// The interval for checking the jobs.
const POLL: Duration = Duration::from_millis(50);

/// The interval for listing the running jobs.
const REMINDER: Duration = Duration::from_secs(30);

/// Runs the jobs, this many at a time, and counts their results. Shows the output of those that fail.
pub(crate) fn run(mut jobs: Vec<Job>, workers: usize, totals: &mut Totals) -> Result<()> {
    if let [only] = jobs.as_mut_slice() {
        return crate::step::run(&mut only.command, totals);
    }
    let folder = target().join("test-output");
    fs::create_dir_all(&folder)?;
    let (count, mut done) = (jobs.len(), 0);
    println!("{count} programs, {workers} at a time; what they print is in {}", folder.display());
    let mut waiting = jobs.into_iter();
    let mut running: Vec<Running> = Vec::new();
    let mut failed = Vec::new();
    let mut reminded = Instant::now();
    while done < count {
        while running.len() < workers
            && let Some(job) = waiting.next()
        {
            running.push(job.start(&folder)?);
        }
        std::thread::sleep(POLL);
        for index in (0..running.len()).rev() {
            if let Some(status) = running[index].child.try_wait()? {
                done += 1;
                failed.extend(running.swap_remove(index).conclude(status, (done, count), totals)?);
            }
        }
        if reminded.elapsed() > REMINDER {
            reminded = Instant::now();
            for Running { name, start, .. } in &running {
                println!("         {:7.1} s  {name} is running", start.elapsed().as_secs_f64());
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

impl Job {
    fn start(mut self, folder: &Path) -> Result<Running> {
        let log = folder.join(self.name.replace(": ", "-").replace([' ', '/'], "-")).with_extension("log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        self.command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = self.command.spawn().with_context(|| shown(&self.command))?;
        Ok(Running { name: self.name, child, start: Instant::now(), log })
    }
}

impl Running {
    /// Reports how it ended. If it failed, returns what its tests print about that.
    fn conclude(
        self,
        status: ExitStatus,
        (done, count): (usize, usize),
        totals: &mut Totals,
    ) -> Result<Option<String>> {
        let Self { name, start, log, .. } = self;
        let printed = fs::read(&log).with_context(|| log.display().to_string())?;
        let printed = String::from_utf8_lossy(&printed);
        let mut tests = Printed::default();
        printed.lines().for_each(|line| tests.read(line));
        let Printed { totals: counted, failures, .. } = tests;
        let took = start.elapsed().as_secs_f64();
        let word = match status.success() {
            true if counted.passed == 0 => "nothing was run",
            true => "ok",
            false => "FAILED",
        };
        println!(
            "[{done:2}/{count}] {took:7.1} s  {name}: {word}, {} passed, {} failed",
            counted.passed, counted.failed
        );
        *totals += counted;
        if status.success() {
            return Ok(None);
        }
        println!("{printed}");
        Ok(Some(format!("{name} ended with {status}\n{}", failures.join("\n"))))
    }
}

#[cfg(test)]
mod tests {
    use super::package;

    #[test]
    fn crates_are_named_by_their_id_or_else_by_their_folder() {
        let id = "path+file:///somewhere/examples/grpc#grpc-example@0.1.0";
        assert_eq!(package(id).as_deref(), Some("grpc-example"));
        assert_eq!(package("path+file:///somewhere/ratelimit-core#0.1.0").as_deref(), Some("ratelimit-core"));
    }
}
