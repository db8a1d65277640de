//! Whether an HTTP server answers.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::bounded::bounded;

/// Whether a proxy answers. It refuses a request without `Host` by itself, so nothing behind it is asked or counts it.
pub(crate) async fn refuses_a_request_without_host(address: SocketAddr) -> Result<(), String> {
    match status(address, "GET / HTTP/1.1\r\n\r\n").await? {
        400 => Ok(()),
        other => Err(format!("it answers a request without Host with {other}, not 400")),
    }
}

/// Whether a server answers a request for this path with success.
pub(crate) async fn answers(address: SocketAddr, path: &str) -> Result<(), String> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    match status(address, &head).await? {
        200..300 => Ok(()),
        other => Err(format!("it answers GET {path} with {other}")),
    }
}

/// The status of the answer.
async fn status(address: SocketAddr, head: &str) -> Result<u16, String> {
    let line = bounded(async {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        stream.write_all(head.as_bytes()).await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        Ok(line)
    });
    let line = line.await?;
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    status.ok_or_else(|| format!("it does not speak HTTP: {line:?}"))
}
