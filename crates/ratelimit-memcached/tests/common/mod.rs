//! A private memcached for a test, from the binary in PATH.
#![allow(dead_code, unreachable_pub, clippy::disallowed_methods)] // each test file uses its part; waiting for a process takes real time

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ratelimit_memcached::{MemcachedConfig, MemcachedStore};

pub struct Server {
    pub port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server on a free port, with these options beside the usual ones.
    pub fn start(options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { port: free_port(), options, child: None };
        server.restart();
        server
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What a store needs to reach it, with time enough for a busy machine.
    pub fn config(&self) -> MemcachedConfig {
        MemcachedConfig { timeout: Duration::from_secs(20), ..MemcachedConfig::new(&self.address()) }
    }

    pub async fn store(&self) -> MemcachedStore {
        MemcachedStore::connect_with(self.config()).await.unwrap()
    }

    /// Kills it if it runs, and starts it empty.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("memcached");
        command.args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", &self.port.to_string()]);
        command.args(&self.options).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("memcached has to be in PATH"));
        let since = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "memcached does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// `STOP` freezes it, `CONT` lets it go on.
    pub fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
    }

    /// Sends text, and gives the lines that come back until one of them begins with `until`.
    pub fn say(&self, text: &str, until: &str) -> Vec<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(stream).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap().starts_with(until) {
                break;
            }
        }
        lines
    }

    /// The number under this name in the server's statistics.
    pub fn stat(&self, name: &str) -> u64 {
        let lines = self.say("stats\r\n", "END");
        let prefix = format!("STAT {name} ");
        lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse().unwrap()
    }

    /// Its keys with the seconds that they still live.
    pub fn keys(&self) -> Vec<(String, u64)> {
        let lines = self.say("lru_crawler metadump all\r\n", "END");
        let rows = lines.iter().filter_map(|line| line.strip_prefix("key="));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        rows.map(|row| {
            let (key, rest) = row.split_once(" exp=").unwrap();
            let end: u64 = rest.split(' ').next().unwrap().parse().unwrap_or(u64::MAX);
            (key.replace("%21", "!"), end.saturating_sub(now))
        })
        .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
