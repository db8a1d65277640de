//! The machine of the measurements.

use std::process::Command;

use serde::Serialize;

/// Facts that the figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory: String,
    kernel: String,
    rustc: String,
    commit: String,
    date: String,
    load_before: String,
    pub(crate) load_after: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let load = load();
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: field("/proc/meminfo", "MemTotal"),
            kernel: read("/proc/sys/kernel/osrelease"),
            rustc: said("rustc", &["--version"]),
            commit: commit(),
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            load_before: load.clone(),
            load_after: load,
        }
    }

    /// A line for each fact.
    pub(crate) fn lines(&self) -> Vec<String> {
        vec![
            format!("processor: {}, {} cores; memory: {}", self.processor, self.cores, self.memory),
            format!("kernel: {}; {}", self.kernel, self.rustc),
            format!("commit: {}; date: {}", self.commit, self.date),
            format!("load average: {} before, {} after", self.load_before, self.load_after),
        ]
    }
}

/// The load averages over one, five and fifteen minutes. A high load before a run means that other programs use the machine.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn commit() -> String {
    let commit = said("git", &["rev-parse", "--short", "HEAD"]);
    let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]) != UNKNOWN;
    if changed { format!("{commit} with changes") } else { commit }
}

const UNKNOWN: &str = "unknown";

fn known(text: &str) -> String {
    if text.trim().is_empty() { UNKNOWN.to_owned() } else { text.trim().to_owned() }
}

fn read(path: &str) -> String {
    known(&std::fs::read_to_string(path).unwrap_or_default())
}

/// The text after the first `name:` in a file.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name));
    known(line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value))
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    known(&output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default())
}
