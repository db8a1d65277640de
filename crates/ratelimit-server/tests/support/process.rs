//! The server as a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::Channel;

use super::Http;

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimit-server"));
    // Nothing of the environment of who runs the test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATELIMIT_")) {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is ended when the test ends.
pub(crate) struct Running(pub(crate) Child, pub(crate) Vec<String>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut running = Self(command.spawn().unwrap(), Vec::new());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next().transpose().unwrap() {
            running.1.push(line);
            if running.1.last().is_some_and(|line| line == "Ctrl-C ends it") {
                return running;
            }
        }
        let mut error = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        panic!("it did not start: {error}");
    }

    pub(crate) fn http(&self) -> Http {
        Http::at(self.address("HTTP"))
    }

    /// Where a door listens, from the lines that it prints.
    pub(crate) fn address(&self, door: &str) -> SocketAddr {
        let found =
            self.1.iter().find_map(|line| line.strip_prefix(door)?.strip_prefix(" on ")?.split_once(", "));
        found.unwrap_or_else(|| panic!("no {door} in {:?}", self.1)).0.parse().unwrap()
    }

    pub(crate) async fn channel(&self) -> Channel {
        let url = format!("http://{}", self.address("gRPC"));
        Channel::from_shared(url).unwrap().connect().await.unwrap()
    }

    /// What it has logged, when it has ended.
    pub(crate) fn log(&mut self) -> String {
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }

    pub(crate) fn terminate(&mut self) -> bool {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
