//! A store of your own with a server: meters on Redis, decided here, written by compare-and-set.
//!
//! The library's `Optimistic` decides, remembers what it has written, repeats and keeps the deadline. This crate has only what
//! is particular to the server: a script, a connection, and what its errors mean. The guide *Writing a store* explains it.
#![forbid(unsafe_code)]

use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use ratelimit_store_kit::{Change, CompareAndSet, Optimistic, Outcome, Versioned, error_kind};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};

const SCRIPT: &str = include_str!("compare_and_set.lua");

/// A store that keeps meters on a Redis server.
pub type RemoteStore = Optimistic<RemoteServer>;

/// A handle on a Redis server.
pub struct RemoteServer {
    client: Client,
    prefix: Vec<u8>,
    connection: Option<MultiplexedConnection>,
}

/// Connects to the server at `url`. Keys begin with `prefix`; no call takes longer than `time_limit`.
///
/// # Errors
/// If the address is not valid or the server does not answer.
pub async fn connect(url: &str, prefix: &str, time_limit: Duration) -> Result<RemoteStore, StoreError> {
    let client = Client::open(url).map_err(|error| {
        StoreError::new("remote", ErrorKind::Misconfigured, "the URL is not valid").caused_by(error)
    })?;
    let mut server = RemoteServer { client, prefix: prefix.as_bytes().to_vec(), connection: None };
    let address = server.address();
    let connected = tokio::time::timeout(time_limit, server.connection()).await;
    connected
        .map_err(|_| StoreError::new("remote", ErrorKind::Timeout, "it does not answer").at(&address))??;
    Ok(Optimistic::new("remote", address, server).with_time_limit(time_limit))
}

impl RemoteServer {
    /// Returns the connection, or a new one if the last one was lost.
    async fn connection(&mut self) -> Result<MultiplexedConnection, StoreError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        // The call has a deadline; the library's own limit of half a second would end it on a busy machine.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connected.map_err(|error| self.failed(error).not_applied())?;
        Ok(self.connection.insert(connection).clone())
    }

    /// Sends a request and returns its reply. Dropping the future leaves the connection usable: later replies are still
    /// matched to their requests.
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let reply = command.query_async(&mut self.connection().await?).await;
        reply.map_err(|error| {
            self.connection = None;
            self.failed(error)
        })
    }

    fn key(&self, name: &[u8]) -> Vec<u8> {
        [&self.prefix, name].concat()
    }

    /// Without user and password.
    fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// A request that was sent may have been executed, unless the server says that it was not.
    fn failed(&self, error: RedisError) -> StoreError {
        let is_of_connection = error.is_io_error() || error.is_unrecoverable_error();
        let kind = match error.code() {
            _ if error.is_timeout() => ErrorKind::Timeout,
            _ if is_of_connection => ErrorKind::Unreachable,
            code => error_kind::of_redis(code.unwrap_or_default()),
        };
        let failed =
            StoreError::new("remote", kind, "the request failed").at(self.address()).caused_by(error);
        if is_of_connection { failed.maybe_applied() } else { failed }
    }
}

impl CompareAndSet for RemoteServer {
    async fn compare_and_set(&mut self, changes: &[Change<'_>]) -> Result<Outcome, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(changes.len());
        for Change { name, .. } in changes {
            command.arg(self.key(name));
        }
        for Change { expected, new, .. } in changes {
            let lifetime = new.as_ref().and_then(|new| new.lifetime.as_millis());
            command
                .arg(expected.as_ref().map_or(&[][..], |version| version))
                .arg(new.as_ref().map_or_else(Vec::new, |new| new.value.to_bytes()))
                .arg(lifetime.map_or_else(String::new, |millis| millis.to_string()));
        }
        let present: Vec<Vec<u8>> = self.ask(&command).await?;
        if present.is_empty() {
            return Ok(Outcome::Done);
        }
        let present = changes.iter().zip(&present).filter(|(_, value)| !value.is_empty());
        let values = present.map(|(change, value)| {
            let value = Versioned::from_bytes(value).map_err(|error| {
                StoreError::new("remote", ErrorKind::Corrupt, error.to_string()).at(self.address())
            })?;
            Ok((change.name.to_vec(), value))
        });
        values.collect::<Result<_, _>>().map(Outcome::Conflict)
    }

    async fn remove(&mut self, names: &[Vec<u8>]) -> Result<(), StoreError> {
        let keys: Vec<_> = names.iter().map(|name| self.key(name)).collect();
        self.ask(redis::cmd("DEL").arg(keys)).await
    }
}
