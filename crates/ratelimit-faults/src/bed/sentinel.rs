//! A Redis primary and its replica, watched by sentinels.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use ratelimit_testbed::{Sentinel, Server, Testbed};

use super::base::{Harm, now, unknown};
use super::redis::{connect, connections_of};
use crate::crew::Crew;
use crate::fault::Fault;
use crate::history::Loss;
use crate::plan::Phase;

/// How long a primary may be silent before the sentinels replace it. On a busy machine an answer may take half a second
/// although nothing is wrong.
const DOWN_AFTER: Duration = Duration::from_secs(2);

/// How long the sentinels may take to replace it.
const REPLACE: Duration = Duration::from_secs(60);

/// Two servers and three sentinels.
pub(super) struct Bed(Sentinel);

impl Bed {
    pub(super) async fn start(testbed: &Testbed) -> Result<Self> {
        Ok(Self(testbed.redis_sentinel(DOWN_AFTER).await?))
    }

    /// The highest epoch of the sentinels. It increases each time they replace the primary.
    async fn epoch(&self) -> Result<u64> {
        let mut epoch = 0;
        for sentinel in self.0.sentinels() {
            let mut ask = redis::cmd("SENTINEL");
            let ask = ask.arg("MASTER").arg("limits");
            let known: HashMap<String, String> = ask.query_async(&mut connect(sentinel).await?).await?;
            epoch = epoch.max(known.get("config-epoch").context("a sentinel has no epoch")?.parse()?);
        }
        Ok(epoch)
    }

    /// Returns when the sentinels agree on another primary.
    async fn replaced(&self, before: &Server) -> Result<()> {
        let waiting = async {
            // It retries by itself while they disagree.
            while self.0.primary().await?.address() == before.address() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(REPLACE, waiting).await {
            Ok(replaced) => replaced,
            Err(_) => bail!("the sentinels have not replaced the primary within {REPLACE:?}"),
        }
    }
}

#[async_trait(?Send)]
impl super::base::Bed for Bed {
    fn url(&self, _worker: usize) -> String {
        self.0.url()
    }

    async fn inflict(&self, phase: &Phase, _crew: &Crew) -> Result<Harm> {
        let primary = self.0.primary().await?;
        let (from, before) = (now(), self.epoch().await?);
        match phase.fault {
            Fault::FailOver => self.0.fail_over().await?,
            Fault::PrimaryKilled => {
                primary.kill().await?;
                self.replaced(&primary).await?;
                self.0.start().await?;
            }
            Fault::PrimaryFrozen => {
                primary.freeze().await?;
                self.replaced(&primary).await?;
                self.0.thaw().await?;
            }
            other => return unknown(other),
        }
        // The new primary may lack what the old one had not yet sent it. A client that has just connected to the old one
        // may use it for a second after it has come back. On a busy machine the sentinels may replace the new one as well.
        let mut harm = Harm::with_loss(from, None);
        let times = usize::try_from(self.epoch().await?.saturating_sub(before))?;
        let loss = Loss { is_split: true, ..harm.losses.swap_remove(0) };
        harm.losses = vec![loss; times.max(1)];
        Ok(harm)
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        connections_of(self.0.servers()).await
    }
}
