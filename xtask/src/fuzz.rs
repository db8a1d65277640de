//! `cargo xtask fuzz`: runs a fuzz target for long, guided by coverage.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::executables::executables;
use crate::step::shown;
use crate::workspace::{cargo, root, target};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The crate, such as ratelimit-core.
    package: String,
    /// The target: the name of a test in the file `fuzz.rs` of the crate.
    target: String,
    /// How many seconds to run.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// Keep the smallest inputs that cover the same, in the corpus, and remove the others.
    #[arg(long)]
    reduce: bool,
}

/// What makes the compiler count the branches that a run takes, for libFuzzer; no option of the nightly toolchain.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module --cfg fuzzing_libfuzzer \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
     -Cllvm-args=-sanitizer-coverage-stack-depth";

/// The platform, so that the flags are not those of build scripts.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Runs the command.
///
/// `cargo bolero` would do, but it builds all tests of a crate, and those without a fuzz target do not link.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { package, target: name, seconds, reduce } = arguments;
    let folder = root().join("crates").join(package);
    let is_inside = folder.join("src/fuzz.rs").exists();
    let (files, test) = if is_inside { ("src", format!("fuzz::{name}")) } else { ("tests", name.clone()) };
    let corpus = folder.join(files).join("__fuzz__").join(name).join("corpus");
    ensure!(corpus.exists(), "there is no corpus of `{name}` in {}", corpus.display());
    let crashes = corpus.with_file_name("crashes");
    fs::create_dir_all(&crashes)?;

    let path = build(package, is_inside)?;
    let mut command = Command::new(path);
    command.args([test.as_str(), "--exact", "--nocapture", "--quiet", "--test-threads", "1"]);
    command.current_dir(&folder).envs([("BOLERO_TEST_NAME", test.as_str()), ("BOLERO_LIBTEST_HARNESS", "1")]);
    let found = target().join("fuzz/corpus").join(package).join(name);
    fs::create_dir_all(&found)?;
    let options = match reduce {
        true => format!("-merge=1 {} {}", corpus.display(), found.display()),
        false => format!(
            "{} {} -artifact_prefix={}/ -timeout=10 -max_len=2000 -max_total_time={seconds}",
            found.display(),
            corpus.display(),
            crashes.display()
        ),
    };
    command.env("BOLERO_LIBFUZZER_ARGS", options);
    println!("$ {}", shown(&command));
    let status = command.status()?;
    // Remains only if it has a crash in it.
    let _ = fs::remove_dir(&crashes);
    ensure!(status.success(), "`{name}` has failed; the input is in {}", crashes.display());
    println!(
        "inputs that cover something new are in {}; `--reduce` adds them to the corpus",
        found.display()
    );
    Ok(())
}

/// Builds the tests with the fuzz target, and nothing else of the crate.
fn build(package: &str, is_inside: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--all-features", "--profile", "fuzz", "--target", PLATFORM]);
    command.args(["--message-format", "json-render-diagnostics", "--package", package]);
    command.args(if is_inside { &["--lib"][..] } else { &["--test", "fuzz"] });
    command
        .arg("--target-dir")
        .arg(target().join("fuzz"))
        .envs([("RUSTFLAGS", COVERAGE), ("BOLERO_FUZZER", "libfuzzer")]);
    let built = executables(&mut command)?;
    built.into_iter().find(|built| built.is_test).map(|built| built.path).context("no test was built")
}
