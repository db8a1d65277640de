//! Redis Cluster.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use futures::future::try_join_all;
use ratelimit_testbed::{Cluster, Redis, Server, Testbed};
use redis::aio::MultiplexedConnection;

use super::base::{Harm, affected, again, now, unknown, wait};
use super::redis::{connect, connections_of, flush_scripts, tell};
use crate::crew::Crew;
use crate::fault::Fault;
use crate::load::KeyId;
use crate::plan::Phase;

/// The first slots of the second and the third master.
const SECOND: u16 = 5_461;
const THIRD: u16 = 10_923;

/// How many classes of long limits have a single key, which gets many calls.
const BUSY: u8 = 5;

/// Three masters.
pub(super) struct Bed {
    cluster: Cluster,
    /// The current node of each slot that has moved.
    moved: Mutex<HashMap<u16, usize>>,
}

impl Bed {
    pub(super) async fn start(testbed: &Testbed) -> Result<Self> {
        Ok(Self { cluster: testbed.redis_cluster_with(Redis::default()).await?, moved: Mutex::default() })
    }

    fn node(&self, choice: u64) -> Result<&Server> {
        let nodes = self.cluster.nodes();
        nodes.get(usize::try_from(choice % nodes.len().max(1) as u64)?).context("there are no nodes")
    }

    /// Moves the slot of a key to the next node, meter by meter, as resharding does.
    ///
    /// Returns how many meters moved.
    async fn move_slot(&self, key: &str) -> Result<u64> {
        let mut nodes = try_join_all(self.cluster.nodes().iter().map(connect)).await?;
        let name = format!("rl:{{faults:{key}}}");
        let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(name).query_async(&mut nodes[0]).await?;
        let home = usize::from(slot >= SECOND) + usize::from(slot >= THIRD);
        let from = self.lock().get(&slot).copied().unwrap_or(home);
        let to = (from + 1) % nodes.len();
        let (source, target) = (id(&mut nodes[from]).await?, id(&mut nodes[to]).await?);
        let port = self.cluster.nodes()[to].address().port().to_string();
        let number = slot.to_string();
        tell(&mut nodes[to], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &source]).await?;
        tell(&mut nodes[from], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &target]).await?;
        let mut moved = 0;
        loop {
            let mut list = redis::cmd("CLUSTER");
            let names: Vec<String> =
                list.arg("GETKEYSINSLOT").arg(slot).arg(1).query_async(&mut nodes[from]).await?;
            let Some(name) = names.first() else { break };
            tell(&mut nodes[from], &["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]).await?;
            moved += 1;
        }
        // The target first, so that no node is without an owner of the slot.
        let other = (from + 2) % nodes.len();
        for node in [to, from, other] {
            tell(&mut nodes[node], &["CLUSTER", "SETSLOT", &number, "NODE", &target]).await?;
        }
        self.lock().insert(slot, to);
        Ok(moved)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u16, usize>> {
        self.moved.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[async_trait(?Send)]
impl super::base::Bed for Bed {
    fn url(&self, _worker: usize) -> String {
        self.cluster.url()
    }

    async fn inflict(&self, phase: &Phase, crew: &Crew) -> Result<Harm> {
        let (from, node) = (now(), self.node(phase.choice)?);
        match phase.fault {
            Fault::OneKilled => {
                node.kill().await?;
                let (_, away) = crew.count().await?;
                wait(phase).await;
                self.cluster.start().await?;
                Ok(Harm::with_loss(from, Some(affected(away, phase.quota))))
            }
            Fault::OneFrozen => {
                node.freeze().await?;
                wait(phase).await;
                self.cluster.thaw().await?;
                Ok(Harm::without_loss(from))
            }
            Fault::SlotsMoved => {
                let (mut class, mut moved) = (0, 0);
                again(phase, Duration::from_millis(20), async || {
                    let key = KeyId { class: class % BUSY, number: 0 };
                    class += 1;
                    moved += self.move_slot(&key.text(phase.number)).await?;
                    Ok(())
                })
                .await?;
                ensure!(moved > 0, "the slots that moved had no meters in them");
                Ok(Harm::without_loss(from))
            }
            Fault::ScriptsFlushed => {
                flush_scripts(self.cluster.nodes(), phase).await?;
                Ok(Harm::without_loss(from))
            }
            other => unknown(other),
        }
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        connections_of(self.cluster.nodes()).await
    }
}

async fn id(node: &mut MultiplexedConnection) -> Result<String> {
    Ok(redis::cmd("CLUSTER").arg("MYID").query_async(node).await?)
}
