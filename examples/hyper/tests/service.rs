//! The service as its users see it: a process with an HTTP interface.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

struct Instance {
    process: Child,
    address: SocketAddr,
}

impl Instance {
    fn start(limit: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_hyper"))
            .args(["--listen", "127.0.0.1:0", "--limit", limit])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").unwrap().parse().unwrap();
        Self { process, address }
    }

    fn get(&self) -> String {
        let mut connection = TcpStream::connect(self.address).unwrap();
        write!(
            connection,
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 192.0.2.1\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_address_is_refused_after_its_limit() {
    let service = Instance::start("3/day log");
    for remaining in [2, 1, 0] {
        let answer = service.get();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello\n"), "{answer}");
        assert!(answer.contains(&format!("ratelimit: \"default\";r={remaining};t=")), "{answer}");
    }
    let answer = service.get();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(
        answer.contains("content-type: application/problem+json") && answer.contains("retry-after: "),
        "{answer}"
    );
}
