//! `cargo xtask rust-version`: builds the published crates with their minimum Rust versions.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::step::{Totals, run as command};
use crate::workspace::{metadata, published, root, target, text};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Do not install toolchains.
    #[arg(long)]
    offline: bool,
}

/// A build that has to succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) package: String,
    /// The features to enable; all others, including the default ones, are off.
    pub(crate) features: Vec<String>,
    /// The release of Rust: `1.88`.
    pub(crate) rust: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let builds = builds(&metadata(&["--no-deps"])?);
    let mut releases: Vec<&str> = builds.iter().map(|build| build.rust.as_str()).collect();
    releases.sort_unstable();
    releases.dedup();
    if !arguments.offline {
        for release in releases {
            let mut install = rustup(["toolchain", "install", release, "--profile", "minimal"]);
            command(&mut install, &mut Totals::default())
                .with_context(|| format!("no toolchain {release}"))?;
        }
    }
    let mut failures = Vec::new();
    for build in &builds {
        let mut check = rustup(["run", &build.rust, "cargo", "check", "--package"]);
        check.args([&build.package, "--lib", "--no-default-features", "--features"]);
        check.arg(build.features.join(",")).arg("--target-dir").arg(target().join("rust-version"));
        if command(&mut check, &mut Totals::default()).is_err() {
            failures.push(format!("{} with {:?} and Rust {}", build.package, build.features, build.rust));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("these do not build: {}", failures.join(", "))
}

/// Each published crate with all of its features. Features that require a newer Rust than the crate are built separately.
pub(crate) fn builds(metadata: &Value) -> Vec<Build> {
    let mut builds = Vec::new();
    for package in published(metadata) {
        let build = |features, rust| Build { package: text(&package["name"]), features, rust };
        let greedy = &package["metadata"]["rust-version-of-features"];
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        let modest = features.filter(|name| *name != "default" && greedy[name.as_str()].is_null());
        builds.push(build(modest.cloned().collect(), text(&package["rust_version"])));
        for (feature, rust) in greedy.as_object().into_iter().flatten() {
            builds.push(build(vec![feature.clone()], text(rust)));
        }
    }
    builds
}

fn rustup<const N: usize>(arguments: [&str; N]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").args(arguments);
    rustup
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Build, builds};

    #[test]
    fn a_feature_that_needs_a_newer_rust_is_built_by_itself() {
        let package = |publish| {
            json!({
                "name": "one", "publish": publish, "source": null, "rust_version": "1.88",
                "features": { "default": [], "a": [], "b": [], "c": [] },
                "metadata": { "rust-version-of-features": { "b": "1.94" } },
            })
        };
        let built = builds(&json!({ "packages": [package(json!(null)), package(json!([]))] }));
        let build = |features: &[&str], rust: &str| Build {
            package: "one".to_owned(),
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            rust: rust.to_owned(),
        };
        assert_eq!(built, [build(&["a", "c"], "1.88"), build(&["b"], "1.94")]);
    }
}
