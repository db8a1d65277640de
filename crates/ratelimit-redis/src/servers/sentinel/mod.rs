//! A primary and replicas watched by sentinels: calls are sent to whichever server is the primary.

mod watch;

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::error::ERRORS;
use crate::servers::discovery::Discovery;
use crate::servers::server::Server;

use self::watch::Watch;
use crate::config::sentinel::Address;

/// The interval at which a store in use asks the sentinels although nothing has failed: a primary that they have replaced
/// may still answer this program.
const REFRESH: Duration = Duration::from_secs(1);

/// How many times a call is sent to another server because the previous one is not the primary.
const CHANGES: u32 = 3;

/// The connections to the primary.
pub(crate) struct Sentinel {
    watch: Arc<Watch>,
    survey: Discovery,
    address: String,
}

impl Sentinel {
    pub(crate) fn new(address: &Address, config: &RedisConfig) -> Result<Self, StoreError> {
        let watch = Arc::new(Watch::new(address, config)?);
        let survey = Discovery::new({
            let watch = watch.clone();
            move || watch.clone().look()
        });
        Ok(Self { address: watch.address(), watch, survey })
    }

    /// The addresses of the sentinels.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Finds the primary and connects to it.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.primary(deadline).await?.connect(deadline).await
    }

    /// Sends a command to the primary.
    pub(crate) async fn send(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let mut primary = self.primary(deadline).await?;
        let mut changes = 0;
        loop {
            match primary.send(cmd, deadline).await {
                Err(failure) if changes < CHANGES => {
                    changes += 1;
                    primary = self.other_primary(&primary, failure, deadline).await?;
                }
                outcome => return outcome,
            }
        }
    }

    /// The last known primary; waits for a survey if there is none.
    async fn primary(&self, deadline: Instant) -> Result<Arc<Server>, StoreError> {
        if let Some(primary) = self.watch.primary() {
            if self.survey.is_older_than(REFRESH) {
                self.survey.begin();
            }
            return Ok(primary);
        }
        self.survey.wait(deadline).await.map_err(|failure| failure.at(&self.address))?;
        self.watch.primary().ok_or_else(|| {
            ERRORS.of(ErrorKind::Unreachable, "the sentinels know no primary").at(&self.address)
        })
    }

    /// The primary that has replaced a failed one, or the failure if there is none.
    async fn other_primary(
        &self,
        failed: &Arc<Server>,
        failure: StoreError,
        deadline: Instant,
    ) -> Result<Arc<Server>, StoreError> {
        if matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::Timeout) {
            self.survey.begin();
        }
        self.survey.other_than(failed, failure, || self.watch.primary(), deadline).await
    }
}
