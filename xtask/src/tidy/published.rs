//! Requirements for publishing a crate.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::read;
use crate::targets::TARGETS;
use crate::workspace::{list, metadata, published, root, text};

#[test]
fn published_crates_have_complete_metadata() {
    each(|package, folder| {
        let manifest = read(&folder.join("Cargo.toml"));
        let inherited = ["version", "edition", "license", "repository"];
        let missing =
            inherited.iter().find(|field| !manifest.contains(&format!("{field}.workspace = true\n")));
        let (keywords, categories) = (list(&package["keywords"]), list(&package["categories"]));
        let docs = &package["metadata"]["docs"]["rs"];
        match () {
            () if missing.is_some() => Err(format!("{missing:?} is not the workspace's")),
            () if text(&package["description"]).is_empty() => Err("no description".to_owned()),
            () if text(&package["rust_version"]).is_empty() => Err("no rust-version".to_owned()),
            () if !(1..=5).contains(&keywords.len()) => Err("1 to 5 keywords".to_owned()),
            () if !(1..=5).contains(&categories.len()) => Err("1 to 5 categories".to_owned()),
            () if docs["all-features"] != true || docs["rustdoc-args"][1] != "docsrs" => {
                Err("docs.rs would not show all features".to_owned())
            }
            () => Ok(()),
        }
    });
}

#[test]
fn published_crates_have_a_readme_that_is_compiled() {
    each(|package, folder| {
        let lines = read(&folder.join("README.md")).lines().count();
        let library = read(&folder.join("src/lib.rs"));
        match () {
            () if package["readme"] != "README.md" => Err("`readme` is not README.md".to_owned()),
            () if !(20..=60).contains(&lines) => Err(format!("README.md has {lines} lines, not 20 to 60")),
            () if !library.contains("#[doc = include_str!(\"../README.md\")]") => {
                Err("the README's examples are not compiled".to_owned())
            }
            () if !library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]") => {
                Err("the docs do not say which feature an item needs".to_owned())
            }
            () => Ok(()),
        }
    });
}

#[test]
fn published_crates_carry_the_licences() {
    each(|_, folder| {
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let licence = read(&root().join(file));
            if licence.is_empty() || read(&folder.join(file)) != licence {
                return Err(format!("{file} is not the workspace's"));
            }
        }
        Ok(())
    });
}

#[test]
fn published_crates_depend_on_published_ones() {
    let metadata = metadata(&["--no-deps"]).expect("cargo metadata");
    let here: Vec<String> = published(&metadata).iter().map(|one| text(&one["name"])).collect();
    each(|package, _| {
        let dependencies = list(&package["dependencies"]).iter().filter(|one| one["path"].is_string());
        for dependency in dependencies {
            let (name, is_released) = (text(&dependency["name"]), dependency["req"] != "*");
            // A dev-dependency without a version is left out of the package.
            if dependency["kind"] == "dev" && !is_released {
                continue;
            }
            if !here.contains(&name) || !is_released {
                return Err(format!("{name} is not published, or named without a version"));
            }
        }
        Ok(())
    });
}

#[test]
fn ci_checks_every_published_crate() {
    let jobs = read(&root().join(".github/workflows/ci.yml"));
    each(|package, _| {
        // On other systems, the kit is built with the stores, and nothing that chooses among the stores is.
        let not_portable = ["ratelimit-store-kit", "ratelimit-stores", "ratelimit-cli"];
        for (job, left_out) in [("portable", &not_portable[..]), ("interfaces", &[]), ("semver", &[])] {
            let (_, rest) =
                jobs.split_once(&format!("\n  {job}:\n")).ok_or(format!("there is no job {job}"))?;
            let names = rest.split("\n\n").next().unwrap_or(rest).split([' ', '\n', ',']);
            let name = text(&package["name"]);
            if !left_out.contains(&name.as_str()) && !names.into_iter().any(|listed| listed == name) {
                return Err(format!("the job {job} in ci.yml leaves it out"));
            }
        }
        Ok(())
    });
}

#[test]
fn every_store_is_a_target_of_the_suite() {
    each(|package, folder| {
        let name = text(&package["name"]);
        // Those that choose among the others are not.
        let is_store = folder.join("tests/conformance.rs").exists()
            && !["ratelimit-conformance", "ratelimit-stores"].contains(&name.as_str());
        match is_store && !TARGETS.iter().any(|target| target.package == name.as_str()) {
            true => Err("it has the suite among its tests, but no row in targets.rs".to_owned()),
            false => Ok(()),
        }
    });
}

/// Asserts that `check` succeeds for every published crate and its directory.
fn each(check: impl Fn(&Value, &Path) -> Result<(), String>) {
    let metadata = metadata(&["--no-deps"]).expect("cargo metadata");
    let packages = published(&metadata);
    assert!(packages.len() >= 8, "only {} published crates", packages.len());
    let wrong: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let problem = check(package, manifest.parent()?).err()?;
            Some(format!("{}: {problem}", text(&package["name"])))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
