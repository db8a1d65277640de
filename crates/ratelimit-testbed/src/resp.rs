//! The part of Redis's protocol that is needed to check a server.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpStream, UnixStream};

use crate::bounded::bounded;

/// A connection.
pub(crate) struct Resp(BufReader<Box<dyn Stream>>);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Resp {
    /// Connects, and logs in if there is a password.
    pub(crate) async fn connect(address: SocketAddr, log_in: &[String]) -> Result<Self, String> {
        Self::over(bounded(TcpStream::connect(address)).await?, log_in).await
    }

    /// The same over a Unix socket.
    pub(crate) async fn connect_to_socket(path: &Path, log_in: &[String]) -> Result<Self, String> {
        Self::over(bounded(UnixStream::connect(path)).await?, log_in).await
    }

    async fn over(stream: impl Stream + 'static, log_in: &[String]) -> Result<Self, String> {
        let mut resp = Self(BufReader::new(Box::new(stream)));
        if !log_in.is_empty() {
            let words: Vec<&str> = ["AUTH"].into_iter().chain(log_in.iter().map(String::as_str)).collect();
            resp.ask(&words).await?;
        }
        Ok(resp)
    }

    /// The reply to a command, with each string and number in it on its own line; an error reply is an `Err`.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        bounded(self.0.get_mut().write_all(request.as_bytes())).await?;
        let (mut items, mut left) = (Vec::new(), 1);
        while left > 0 {
            left -= 1;
            let line = bounded(self.line()).await?;
            let (kind, rest) = line.split_at_checked(1).ok_or("the answer is empty")?;
            let number = || rest.parse::<usize>().map_err(|_| format!("unexpected answer {line:?}"));
            match kind {
                "+" | ":" => items.push(rest.to_owned()),
                "-" => return Err(rest.to_owned()),
                "$" => items.push(bounded(self.bulk(number()?)).await?),
                "*" => left += number()?,
                _ => return Err(format!("unexpected answer {line:?}")),
            }
        }
        Ok(items.join("\n"))
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
