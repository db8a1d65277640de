//! One Memcached server, or two that share the keys.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::future::try_join_all;
use ratelimit_testbed::{Group, Memcached, Server, Testbed};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::base::{Harm, affected, again, disturb, freeze, kill, now, through, unknown, wait};
use super::evictions::Watcher;
use crate::crew::Crew;
use crate::fault::Fault;
use crate::plan::Phase;
use crate::proxy::Proxy;

/// The memory of the server in MiB: so little that it is soon full.
const MEMORY: &str = "8";

/// The sizes of the items that fill the server. Each is near the size of some meters, because an item evicts only items of
/// a similar size.
const SIZES: [usize; 6] = [4, 60, 150, 400, 1_200, 4_000];

/// The server's counters of dropped items. Two of them count items that it dropped when it took a page of memory for items
/// of another size; of these it does not report the names.
const EVICTIONS: [&str; 3] = ["evictions", "slab_reassign_evictions_nomem", "slab_reassign_busy_deletes"];

/// A server, and the proxy in front of it for one of the workers.
pub(super) struct Bed {
    server: Server,
    proxy: Proxy,
}

impl Bed {
    pub(super) async fn start(testbed: &Testbed) -> Result<Self> {
        let arguments = ["-m", MEMORY].map(str::to_owned).into();
        let server = testbed.memcached_with(Memcached { arguments, ..Memcached::default() }).await?;
        let proxy = Proxy::start(server.address()).await?;
        Ok(Self { server, proxy })
    }

    /// Watches which keys it evicts.
    async fn watch(&self) -> Result<Watcher> {
        let mut stream = BufReader::new(TcpStream::connect(self.server.address()).await?);
        stream.write_all(b"watch evictions\r\n").await?;
        stream.read_line(&mut String::new()).await?;
        Ok(Watcher::start(futures::stream::unfold(stream.lines(), async |mut lines| {
            loop {
                let line = lines.next_line().await.ok()??;
                let name = line.split(' ').find_map(|field| field.strip_prefix("key="));
                // It encodes the `!` in front of the key.
                if let Some(name) = name.map(|name| name.replace("%21", "!")) {
                    return Some((name, lines));
                }
            }
        })))
    }

    async fn fill(&self, phase: &Phase) -> Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(self.server.address()).await?);
        let mut fillers = 0;
        again(phase, Duration::from_millis(1), async || {
            let mut text = String::new();
            for size in SIZES.iter().cycle().take(60) {
                let value = "x".repeat(*size);
                text.push_str(&format!("set filler{fillers} 0 0 {size} noreply\r\n{value}\r\n"));
                fillers += 1;
            }
            Ok(stream.write_all(text.as_bytes()).await?)
        })
        .await?;
        for filler in 0..fillers {
            stream.write_all(format!("delete filler{filler} noreply\r\n").as_bytes()).await?;
        }
        // Everything before has been executed when this is answered.
        stream.write_all(b"version\r\n").await?;
        stream.read_line(&mut String::new()).await?;
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
                Ok(Harm::with_loss(from, None))
            }
            Fault::Frozen => freeze(&self.server, phase).await,
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
        let mut all = 0;
        for name in EVICTIONS {
            all += stat(&self.server, name).await?;
        }
        Ok(all)
    }
}

/// Two servers that share the keys.
pub(super) struct Pair(Group);

impl Pair {
    pub(super) async fn start(testbed: &Testbed) -> Result<Self> {
        Ok(Self(testbed.memcached_pair().await?))
    }
}

#[async_trait(?Send)]
impl super::base::Bed for Pair {
    fn url(&self, _worker: usize) -> String {
        let hosts: Vec<String> = self.0.servers().iter().map(|server| server.address().to_string()).collect();
        format!("memcached://{}", hosts.join(","))
    }

    async fn inflict(&self, phase: &Phase, crew: &Crew) -> Result<Harm> {
        let servers = self.0.servers();
        let chosen = usize::try_from(phase.choice % servers.len().max(1) as u64)?;
        let (from, server) = (now(), servers.get(chosen).context("there are no servers")?);
        match phase.fault {
            Fault::OneKilled => {
                server.kill().await?;
                let (_, away) = crew.count().await?;
                wait(phase).await;
                server.start().await?;
                Ok(Harm::with_loss(from, Some(affected(away, phase.quota))))
            }
            Fault::OneFrozen => freeze(server, phase).await,
            other => unknown(other),
        }
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        try_join_all(self.0.servers().iter().map(connections)).await
    }
}

/// How many connections it has, without this one and the one that listens.
async fn connections(server: &Server) -> Result<u64> {
    Ok(stat(server, "curr_connections").await?.saturating_sub(2))
}

async fn stat(server: &Server, name: &str) -> Result<u64> {
    let mut stream = BufReader::new(TcpStream::connect(server.address()).await?);
    stream.write_all(b"stats\r\n").await?;
    let mut lines = stream.lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
            return Ok(value.parse()?);
        }
        if line == "END" {
            break;
        }
    }
    anyhow::bail!("the server does not tell {name}")
}
