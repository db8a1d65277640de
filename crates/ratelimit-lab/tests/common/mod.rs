//! Runs the program, as an operator does.
#![allow(dead_code)] // no test needs all of it

pub(crate) mod html;

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.code, &*self.stderr), (0, ""), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The output as JSON of a run that has not read enough.
    #[track_caller]
    pub(crate) fn json_of_nothing(&self) -> Value {
        assert_eq!(self.code, 1, "{self:?}");
        assert!(
            self.stderr.contains("no request was read") || self.stderr.contains("nearly nothing was read"),
            "{self:?}"
        );
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts that it failed with this code, printed nothing, and said this.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, said: &str) {
        assert_eq!((self.code, &*self.stdout), (code, ""), "{self:?}");
        assert!(self.stderr.contains(said), "{said:?} is not in {:?}", self.stderr);
    }
}

/// Runs the program with these arguments.
pub(crate) fn lab(arguments: &[&str]) -> Ran {
    lab_with(arguments, b"")
}

/// The same with this standard input.
pub(crate) fn lab_with(arguments: &[&str], input: &[u8]) -> Ran {
    run(arguments, input, Stdio::piped(), Stdio::piped())
}

/// Runs the program with these outputs.
pub(crate) fn lab_to(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Ran {
    run(arguments, b"", stdout, stderr)
}

fn run(arguments: &[&str], input: &[u8], stdout: Stdio, stderr: Stdio) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-lab"));
    command.args(arguments).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    let mut process = command.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = process.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
