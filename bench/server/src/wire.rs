//! Requests and answers as bytes: the Redis protocol and HTTP.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};

/// How a server is asked over a connection.
pub(crate) trait Wire: Send + Sync {
    fn address(&self) -> SocketAddr;
    /// Appends the request for the key of this number.
    fn request(&self, key: u64, bytes: &mut Vec<u8>);
    /// The length of the answer that the bytes begin with, if it is complete; an error if it is not an admission.
    fn answer(&self, bytes: &[u8]) -> Result<Option<usize>>;
}

/// A command of the Redis protocol; `{key}` stands for the key.
pub(crate) struct Command {
    pub(crate) address: SocketAddr,
    pub(crate) words: Vec<String>,
    /// The first number of an answer that admits; any if it is none.
    pub(crate) admits: Option<i64>,
}

impl Wire for Command {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn request(&self, key: u64, bytes: &mut Vec<u8>) {
        bytes.extend(format!("*{}\r\n", self.words.len()).bytes());
        for word in &self.words {
            let word = word.replace("{key}", &format!("key:{key}"));
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }

    fn answer(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some((length, first)) = reply(bytes)? else { return Ok(None) };
        ensure!(
            self.admits.is_none_or(|admits| admits == first),
            "not admitted: the answer begins with {first}"
        );
        Ok(Some(length))
    }
}

/// The length of a reply, and its number, or the first one in it.
fn reply(bytes: &[u8]) -> Result<Option<(usize, i64)>> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[..end])?;
    let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
    match kind {
        ":" => Ok(Some((end + 2, rest.parse()?))),
        "*" => {
            let (mut length, mut first) = (end + 2, None);
            for _ in 0..rest.parse::<usize>()? {
                let Some((further, number)) = reply(&bytes[length..])? else { return Ok(None) };
                length += further;
                first = first.or(Some(number));
            }
            Ok(Some((length, first.unwrap_or_default())))
        }
        _ => bail!("answered {line:?}"),
    }
}

/// A request of HTTP for a page, with the key in the field `x-key`.
pub(crate) struct Get {
    pub(crate) address: SocketAddr,
}

impl Wire for Get {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn request(&self, key: u64, bytes: &mut Vec<u8>) {
        bytes.extend(format!("GET / HTTP/1.1\r\nhost: {}\r\nx-key: key:{key}\r\n\r\n", self.address).bytes());
    }

    fn answer(&self, bytes: &[u8]) -> Result<Option<usize>> {
        response(bytes)
    }
}

/// A request of HTTP; `{key}` in the body stands for the key.
pub(crate) struct Post {
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) body: String,
}

impl Wire for Post {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn request(&self, key: u64, bytes: &mut Vec<u8>) {
        let body = self.body.replace("{key}", &format!("key:{key}"));
        let (path, address, length) = (self.path, self.address, body.len());
        bytes.extend(
            format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            )
            .bytes(),
        );
    }

    fn answer(&self, bytes: &[u8]) -> Result<Option<usize>> {
        response(bytes)
    }
}

/// The length of a response of HTTP, if it is complete.
fn response(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "answered {head:?}");
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let total = end + 4 + length.context("an answer without content-length")?;
    Ok((bytes.len() >= total).then_some(total))
}
