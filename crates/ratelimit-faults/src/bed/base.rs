//! What the servers of all targets have in common.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use ratelimit_core::{Clock as _, SystemClock};
use ratelimit_testbed::Server;

use crate::crew::Crew;
use crate::fault::Fault;
use crate::history::Loss;
use crate::load::{KeyId, classes};
use crate::plan::Phase;
use crate::proxy::{Mode, Proxy};
use crate::target::Target;

/// The servers of a target.
#[async_trait(?Send)]
pub(crate) trait Bed {
    /// The address of the store for a worker.
    fn url(&self, worker: usize) -> String;

    /// Lets the fault of a phase happen; returns when it is over.
    async fn inflict(&self, phase: &Phase, crew: &Crew) -> Result<Harm>;

    /// How many connections each server has, without those of this process.
    async fn connections(&self) -> Result<Vec<u64>>;

    /// How many keys the servers have evicted since they started.
    async fn evicted(&self) -> Result<u64> {
        Ok(0)
    }
}

/// What a fault has done.
#[derive(Debug)]
pub(crate) struct Harm {
    /// When it began and was over, in nanoseconds.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) losses: Vec<Loss>,
    /// How many of the evicted keys the losses take into account.
    pub(crate) evictions: u64,
}

impl Harm {
    /// Nothing was lost since `from`.
    pub(crate) fn without_loss(from: u64) -> Self {
        Self { from, to: now(), losses: Vec::new(), evictions: 0 }
    }

    /// All of these keys may have been lost, or all there are.
    pub(crate) fn with_loss(from: u64, keys: Option<HashSet<KeyId>>) -> Self {
        let to = now();
        Self { from, to, losses: vec![Loss { from, to, keys, is_split: false }], evictions: 0 }
    }
}

/// The machine's time in nanoseconds.
pub(crate) fn now() -> u64 {
    static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
    CLOCK.now().as_nanos()
}

/// The error of a fault that this target does not have.
pub(super) fn unknown(fault: Fault) -> Result<Harm> {
    bail!("{fault} cannot happen here")
}

/// Returns when the fault has lasted long enough.
pub(super) async fn wait(phase: &Phase) {
    tokio::time::sleep(Duration::from_millis(phase.lasts)).await;
}

/// Kills a server, and starts it again when the fault has lasted long enough. What it has lost is for the caller to say.
pub(super) async fn kill(server: &Server, phase: &Phase) -> Result<()> {
    server.kill().await?;
    wait(phase).await;
    Ok(server.start().await?)
}

/// Freezes a server, which loses nothing.
pub(super) async fn freeze(server: &Server, phase: &Phase) -> Result<Harm> {
    let from = now();
    server.freeze().await?;
    wait(phase).await;
    server.thaw().await?;
    Ok(Harm::without_loss(from))
}

/// Does this again and again while the fault lasts.
pub(super) async fn again(
    phase: &Phase,
    each: Duration,
    mut act: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let end = now() + phase.lasts * 1_000_000;
    while now() < end {
        act().await?;
        tokio::time::sleep(each).await;
    }
    Ok(())
}

/// Cuts or stalls connections through the proxy.
pub(super) async fn disturb(proxy: &Proxy, phase: &Phase) -> Result<Harm> {
    let (from, seed) = (now(), phase.choice);
    proxy.set(match phase.fault {
        Fault::Cut => Mode::Cut { seed },
        Fault::Stalled => Mode::Stall { seed },
        other => return unknown(other),
    });
    wait(phase).await;
    proxy.set(Mode::Pass);
    Ok(Harm::without_loss(from))
}

/// The address with the proxy's instead of the server's, for the last of the workers.
pub(super) fn through(url: &str, worker: usize, server: std::net::SocketAddr, proxy: &Proxy) -> String {
    if worker + 1 == Target::Redis.workers() {
        url.replace(&server.to_string(), &proxy.address().to_string())
    } else {
        url.to_owned()
    }
}

/// The keys that a server may lose which serves the keys in `away`: also those that the workers do not ask about.
pub(super) fn affected(away: HashSet<KeyId>, quota: u64) -> HashSet<KeyId> {
    let classes = classes(quota);
    let short = KeyId::all(&classes).filter(|(_, class)| !class.is_long).map(|(key, _)| key);
    away.into_iter().chain(short).collect()
}
