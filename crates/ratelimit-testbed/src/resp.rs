//! As much of Redis's protocol as it takes to ask a server how it is.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection.
pub(crate) struct Resp(BufReader<TcpStream>);

impl Resp {
    /// Connects, and logs in if there is a password.
    pub(crate) async fn connect(address: SocketAddr, log_in: &[String]) -> Result<Self, String> {
        let stream = bounded(TcpStream::connect(address)).await?;
        let mut resp = Self(BufReader::new(stream));
        if !log_in.is_empty() {
            let words: Vec<&str> = ["AUTH"].into_iter().chain(log_in.iter().map(String::as_str)).collect();
            resp.ask(&words).await?;
        }
        Ok(resp)
    }

    /// The answer to one command, if it is a string or a number; what the server says is wrong, if it is an error.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        bounded(self.0.get_mut().write_all(request.as_bytes())).await?;
        let line = bounded(self.line()).await?;
        let (kind, rest) = line.split_at_checked(1).ok_or("the answer is empty")?;
        match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "-" => Err(rest.to_owned()),
            "$" => {
                let length: usize = rest.parse().map_err(|_| format!("unexpected answer {line:?}"))?;
                bounded(self.bulk(length)).await
            }
            _ => Err(format!("unexpected answer {line:?}")),
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    async fn bulk(&mut self, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).await?;
        bytes.truncate(length);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

async fn bounded<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
