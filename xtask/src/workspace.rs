//! Paths in the workspace, and cargo's metadata.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The directory with the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The directory for build results and the files of these commands.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// cargo, in the workspace's directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// One crate of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    /// Whether it is published for others.
    pub(crate) published: bool,
    /// The servers that its integration tests need, by test; `*` applies to tests that are not named.
    servers: BTreeMap<String, Vec<String>>,
    /// Integration tests that only `cargo xtask test --all` runs, because they take long.
    pub(crate) long: Vec<String>,
}

impl Package {
    /// The servers that this integration test needs.
    pub(crate) fn servers(&self, test: &str) -> &[String] {
        self.servers.get(test).or_else(|| self.servers.get("*")).map_or(&[], Vec::as_slice)
    }
}

/// The crates of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let metadata = metadata(&["--no-deps"])?;
    Ok(list(&metadata["packages"]).iter().map(package).collect())
}

/// The output of `cargo metadata`.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1"]).args(arguments).output();
    let output = output.context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn package(value: &Value) -> Package {
    Package {
        name: text(&value["name"]),
        features: value["features"].as_object().into_iter().flat_map(|map| map.keys().cloned()).collect(),
        published: is_published(value),
        servers: value["metadata"]["servers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(test, names)| (test.clone(), list(names).iter().map(text).collect()))
            .collect(),
        long: list(&value["metadata"]["tests"]["long"]).iter().map(text).collect(),
    }
}

/// The packages of the workspace, in the output of `cargo metadata`, that are published for others.
pub(crate) fn published(metadata: &Value) -> Vec<&Value> {
    let ours = list(&metadata["packages"]).iter().filter(|package| package["source"].is_null());
    ours.filter(|package| is_published(package)).collect()
}

fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// The elements of an array; none if it is not an array.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string; empty if it is not a string.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
