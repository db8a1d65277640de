//! What the calls of a store share: its servers, its settings, and hints between its calls.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::Mode;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::config::MemcachedConfig;
use crate::error::Failure;
use crate::hints::Hints;
use crate::keys::{OFFSET, stable_hash};
use crate::lifetime::Lifetimes;
use crate::optimistic::is_optimistic;
use crate::servers::Servers;
use crate::slice::{Ask, Slice};

/// So many bucket and log meters can be written at once from this process.
const STRIPES: usize = 1_024;

/// What the calls of a store share.
pub(crate) struct Space {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) max_value: usize,
    pub(crate) timeout: Duration,
    /// Which meters have refused, and until when.
    pub(crate) full: Hints,
    stripes: Vec<Mutex<()>>,
}

/// The right to write some meters.
pub(crate) type Turns<'a> = Vec<MutexGuard<'a, ()>>;

impl Space {
    pub(crate) fn new(config: MemcachedConfig) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self {
            servers: Servers::new(&config.addresses()?, config.connections),
            lifetimes: Lifetimes::new(config.slack()),
            max_value: config.max_value(),
            timeout: config.timeout,
            prefix: config.prefix,
            full: Hints::default(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }))
    }

    /// When a call that begins now has to be over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Waits until no other task of this process writes the same bucket or log meters: they would only lose to each other.
    pub(crate) async fn turns<'a, 'b>(
        &'a self,
        asks: impl Iterator<Item = &'b Ask>,
        deadline: Instant,
    ) -> Result<Turns<'a>, Failure> {
        let written = asks.filter(|ask| ask.cost > 0 && is_optimistic(ask));
        let mut stripes: Vec<usize> = written.map(|ask| stripe(&ask.spot.name)).collect();
        // In ascending order, so that two tasks never wait for each other.
        stripes.sort_unstable();
        stripes.dedup();
        let mut turns = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            let turn = timeout_at(deadline, self.stripes[stripe].lock()).await;
            turns.push(turn.map_err(|_| Failure::contended())?);
        }
        Ok(turns)
    }

    /// The turns that slices need.
    pub(crate) async fn turns_of(&self, slices: &[Slice], deadline: Instant) -> Result<Turns<'_>, Failure> {
        let charging = slices.iter().filter(|slice| slice.mode != Mode::Peek && !slice.never_fits());
        self.turns(charging.flat_map(|slice| &slice.asks), deadline).await
    }
}

fn stripe(name: &str) -> usize {
    usize::try_from(stable_hash(name.as_bytes(), OFFSET) % STRIPES as u64).unwrap_or(0)
}
