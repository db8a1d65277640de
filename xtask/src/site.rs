//! `cargo xtask site`: the pages of `docs` as a searchable site.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::step::{Totals, run as step};
use crate::workspace::{cargo, root, target};

/// The version of mdBook that the site is built with.
const VERSION: &str = "0.5.4";

/// Builds the site into `target/site`. Fetches mdBook if it is not installed.
pub(crate) fn run() -> Result<()> {
    let mut build = Command::new(mdbook()?);
    build.arg("build").arg(root()).arg("--dest-dir").arg(target().join("site"));
    step(&mut build, &mut Totals::default())?;
    println!("{}", target().join("site").join("index.html").display());
    Ok(())
}

/// mdBook as installed, or as built by this command.
fn mdbook() -> Result<PathBuf> {
    let is_right = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    };
    if is_right("mdbook") {
        return Ok("mdbook".into());
    }
    let folder = target().join("tools");
    let built = folder.join("bin").join("mdbook");
    if !is_right(&built.to_string_lossy()) {
        println!("building mdBook {VERSION}, which takes a few minutes");
        let mut install = cargo();
        install.args(["install", "mdbook", "--locked", "--version", VERSION, "--root"]).arg(&folder);
        step(&mut install, &mut Totals::default())?;
    }
    Ok(built)
}
