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

    /// Causes the fault of a phase; returns when it is over.
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
    /// How many evicted keys the losses already account for.
    pub(crate) evictions: u64,
}

impl Harm {
    /// Nothing was lost since `from`.
    pub(crate) fn without_loss(from: u64) -> Self {
        Self { from, to: now(), losses: Vec::new(), evictions: 0 }
    }

    /// These keys, or with `None` all keys, may have been lost since `from`.
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

/// Waits for as long as the plan says that the fault lasts.
pub(super) async fn wait(phase: &Phase) {
    tokio::time::sleep(Duration::from_millis(phase.lasts)).await;
}

/// Kills a server, and starts it again when the fault is over. The caller reports what the server has lost.
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

/// Calls `act` repeatedly while the fault lasts, with a pause of `each` in between.
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

/// The address for a worker: the last worker gets the proxy's, the others the server's own.
pub(super) fn through(url: &str, worker: usize, server: std::net::SocketAddr, proxy: &Proxy) -> String {
    if worker + 1 == Target::Redis.workers() {
        let changed = url.replace(&server.to_string(), &proxy.address().to_string());
        assert_ne!(changed, url, "the address of the server is not in the URL");
        changed
    } else {
        url.to_owned()
    }
}

/// The keys that a killed server may lose: those in `away`, and all keys of short limits, because no worker reports which
/// server these are on.
pub(super) fn affected(away: HashSet<KeyId>, quota: u64) -> HashSet<KeyId> {
    let classes = classes(quota);
    let short = KeyId::all(&classes).filter(|(_, class)| !class.is_long).map(|(key, _)| key);
    away.into_iter().chain(short).collect()
}
