//! One Redis server.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::try_join_all;
use ratelimit_testbed::{Redis, Server, Testbed};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::base::{Harm, again, disturb, freeze, kill, now, through, unknown, wait};
use super::evictions::Watcher;
use crate::crew::Crew;
use crate::fault::Fault;
use crate::plan::Phase;
use crate::proxy::Proxy;

/// The eviction policies of a full server.
const POLICIES: [&str; 7] = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// How much memory, in bytes, the server may still use when its limit is set.
const ROOM: u64 = 128 * 1024;

/// How long the administrator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and the proxy in front of it for one of the workers.
pub(super) struct Bed {
    server: Server,
    proxy: Proxy,
    /// Whether it writes each command to its file before it answers.
    is_durable: bool,
}

impl Bed {
    pub(super) async fn start(testbed: &Testbed, is_durable: bool) -> Result<Self> {
        // It writes to the file before it answers. That survives a crash of the process, but not of the machine.
        let durable = ["--appendonly", "yes", "--appendfsync", "no"].map(str::to_owned);
        let arguments = if is_durable { durable.to_vec() } else { Vec::new() };
        let server = testbed.redis_with(Redis { arguments, ..Redis::default() }).await?;
        let proxy = Proxy::start(server.address()).await?;
        Ok(Self { server, proxy, is_durable })
    }

    fn harm(&self, from: u64) -> Harm {
        if self.is_durable { Harm::without_loss(from) } else { Harm::with_loss(from, None) }
    }

    /// Watches which keys it evicts.
    async fn watch(&self) -> Result<Watcher> {
        tell(&mut connect(&self.server).await?, &["CONFIG", "SET", "notify-keyspace-events", "Ee"]).await?;
        let mut events = redis::Client::open(self.server.url())?.get_async_pubsub().await?;
        events.subscribe("__keyevent@0__:evicted").await?;
        Ok(Watcher::start(events.into_on_message().filter_map(async |event| event.get_payload().ok())))
    }

    async fn fill(&self, phase: &Phase) -> Result<()> {
        let mut redis = connect(&self.server).await?;
        let policies = POLICIES.len() as u64;
        let policy = match phase.fault {
            Fault::Full => "noeviction",
            _ => POLICIES[usize::try_from(phase.choice % policies)?],
        };
        tell(&mut redis, &["CONFIG", "SET", "maxmemory-policy", policy]).await?;
        let used: u64 = info(&mut redis, "memory", "used_memory").await?;
        tell(&mut redis, &["CONFIG", "SET", "maxmemory", &(used + ROOM).to_string()]).await?;
        let mut fillers = 0;
        let value = "x".repeat(1_000);
        again(phase, Duration::from_millis(2), async || {
            for _ in 0..10 {
                // When the server is full, it refuses this command as well.
                let name = format!("filler {fillers}");
                let set = redis::cmd("SET").arg(name).arg(&value).exec_async(&mut redis).await;
                fillers += u64::from(set.is_ok());
            }
            Ok(())
        })
        .await?;
        tell(&mut redis, &["CONFIG", "SET", "maxmemory", "0"]).await?;
        for filler in 0..fillers {
            redis::cmd("UNLINK").arg(format!("filler {filler}")).exec_async(&mut redis).await?;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl super::base::Bed for Bed {
    fn url(&self, worker: usize) -> String {
        through(self.server.url(), worker, self.server.address(), &self.proxy)
    }

    async fn inflict(&self, phase: &Phase, _crew: &Crew) -> Result<Harm> {
        let from = now();
        match phase.fault {
            Fault::Killed => {
                kill(&self.server, phase).await?;
                Ok(self.harm(from))
            }
            Fault::Restarted => {
                // The server answers only if it refuses to end.
                let mut redis = connect(&self.server).await?;
                let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").exec_async(&mut redis).await;
                wait(phase).await;
                self.server.kill().await?;
                self.server.start().await?;
                Ok(self.harm(from))
            }
            Fault::Frozen => freeze(&self.server, phase).await,
            Fault::ScriptsFlushed => {
                flush_scripts(std::slice::from_ref(&self.server), phase).await?;
                Ok(Harm::without_loss(from))
            }
            Fault::SessionsEnded => {
                let mut redis = connect(&self.server).await?;
                again(phase, Duration::from_millis(100), async || {
                    tell(&mut redis, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await
                })
                .await?;
                Ok(Harm::without_loss(from))
            }
            Fault::Full => {
                self.fill(phase).await?;
                Ok(Harm::without_loss(from))
            }
            Fault::Evicting => {
                let watcher = self.watch().await?;
                self.fill(phase).await?;
                Ok(watcher.end(from, phase).await)
            }
            Fault::Cut | Fault::Stalled => disturb(&self.proxy, phase).await,
            other => unknown(other),
        }
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        Ok(vec![connections(&self.server).await?])
    }

    async fn evicted(&self) -> Result<u64> {
        info(&mut connect(&self.server).await?, "stats", "evicted_keys").await
    }
}

/// Deletes the scripts and functions of servers again and again.
pub(super) async fn flush_scripts(servers: &[Server], phase: &Phase) -> Result<()> {
    let mut open = try_join_all(servers.iter().map(connect)).await?;
    again(phase, Duration::from_millis(20), async || {
        for redis in &mut open {
            tell(redis, &["SCRIPT", "FLUSH"]).await?;
            tell(redis, &["FUNCTION", "FLUSH"]).await?;
        }
        Ok(())
    })
    .await
}

/// A connection of the administrator.
pub(super) async fn connect(server: &Server) -> Result<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE));
    let patient = patient.set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(server.url())?;
    let connected = client.get_multiplexed_async_connection_with_config(&patient).await;
    connected.context("the administrator cannot connect")
}

/// Sends a command that has to succeed.
pub(super) async fn tell(redis: &mut MultiplexedConnection, words: &[&str]) -> Result<()> {
    let Some((name, arguments)) = words.split_first() else { return Ok(()) };
    redis::cmd(name).arg(arguments).exec_async(redis).await.with_context(|| words.join(" "))
}

/// How many connections of clients each of them has.
pub(super) async fn connections_of(servers: &[Server]) -> Result<Vec<u64>> {
    try_join_all(servers.iter().map(connections)).await
}

/// How many connections of clients it has, without this one and those of nodes that move slots.
async fn connections(server: &Server) -> Result<u64> {
    let mut list = redis::cmd("CLIENT");
    let list: String =
        list.arg("LIST").arg("TYPE").arg("normal").query_async(&mut connect(server).await?).await?;
    let clients = list.lines().filter(|line| line.contains("id=") && !line.contains("cmd=restore"));
    Ok((clients.count() as u64).saturating_sub(1))
}

async fn info(redis: &mut MultiplexedConnection, section: &str, field: &str) -> Result<u64> {
    let info: String = redis::cmd("INFO").arg(section).query_async(redis).await?;
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("INFO has no {field}"))?.trim().parse()?)
}
