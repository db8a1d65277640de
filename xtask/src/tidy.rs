//! Properties of this repository that no compiler checks.

mod circles;
mod guides;
mod published;
mod rust_version;

use std::fs;
use std::path::{Path, PathBuf};

use spdx::{Expression, Licensee, ParseMode};

use crate::links::targets;
use crate::workspace::{cargo, list, metadata, root, text};

/// The maximum number of lines of a file that is still easy to follow.
const MOST_LINES: usize = 500;

/// Crates that do I/O, or exist for it.
const IO: &[&str] = &[
    "async-std",
    "deadpool",
    "hyper",
    "memcache",
    "mio",
    "redis",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tokio",
    "tokio-postgres",
];

#[test]
fn every_source_file_begins_with_a_comment() {
    let starts = [("rs", &["//! ", "// "][..]), ("sh", &["# ", "#!"]), ("lua", &["-- "]), ("sql", &["-- "])];
    check(|path| {
        let start = starts.iter().find(|(extension, _)| has_extension(path, extension));
        let first = read(path).lines().next().unwrap_or_default().to_owned();
        start.is_none_or(|(_, starts)| starts.iter().any(|start| first.starts_with(start)))
    });
}

#[test]
fn no_file_is_too_long() {
    let sources = ["rs", "sh", "lua", "sql", "md"];
    check(|path| {
        !sources.iter().any(|extension| has_extension(path, extension))
            || read(path).lines().take_while(|line| !line.starts_with(MEASURED)).count() <= MOST_LINES
    });
}

/// Begins generated figures, which do not count as text.
const MEASURED: &str = "<!-- results: written by";

#[test]
fn links_between_documents_resolve() {
    let mut broken = Vec::new();
    for path in files().into_iter().filter(|path| has_extension(path, "md")) {
        let page = read(&path);
        for link in targets(&page).into_iter().map(|place| &page[place]) {
            let file = link.split('#').next().unwrap_or_default();
            let is_elsewhere = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
            if !is_elsewhere && !path.parent().unwrap_or(&path).join(file).exists() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links to nowhere:\n{}", broken.join("\n"));
}

#[test]
fn core_does_no_io() {
    let arguments = ["tree", "--package", "ratelimit-core", "--edges", "normal", "--no-default-features"];
    let output =
        cargo().args(arguments).args(["--prefix", "none", "--format", "{p}"]).output().expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(tree.starts_with("ratelimit-core "), "{tree}");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<&str> = names.filter(|name| IO.contains(name)).collect();
    assert!(found.is_empty(), "the core depends on {found:?}");
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let metadata = metadata(&["--all-features"]).expect("cargo metadata");
    let packages = list(&metadata["packages"]);
    assert!(packages.len() > 10, "only {} packages", packages.len());
    let permissive = permissive();
    let is_permissive = |license: &str| {
        // An old syntax has `/` for `OR`.
        Expression::parse_mode(license, ParseMode::LAX).is_ok_and(|choices| {
            choices.evaluate(|one| permissive.iter().any(|licensee| licensee.satisfies(one)))
        })
    };
    assert!(!is_permissive("MIT AND GPL-3.0-only"));
    let others = packages.iter().map(|package| (text(&package["name"]), text(&package["license"])));
    let others: Vec<_> = others.filter(|(_, license)| !is_permissive(license)).collect();
    assert!(others.is_empty(), "these licences are not known to be permissive: {others:?}");
}

/// Asserts that every file satisfies `is_right`.
fn check(is_right: impl Fn(&Path) -> bool) {
    let files = files();
    assert!(files.len() > 30, "only {} files", files.len());
    let wrong: Vec<String> =
        files.iter().filter(|path| !is_right(path)).map(|path| path.display().to_string()).collect();
    assert!(wrong.is_empty(), "not so in:\n{}", wrong.join("\n"));
}

/// All files of the repository except build results.
fn files() -> Vec<PathBuf> {
    let mut folders = vec![root()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let name = entry.file_name();
            if name == "target" || name == ".git" {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Permissive licences: those that deny.toml allows.
fn permissive() -> Vec<Licensee> {
    let rules: toml::Value = toml::from_str(&read(&root().join("deny.toml"))).expect("deny.toml");
    let allowed = rules["licenses"]["allow"].as_array().expect("the allowed licences");
    let names = allowed.iter().filter_map(toml::Value::as_str);
    names.map(|name| Licensee::parse(name).expect("a licence")).collect()
}
