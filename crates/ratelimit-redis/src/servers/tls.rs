//! TLS: the name in a server's certificate, and what a server's refusal means.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::tls::{TlsConnector, TlsFailure, failure_of};
use redis::RedisError;

use crate::config::RedisConfig;
use crate::error::{self, ERRORS};

/// How streams are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    /// The name in the server's certificate, if it is not the host.
    name: Option<String>,
}

impl Tls {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        Ok(Self { connector: TlsConnector::new(&config.certificates(), ERRORS)?, name: None })
    }

    pub(crate) fn name(&self) -> Option<&String> {
        self.name.as_ref()
    }

    pub(crate) fn set_name(&mut self, name: Option<String>) {
        self.name = name;
    }

    /// What performs the handshakes.
    pub(crate) fn connector(&self) -> &TlsConnector {
        &self.connector
    }

    /// The name in the certificate of the server at `host`.
    pub(crate) fn certified_name<'a>(&'a self, host: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(host)
    }

    /// Explains an error that ended the connection before the server has answered.
    pub(crate) fn explain(&self, error: RedisError) -> StoreError {
        if !error.is_io_error() {
            return error::from_redis(error);
        }
        match cause(&error).and_then(failure_of) {
            Some(TlsFailure::ServerCertificate(reason)) => ERRORS.of(
                ErrorKind::Unreachable,
                format!("the server's certificate cannot be trusted: {reason}; see `authorities`"),
            ),
            Some(TlsFailure::ClientCertificate(alert)) if self.connector.has_client_certificate() => ERRORS
                .of(
                    ErrorKind::Denied,
                    format!("the server does not accept the certificate in `client_certificate`: {alert}"),
                ),
            Some(TlsFailure::ClientCertificate(_)) => ERRORS.of(
                ErrorKind::Denied,
                "the server asks for a certificate; set `client_certificate` to one that it accepts",
            ),
            // The alert may be lost when a server closes the connection with unread data.
            None if error.is_connection_dropped() => ERRORS.of(
                ErrorKind::Unreachable,
                "the server closed the connection before it answered; does it ask for a certificate (`client_certificate`)?",
            ),
            _ => error::from_redis(error),
        }
    }
}

/// The error of the connection underneath.
fn cause(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    // The client library wraps its errors in an `Arc`.
    match source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}
