//! A running instance of the service, for the tests that call one.
#![allow(dead_code)] // no test needs all of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running instance; stops with the test.
pub(crate) struct Instance {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Instance {
    pub(crate) fn start(store: &str) -> Self {
        Self::with(&["--store", store])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_api"));
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on http://").and_then(|rest| rest.trim_end().parse().ok());
        let address = address.unwrap_or_else(|| panic!("said {line:?}"));
        Self { process, output, address }
    }

    /// Sends a request. Returns the status, and everything after the status line.
    pub(crate) fn ask(&self, api_key: Option<&str>) -> (u16, String) {
        let mut connection = TcpStream::connect(self.address).unwrap();
        let key = api_key.map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
        write!(connection, "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{key}\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("answered {answer:?}")), answer)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Stops it as Ctrl-C does. Returns its output since it started, and whether it exited successfully.
    pub(crate) fn interrupt(mut self) -> (String, bool) {
        self.signal(Signal::INT);
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        (printed, self.process.wait().unwrap().success())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
