//! `cargo xtask fuzz`: runs a fuzz target for long, guided by coverage.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
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
    /// Instead of a run: keep the smallest inputs that cover the same, in the corpus, and remove the others.
    #[arg(long, conflicts_with = "seconds")]
    reduce: bool,
}

/// What makes the compiler count the branches that a run takes, for libFuzzer; no option of the nightly toolchain.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module --cfg fuzzing_libfuzzer \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
     -Cllvm-args=-sanitizer-coverage-stack-depth";

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
    let reduced = target().join("fuzz/reduced");
    let options = match reduce {
        true => {
            let _ = fs::remove_dir_all(&reduced);
            fs::create_dir_all(&reduced)?;
            format!("-merge=1 {} {} {}", reduced.display(), corpus.display(), found.display())
        }
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
    if *reduce {
        ensure!(status.success(), "the corpus of `{name}` stays as it is: libFuzzer ended with {status}");
        return replace(&corpus, &reduced);
    }
    ensure!(status.success(), "`{name}` has failed; the input is in {}", crashes.display());
    println!(
        "inputs that cover something new are in {}; `--reduce` adds them to the corpus",
        found.display()
    );
    Ok(())
}

/// Replaces the inputs of a corpus. Those that stay keep their names.
fn replace(corpus: &Path, inputs: &Path) -> Result<()> {
    let mut new = BTreeMap::new();
    for entry in fs::read_dir(inputs)? {
        let file = entry?.path();
        new.insert(fs::read(&file)?, file);
    }
    ensure!(!new.is_empty(), "no input is left in {}", inputs.display());
    let (mut removed, count) = (0, new.len());
    for entry in fs::read_dir(corpus)? {
        let file = entry?.path();
        if new.remove(&fs::read(&file)?).is_none() {
            fs::remove_file(&file)?;
            removed += 1;
        }
    }
    for (content, file) in &new {
        fs::write(corpus.join(file.file_name().context("a file")?), content)?;
    }
    println!("{}: {removed} removed, {} added, now {count} inputs", corpus.display(), new.len());
    Ok(())
}

/// Builds the tests with the fuzz target, and nothing else of the crate.
fn build(package: &str, is_inside: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--all-features", "--profile", "fuzz"]);
    // With a target, the flags are not those of build scripts.
    command.args(["--target", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    command.args(["--message-format", "json-render-diagnostics", "--package", package]);
    command.args(if is_inside { &["--lib"][..] } else { &["--test", "fuzz"] });
    command
        .arg("--target-dir")
        .arg(target().join("fuzz"))
        .envs([("RUSTFLAGS", COVERAGE), ("BOLERO_FUZZER", "libfuzzer")]);
    let built = executables(&mut command)?;
    built.into_iter().find(|built| built.is_test).map(|built| built.path).context("no test was built")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::replace;
    use crate::workspace::target;

    #[test]
    fn a_reduced_corpus_has_only_the_inputs_that_are_left() {
        let folder = |name: &str, inputs: &[(&str, &str)]| {
            let folder = target().join("fuzz-test").join(name);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("a folder");
            for (name, content) in inputs {
                fs::write(folder.join(name), content).expect("an input");
            }
            folder
        };
        let corpus = folder("corpus", &[("00", "same"), ("01", "stays"), ("02", "same"), ("03", "goes")]);
        let reduced = folder("reduced", &[("5c3f", "stays"), ("9a1e", "new"), ("77b2", "same")]);
        replace(&corpus, &reduced).expect("it is replaced");
        let files = fs::read_dir(&corpus).expect("the corpus").map(|entry| {
            let path = entry.expect("an input").path();
            (fs::read_to_string(&path).expect("an input"), path)
        });
        let inputs: BTreeMap<_, _> = files.collect();
        assert_eq!(fs::read_dir(&corpus).expect("the corpus").count(), 3);
        assert!(inputs["stays"].ends_with("01") && inputs["new"].ends_with("9a1e"), "{inputs:?}");
        assert!(inputs.contains_key("same"), "{inputs:?}");
    }
}
