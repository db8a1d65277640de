//! The store of a worker: the one that its URL names, also in the layers of `Resilience`, or broken on purpose.

mod broken;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
pub(crate) use broken::Broken;
use clap::ValueEnum;
use ratelimit_core::layers::{BreakerConfig, Resilience};
use ratelimit_core::{RateLimiter, StoreError};
use ratelimit_memory::MemoryStore;
use ratelimit_stores::Store;

use crate::clock::MovedClock;
use crate::load::Class;

/// How long a call may take, by the store's own limit.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// How many connections each worker may have to each server.
pub(crate) const CONNECTIONS: usize = 2;

/// The number of instances among which a fallback divides the limits.
pub(crate) const INSTANCES: u32 = 3;

/// How often opening a store is tried: a busy machine may keep a server from answering within the time limit.
const ATTEMPTS: u32 = 20;

/// A limiter of a worker.
pub(crate) type Limiter = RateLimiter<Store, MovedClock>;

/// The layers around a store: none, or those of `Resilience` with a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    Plain,
    Fallback,
}

impl Stack {
    /// Opens the store.
    pub(crate) async fn open(self, url: &str, broken: Option<Broken>) -> Result<Store> {
        let mut store = connect(url).await;
        for _ in 1..ATTEMPTS {
            if store.is_err() {
                store = connect(url).await;
            }
        }
        let store = store.context("the store does not open")?;
        let store = match broken {
            Some(broken) => broken.around(store),
            None => store,
        };
        Ok(match self {
            Self::Plain => store,
            Self::Fallback => {
                // The longest pause bounds the recovery.
                let breaker = BreakerConfig::default().longest_pause(Duration::from_millis(500));
                let stack = Resilience::new(store).timeout(TIMEOUT / 2).breaker(breaker);
                Arc::new(stack.fallback(MemoryStore::new(), INSTANCES))
            }
        })
    }
}

async fn connect(url: &str) -> Result<Store, StoreError> {
    if url == "memory:" {
        return ratelimit_stores::connect(url).await;
    }
    let mark = if url.contains('?') { '&' } else { '?' };
    let timeout = TIMEOUT.as_millis();
    ratelimit_stores::connect(&format!("{url}{mark}timeout={timeout}ms&connections={CONNECTIONS}")).await
}

/// A limiter for each class.
pub(crate) fn limiters(
    store: &Store,
    clock: &MovedClock,
    classes: Vec<Class>,
) -> Result<Vec<(Class, Limiter)>> {
    let limiter = |class: Class| {
        let limiter = RateLimiter::new(Arc::clone(store), class.limit()?).with_clock(clock.clone());
        Ok((class, limiter.with_namespace("faults")))
    };
    classes.into_iter().map(limiter).collect()
}
