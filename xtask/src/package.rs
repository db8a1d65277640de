//! `cargo xtask package`: the published crates as on crates.io.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::step::{Totals, run as command};
use crate::workspace::{cargo, metadata, published, target, text};

/// The files that each package must have at its root.
const NEEDED: &[&str] = &["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The maximum size of a package in bytes; a larger one contains something that does not belong there.
const LARGEST: u64 = 1 << 20;

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Check the requirements of a release: no uncommitted changes, and the URL of the repository.
    #[arg(long)]
    release: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    pack(arguments, &mut Totals::default())
}

/// Makes the packages, builds each from its contents, and checks them.
pub(crate) fn pack(arguments: &Arguments, totals: &mut Totals) -> Result<()> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = published(&metadata);
    let mut package = cargo();
    package.arg("package").args(packages.iter().flat_map(|one| ["--package".to_owned(), text(&one["name"])]));
    if arguments.release {
        for one in &packages {
            let address = text(&one["repository"]);
            ensure!(
                !address.is_empty(),
                "fill in `repository` under [workspace.package] in Cargo.toml first"
            );
        }
    } else {
        package.arg("--allow-dirty");
    }
    // Otherwise each package would rebuild all of its dependencies in its own directory.
    package.env("CARGO_TARGET_DIR", target());
    package.args(["--config", "profile.dev.debug=\"line-tables-only\""]);
    forget_earlier(&packages)?;
    command(&mut package, totals)?;
    println!("{:28} {:>8} {:>6}", "package", "bytes", "files");
    let mut problems = Vec::new();
    for one in packages {
        let name = format!("{}-{}", text(&one["name"]), text(&one["version"]));
        if let Err(error) = look(&name) {
            problems.push(format!("{name}: {error:#}"));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"))
}

/// Removes what Cargo has kept of earlier packages of the same names and versions. It takes a version for something that
/// never changes, and would build the other packages with the sources of an earlier run.
fn forget_earlier(packages: &[&Value]) -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let unpacked = home.map(|home| home.join("registry/src"));
    let folders = unpacked.iter().flat_map(|folder| entries(folder));
    let sources: Vec<PathBuf> = folders.flat_map(|registry| entries(&registry)).collect();
    let built = entries(&target().join("debug/.fingerprint"));
    for package in packages {
        let name = text(&package["name"]);
        let versioned = format!("{name}-{}", text(&package["version"]));
        let is_of_it = |path: &&PathBuf| path.file_name().is_some_and(|file| *file == *versioned);
        let is_built = |path: &&PathBuf| {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            file.rsplit_once('-').is_some_and(|(built, _)| built == name)
        };
        for folder in sources.iter().filter(is_of_it).chain(built.iter().filter(is_built)) {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
    }
    Ok(())
}

/// The entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Prints a package's size and checks the files that it was built from.
fn look(name: &str) -> Result<()> {
    let folder = target().join("package");
    let packed = folder.join(format!("{name}.crate"));
    let bytes = fs::metadata(&packed).with_context(|| packed.display().to_string())?.len();
    let unpacked = folder.join(name);
    println!("{name:28} {bytes:>8} {:>6}", count(&unpacked)?);
    ensure!(bytes <= LARGEST, "has {bytes} bytes, more than {LARGEST}: leave something out by `exclude`");
    complete(&unpacked)
}

/// The number of files in a directory.
fn count(folder: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}

/// Checks that the files that a package needs exist and are not links.
fn complete(unpacked: &Path) -> Result<()> {
    for file in NEEDED {
        let found = fs::symlink_metadata(unpacked.join(file)).with_context(|| format!("has no {file}"))?;
        ensure!(found.is_file() && found.len() > 0, "{file} is no file, or an empty one");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{NEEDED, complete, count};

    #[test]
    fn a_package_with_a_linked_licence_is_incomplete() {
        let folder = std::env::temp_dir().join(format!("ratelimit-package-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).expect("a folder");
        for file in NEEDED.iter().chain(&["src/lib.rs"]) {
            fs::write(folder.join(file), "text").expect("a file");
        }
        assert_eq!(count(&folder).expect("files"), NEEDED.len() + 1);
        complete(&folder).expect("complete");
        fs::remove_file(folder.join("LICENSE-MIT")).expect("removed");
        assert!(complete(&folder).expect_err("missing").to_string().contains("LICENSE-MIT"));
        std::os::unix::fs::symlink("LICENSE-APACHE", folder.join("LICENSE-MIT")).expect("a link");
        assert!(complete(&folder).is_err());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
