//! No dependency of a published crate requires a newer Rust than the crate.

use std::collections::HashMap;

use crate::rust_version::{Build, builds};
use crate::workspace::{cargo, list, metadata, text};

/// The release of Rust: `1.88` is (1, 88).
type Release = (u32, u32);

#[test]
fn dependencies_need_no_newer_rust_than_the_published_crates_say() {
    let metadata = metadata(&["--all-features"]).expect("cargo metadata");
    let needs: HashMap<String, Release> = list(&metadata["packages"])
        .iter()
        .filter_map(|one| {
            let name = format!("{} v{}", text(&one["name"]), text(&one["version"]));
            Some((name, release(&text(&one["rust_version"]))?))
        })
        .collect();
    let builds = builds(&metadata);
    assert!(builds.len() >= 8, "only {} builds", builds.len());
    let wrong: Vec<String> = builds
        .iter()
        .flat_map(|build| {
            let said = release(&build.rust).expect("a release of Rust");
            dependencies(build)
                .into_iter()
                .filter(|one| needs.get(one).is_some_and(|needed| *needed > said))
                .map(|one| {
                    let Build { package, features, rust } = build;
                    format!("{package} {features:?} says {rust}, and {one} needs {:?}", needs[&one])
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Everything that is built, on any machine, as `name v1.2.3`.
fn dependencies(build: &Build) -> Vec<String> {
    let mut tree = cargo();
    tree.args(["tree", "--package", &build.package, "--edges", "normal,build", "--target", "all"])
        .args(["--no-default-features", "--features", &build.features.join(",")])
        .args(["--prefix", "none", "--format", "{p}"]);
    let output = tree.output().expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut names: Vec<String> =
        lines.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.iter().any(|name| name.starts_with(&build.package)), "{lines}");
    names
}

fn release(text: &str) -> Option<Release> {
    let (major, rest) = text.split_once('.')?;
    Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
}
