//! Converts errors of the crate `memcache` to failures.

use std::io;

use memcache::{ClientError, CommandError, MemcacheError, ServerError};
use ratelimit_core::{ErrorKind, StoreError};

use crate::error::{self, ERRORS};

/// What a connection can still be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// For further commands: the next reply on it is that to the next command.
    InStep,
    /// For nothing: it is unknown what the next bytes on it are.
    OutOfStep,
    /// For nothing: the other side has closed it.
    HungUp,
}

/// The failure of a command, and what it means for the connection.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) failure: StoreError,
    pub(super) health: Health,
}

impl Fault {
    /// A reply that says that nothing was done, after which the connection is usable as before.
    fn refused(failure: StoreError) -> Self {
        Self { failure, health: Health::InStep }
    }

    /// It is unknown whether the command was executed, and what the next bytes on the connection are.
    fn broken(failure: StoreError) -> Self {
        Self { failure: failure.maybe_applied(), health: Health::OutOfStep }
    }

    /// It is unknown whether the command was executed before the other side closed the connection.
    fn hung_up(failure: StoreError) -> Self {
        Self { failure: failure.maybe_applied(), health: Health::HungUp }
    }

    pub(super) fn new(error: MemcacheError) -> Self {
        match error {
            MemcacheError::IOError(error) => Self::from_io(&error),
            MemcacheError::ClientError(ClientError::Error(line)) => match line.strip_prefix("CLIENT_ERROR") {
                Some(_) => Self::from_refusal(line.trim_end()),
                // The client's error if the connection was closed, or if a line has no end.
                None => Self::hung_up(error::broken()),
            },
            MemcacheError::ServerError(ServerError::Error(line)) => Self::from_refusal(line.trim_end()),
            MemcacheError::CommandError(CommandError::InvalidCommand) => {
                Self { failure: unknown_command(), health: Health::OutOfStep }
            }
            MemcacheError::PoolError(_) => Self { failure: error::broken(), health: Health::OutOfStep },
            _ => Self::broken(error::strange_response()),
        }
    }

    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::broken(ERRORS.late()),
            _ => Self::hung_up(error::from_io(error)),
        }
    }

    /// The answer of a server or a proxy to a command that it refused.
    fn from_refusal(line: &str) -> Self {
        let says = |words: &str| line.to_ascii_lowercase().contains(words);
        if says("non-numeric") || says("out of memory") || says("too large") {
            return Self::refused(error::from_refusal(line));
        }
        let unreachable = |message| ERRORS.of(ErrorKind::Unreachable, message);
        if says("connection refused") {
            return Self::refused(unreachable(
                "the proxy cannot connect to a server; is the server running?",
            ));
        }
        if says("timed out") || says("timeout") {
            let message = "the proxy got no answer from a server within its own time limit";
            return Self::broken(ERRORS.of(ErrorKind::Timeout, message));
        }
        if says("connection") || says("broken pipe") || says("host") {
            return Self::broken(unreachable("the proxy lost its connection to a server"));
        }
        Self::broken(error::from_refusal(line))
    }
}

fn unknown_command() -> StoreError {
    ERRORS.of(
        ErrorKind::Unsupported,
        "it does not support a command of the plain protocol; it needs gets, add, cas, incr, decr, replace and delete",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_state_whether_the_command_may_have_been_applied() {
        let server = |line: &str| MemcacheError::ServerError(ServerError::Error(format!("{line}\r\n")));
        let io = |kind| MemcacheError::IOError(io::Error::from(kind));
        let cases = [
            (server("SERVER_ERROR Connection refused"), ErrorKind::Unreachable, false, true),
            (server("SERVER_ERROR out of memory storing object"), ErrorKind::Full, false, true),
            (server("SERVER_ERROR object too large for cache"), ErrorKind::Unsupported, false, true),
            (server("SERVER_ERROR Connection timed out"), ErrorKind::Timeout, true, false),
            (server("SERVER_ERROR Connection reset by peer"), ErrorKind::Unreachable, true, false),
            (server("SERVER_ERROR something else"), ErrorKind::Server, true, false),
            (io(io::ErrorKind::WouldBlock), ErrorKind::Timeout, true, false),
            (io(io::ErrorKind::BrokenPipe), ErrorKind::Unreachable, true, false),
            (CommandError::InvalidCommand.into(), ErrorKind::Unsupported, false, false),
            (ServerError::BadResponse("HTTP/1.1 400".into()).into(), ErrorKind::Server, true, false),
        ];
        for (error, kind, maybe, in_step) in cases {
            let reported = error.to_string();
            let fault = Fault::new(error);
            let error = fault.failure.clone();
            assert_eq!((error.kind(), error::is_maybe_applied(&fault.failure)), (kind, maybe), "{reported}");
            assert_eq!(fault.health == Health::InStep, in_step, "{reported}");
        }
    }
}
