//! What the calls of a store share: servers, settings and hints.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::kit::{deadline_after, halfway_to};
use ratelimit_core::store::{MeterId, Mode};
use ratelimit_store_kit::Lifetime;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::config::MemcachedConfig;
use crate::decide::claims::{MeterLocation, OwnedClaim, OwnedClaims};
use crate::decide::hints::Hints;
use crate::decide::optimistic::is_optimistic;
use crate::error;
use crate::servers::Servers;
use crate::wire::keys::{OFFSET, name_of, stable_hash};
use crate::wire::lifetime::Lifetimes;

/// The number of locks for bucket and log meters.
const STRIPES: usize = 1_024;

/// What the calls of a store share.
pub(crate) struct Space {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) max_value: usize,
    pub(crate) timeout: Duration,
    /// Hints on full meters.
    pub(crate) full: Hints,
    stripes: Vec<Mutex<()>>,
}

/// The locks on some meters.
pub(crate) type MeterLocks<'a> = Vec<MutexGuard<'a, ()>>;

impl Space {
    pub(crate) fn new(servers: Servers, config: MemcachedConfig) -> Arc<Self> {
        Arc::new(Self {
            servers,
            lifetimes: Lifetimes::new(Lifetime::slack(config.clock_slack)),
            max_value: config.max_value(),
            timeout: config.timeout,
            prefix: config.prefix,
            full: Hints::default(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        })
    }

    /// Where a meter is stored.
    pub(crate) fn location(&self, id: &MeterId<'_>) -> MeterLocation {
        MeterLocation { name: name_of(&self.prefix, id).into(), server: self.servers.choose(id) }
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        deadline_after(self.timeout)
    }

    /// Waits until no other call of this store writes the same bucket or log meters: their writes would only collide. Gives
    /// up after half of the time that is left, so that a call whose turn comes has the other half for its round trips.
    pub(crate) async fn locks<'a, 'b>(
        &'a self,
        claims: impl Iterator<Item = &'b OwnedClaim>,
        deadline: Instant,
    ) -> Result<MeterLocks<'a>, StoreError> {
        let written = claims.filter(|claim| claim.cost > 0 && is_optimistic(claim));
        let mut stripes: Vec<usize> = written.map(|claim| stripe(&claim.key.name)).collect();
        // In ascending order, so that tasks do not deadlock.
        stripes.sort_unstable();
        stripes.dedup();
        let mut locks = Vec::with_capacity(stripes.len());
        let latest = halfway_to(deadline);
        for stripe in stripes {
            let turn = timeout_at(latest, self.stripes[stripe].lock()).await;
            locks.push(turn.map_err(|_| error::contended())?);
        }
        Ok(locks)
    }

    /// The locks that slices need.
    pub(crate) async fn locks_of(
        &self,
        slices: &[OwnedClaims],
        deadline: Instant,
    ) -> Result<MeterLocks<'_>, StoreError> {
        let charging = slices.iter().filter(|slice| slice.mode != Mode::Peek && !slice.never_fit());
        self.locks(charging.flat_map(|slice| &slice.claims), deadline).await
    }
}

fn stripe(name: &str) -> usize {
    usize::try_from(stable_hash(name.as_bytes(), OFFSET) % STRIPES as u64).unwrap_or(0)
}
