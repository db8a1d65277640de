//! A Python with packages, for clients and services in that language.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::package::last_lines;
use crate::wheel::kept;
use crate::{Testbed, Unavailable, package, program};

/// A Python with packages, in a virtual environment.
///
/// Environments are created once for each list of packages, and kept in the temporary directory. [`PYTHON_PACKAGES`] is the list of
/// this workspace's tests.
#[derive(Clone, Debug)]
pub struct Python {
    program: PathBuf,
}

const NAME: &str = "python";

/// The packages that the tests of this workspace use: clients for HTTP, Redis and gRPC, and a service.
pub static PYTHON_PACKAGES: [&str; 7] = [
    "fastapi==0.165.0",
    "grpcio==1.85.1",
    "grpcio-health-checking==1.85.1",
    "grpcio-reflection==1.85.1",
    "httpx==0.28.1",
    "redis==8.1.0",
    "uvicorn==0.54.0",
];

impl Testbed {
    /// A Python with these packages (`redis==8.1.0`, …), and what they need.
    ///
    /// # Errors
    /// If there is no such environment yet and installing is not allowed or fails.
    pub async fn python<'a>(
        &self,
        packages: impl IntoIterator<Item = &'a str>,
    ) -> Result<Python, Unavailable> {
        let environment = Environment { packages: packages.into_iter().map(str::to_owned).collect() };
        let list = environment.packages.join(" ");
        let unavailable = |way: &'static str, reason: String| Unavailable {
            name: NAME,
            tried: vec![(way, reason)],
            advice: format!("Set RATELIMIT_INSTALL=1 to fetch the Python packages: {list}."),
        };
        match environment.find() {
            Ok(Some(python)) => return Ok(python),
            Ok(None) if self.may_install() => {}
            Ok(None) => return Err(unavailable("package", "fetching packages is not allowed".to_owned())),
            Err(error) => return Err(unavailable("found", error.to_string())),
        }
        environment.create().await.map_err(|reason| unavailable("package", reason))
    }
}

impl Python {
    /// Its path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a script, and returns what it prints on stdout. It is killed if the future is dropped.
    ///
    /// # Errors
    /// If it cannot be started, or does not end with success: with the last lines of its stderr.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        script: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, String> {
        let mut command = tokio::process::Command::new(&self.program);
        command.arg(script).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let reported = |error: std::io::Error| format!("{}: {error}", script.display());
        let output = command.output().await.map_err(reported)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        let said = last_lines(&String::from_utf8_lossy(&output.stderr), 20);
        Err(format!("{}, {}:\n{printed}{said}", script.display(), output.status))
    }
}

/// A virtual environment.
struct Environment {
    packages: Vec<String>,
}

impl Environment {
    /// It, if it is complete.
    fn find(&self) -> std::io::Result<Option<Python>> {
        let folder = self.folder()?;
        let complete = folder.join(COMPLETE).is_file();
        Ok(complete.then(|| Python { program: folder.join("bin/python") }))
    }

    /// Creates it. If another process is doing so, waits for that one and uses its result.
    async fn create(self) -> Result<Python, String> {
        let python = || program::find("python3").ok_or("there is no python3 on the PATH".to_owned());
        if python().is_err() || !has_venv(&python()?) {
            package::install(NAME, "python3-venv").await?;
        }
        let python = python()?;
        let creating = tokio::task::spawn_blocking(move || self.create_with(&python));
        creating.await.map_err(|error| error.to_string())?
    }

    fn create_with(&self, python: &Path) -> Result<Python, String> {
        let reported = |error: std::io::Error| format!("an environment for Python: {error}");
        let folder = self.folder().map_err(reported)?;
        let lock = File::create(folder.with_extension("lock")).map_err(reported)?;
        lock.lock().map_err(reported)?;
        if let Some(found) = self.find().map_err(reported)? {
            return Ok(found); // another process has created it meanwhile
        }
        eprintln!("{NAME}: fetching the Python packages {}", self.packages.join(" "));
        let mut steps = [Command::new(python), Command::new(folder.join("bin/python"))];
        // A part of an environment may be left of a process that was killed.
        steps[0].args(["-m", "venv", "--clear"]).arg(&folder);
        steps[1].args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        steps[1].arg("--only-binary=:all:").args(&self.packages);
        for step in &mut steps {
            let output = step.stdin(Stdio::null()).output().map_err(reported)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                return Err(format!("creating it failed, {}:\n{}", output.status, last_lines(&said, 8)));
            }
        }
        File::create(folder.join(COMPLETE)).map_err(reported)?;
        self.find()
            .map_err(reported)?
            .ok_or_else(|| "the environment that was just created is gone".to_owned())
    }

    /// Its directory, which depends on the packages.
    fn folder(&self) -> std::io::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        self.packages.hash(&mut hasher);
        let folder = kept()?.join(format!("python-{:016x}", hasher.finish()));
        // An environment whose Python is gone, because the system has a newer one, is created anew.
        if folder.join(COMPLETE).is_file() && !folder.join("bin/python").is_file() {
            fs::remove_file(folder.join(COMPLETE))?;
        }
        Ok(folder)
    }
}

/// The file that an environment has when all its packages are installed.
const COMPLETE: &str = "complete";

/// Whether it can create environments that have pip; Debian has that in a package of its own.
fn has_venv(python: &Path) -> bool {
    let output = Command::new(python).args(["-c", "import venv, ensurepip"]).output();
    output.is_ok_and(|output| output.status.success())
}
