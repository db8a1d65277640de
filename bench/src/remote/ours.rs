//! Our limiter on a server.

use anyhow::{Result, ensure};
use ratelimit_core::{CounterStore, RateLimiter};

use super::load::{Chooser, Remote};

/// A limiter that is called with batches of this size, or key by key.
pub(super) struct Ours<S> {
    pub(super) limiter: RateLimiter<S>,
    pub(super) batch: usize,
}

impl<S: CounterStore + 'static> Remote for Ours<S> {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        if self.batch == 1 {
            ensure!(self.limiter.check(keys.one()).await?.allowed(), "it was refused");
            return Ok(1);
        }
        let keys = keys.many(self.batch).iter().map(|key| &key.text);
        let mut decisions = 0;
        for decision in self.limiter.check_many(keys).await {
            ensure!(decision?.allowed(), "it was refused");
            decisions += 1;
        }
        Ok(decisions)
    }
}
