//! Runs the program, as an operator does.
#![allow(dead_code)] // no test needs all of it

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What a run of the program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The lines as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!((self.code, &*self.stderr), (0, ""), "{self:?}");
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The only line as JSON.
    pub(crate) fn only_json(&self) -> Value {
        let [value] = &self.json()[..] else { panic!("not one line: {self:?}") };
        value.clone()
    }

    /// Asserts that it failed with this code, printed nothing, and said all of this.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, said: &[&str]) {
        assert_eq!((self.code, &*self.stdout), (code, ""), "{self:?}");
        for said in said {
            assert!(self.stderr.contains(said), "{said:?} is not in {:?}", self.stderr);
        }
    }
}

/// Arguments that several runs share.
#[derive(Clone)]
pub(crate) struct Cli(Vec<String>);

impl Cli {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self(arguments.iter().map(|argument| (*argument).to_owned()).collect())
    }

    /// With a store, a namespace and limits.
    pub(crate) fn on(store: &str, namespace: &str, limits: &str) -> Self {
        Self::new(&["--store", store, "--namespace", namespace, "--limits", limits])
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit"));
        command.args(&self.0).args(arguments).env_remove("RATELIMIT_STORE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut process = self.command(arguments).stderr(Stdio::inherit()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Running { process, output }
    }
}

/// A run that has not ended; ends with the test.
pub(crate) struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Presses Ctrl-C, and returns the exit code.
    pub(crate) fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A namespace that no other run has used.
pub(crate) fn namespace(name: &str) -> String {
    format!("cli {name} {} {:?}", std::process::id(), std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap())
}

/// The rows of a table: the text of each cell, where at least two spaces separate them.
pub(crate) fn rows(table: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    table.lines().map(cells).collect()
}
