//! What a new connection begins with: the log-in, and a check of the server's settings.

use std::io;
use std::sync::Arc;

use ratelimit_core::StoreError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::config::MemcachedConfig;
use crate::error::{self, ERRORS};

/// Reads an item that does not exist, to see whether the server supports the meta commands, and then the settings.
///
/// Together they are longer than a request of the binary protocol, so a server that speaks only that protocol does not wait
/// for more bytes but closes the connection.
const QUESTIONS: &[u8] = b"mg !ratelimit-says-hello v O0\r\nstats settings\r\n";

/// The answer to the first question. Servers differ in whether they return its stamp.
const MISSING: &str = "EN";
const MISSING_STAMPED: &str = "EN O0";

/// The longest answer.
const LONGEST_ANSWER: usize = 64 * 1024;

/// What is sent and checked on a new connection.
#[derive(Clone)]
pub(crate) struct Handshake {
    log_in: Option<Arc<[u8]>>,
    max_item_size: usize,
}

impl Handshake {
    pub(crate) fn new(config: &MemcachedConfig) -> Self {
        let log_in = config.user.as_ref().map(|user| log_in(user, config.password.as_deref().unwrap_or("")));
        Self { log_in, max_item_size: config.max_item_size }
    }

    /// Logs in, if that is configured, and checks the settings of the server.
    pub(crate) async fn perform(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), StoreError> {
        if let Some(request) = &self.log_in {
            let answer = exchange(stream, request, |answer| answer.ends_with("\r\n")).await?;
            if answer != "STORED\r\n" {
                return Err(error::from_log_in(&answer));
            }
        }
        check(&exchange(stream, QUESTIONS, is_complete).await?, self.max_item_size)
    }
}

/// The command that logs in. A server without log-in stores it as an item that has expired already.
fn log_in(user: &str, password: &str) -> Arc<[u8]> {
    let size = user.len() + 1 + password.len();
    format!("set log-in 0 -1 {size}\r\n{user} {password}\r\n").into_bytes().into()
}

/// Sends a request and reads until its answer is complete.
async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    is_complete: impl Fn(&str) -> bool,
) -> Result<String, StoreError> {
    let answer = async {
        stream.write_all(request).await?;
        stream.flush().await?;
        let mut bytes = Vec::with_capacity(4 * 1024);
        loop {
            if stream.read_buf(&mut bytes).await? == 0 {
                return io::Result::Ok(None);
            }
            let answer = String::from_utf8_lossy(&bytes);
            if is_complete(&answer) || bytes.len() > LONGEST_ANSWER {
                return Ok(Some(answer.into_owned()));
            }
        }
    };
    match answer.await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(error::unanswered()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(error::unanswered()),
        Err(error) => Err(error::from_stream(&error)),
    }
}

/// Whether the server has answered the [`QUESTIONS`], or the first of them by an error.
fn is_complete(answer: &str) -> bool {
    match answer.split_once("\r\n") {
        // Proxies may not know the settings: their answer is one line.
        Some((MISSING | MISSING_STAMPED, settings)) => {
            settings.ends_with("\r\n")
                && (!settings.starts_with("STAT ") || settings.ends_with("\r\nEND\r\n"))
        }
        first => first.is_some(),
    }
}

/// Fails if the server does not support the meta commands, or loses counts by its settings.
///
/// If a write does not fit into its memory or into an item, Memcached deletes the item that it was to replace, and with it
/// the count of the key.
fn check(answer: &str, max_item_size: usize) -> Result<(), StoreError> {
    let (first, settings) = answer.split_once("\r\n").unwrap_or((answer, ""));
    if ![MISSING, MISSING_STAMPED].contains(&first) {
        return Err(error::from_refusal(first));
    }
    let setting = |name: &str| {
        settings.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '))
    };
    let message = if setting("evictions") == Some("off") {
        "it was started with -M, with which a full server forgets the counts that it cannot rewrite; start it without -M"
            .to_owned()
    } else if let Some(size) = setting("item_size_max").and_then(|size| size.parse::<usize>().ok())
        && size < max_item_size
    {
        format!(
            "its items have at most {size} bytes (option -I), but `max_item_size` is {max_item_size}; set it to {size}"
        )
    } else {
        return Ok(());
    };
    Err(ERRORS.misconfigured(message))
}

#[cfg(test)]
mod tests {
    use ratelimit_core::ErrorKind;

    use super::*;

    fn settings(text: &str) -> String {
        format!("EN\r\nSTAT maxbytes 67108864\r\n{text}STAT maxconns_fast yes\r\nEND\r\n")
    }

    #[test]
    fn answers_are_complete_when_their_last_line_is() {
        for whole in [&settings("")[..], "EN\r\nEND\r\n", "EN O0\r\nERROR\r\n"] {
            for end in 0..whole.len() {
                assert!(!is_complete(&whole[..end]), "{:?}", &whole[..end]);
            }
            assert!(is_complete(whole), "{whole:?}");
        }
        assert!(is_complete("CLIENT_ERROR unauthenticated\r\n"));
    }

    #[test]
    fn servers_that_forget_counts_are_refused() {
        let kind = |answer: &str| check(answer, 1_000).map_err(|error| error.kind());
        for fine in ["", "STAT evictions on\r\n", "STAT item_size_max 1000\r\n"] {
            assert_eq!(kind(&settings(fine)), Ok(()), "{fine}");
        }
        for wrong in ["STAT evictions off\r\n", "STAT item_size_max 999\r\n"] {
            assert_eq!(kind(&settings(wrong)), Err(ErrorKind::Misconfigured), "{wrong}");
        }
        assert_eq!(kind("EN\r\nERROR\r\n"), Ok(()), "a proxy that has no settings");
        assert_eq!(kind("ERROR\r\n"), Err(ErrorKind::Unsupported));
        assert_eq!(kind("CLIENT_ERROR unauthenticated\r\n"), Err(ErrorKind::Denied));
    }
}
