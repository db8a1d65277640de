//! Where things are, and what cargo knows about them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The folder with the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The folder for what is built, and for what these commands keep.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// cargo, in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// One crate of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    /// The names of its integration tests.
    pub(crate) tests: Vec<String>,
    /// It is meant for others to use.
    pub(crate) published: bool,
}

/// The crates of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let metadata = metadata(&["--no-deps"])?;
    Ok(list(&metadata["packages"]).iter().map(package).collect())
}

/// What `cargo metadata` says.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1"]).args(arguments).output();
    let output = output.context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn package(value: &Value) -> Package {
    let is_test = |target: &&Value| list(&target["kind"]).iter().any(|kind| kind == "test");
    let targets = list(&value["targets"]);
    Package {
        name: text(&value["name"]),
        features: value["features"].as_object().into_iter().flat_map(|map| map.keys().cloned()).collect(),
        tests: targets.iter().filter(is_test).map(|target| text(&target["name"])).collect(),
        published: list(&value["publish"]).is_empty() && value["publish"].is_null(),
    }
}

/// The elements of an array; none if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
