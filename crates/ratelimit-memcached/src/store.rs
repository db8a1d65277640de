//! The store.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{OptionFuture, join, join_all};
use ratelimit_core::kit::{RunToEnd, all_of};
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use crate::config::MemcachedConfig;
use crate::decide::claims::{OwnedClaim, OwnedClaims, OwnedRefund};
use crate::decide::decide;
use crate::decide::refund::RefundAt;
use crate::decide::space::Space;
use crate::decide::{refund, reset, window};
use crate::error::ERRORS;
use crate::servers::Servers;

/// The maximum number of commands in one round trip of [`CounterStore::claim_many`], unless a single slice has more.
const COMMANDS: usize = 4_096;

/// The maximum number of units that one such round trip reserves, unless a single slice has more.
const MOST_RESERVED: u64 = 1 << 50;

/// Counts on Memcached: on one server, or on several that share the keys.
///
/// See the [crate's documentation](crate) for its guarantees. A call ends within [`MemcachedConfig::timeout`]. A connection
/// that breaks or stops answering is replaced by the next call.
///
/// Cloning is cheap; clones share the connections. The store needs a tokio runtime with I/O and time.
#[derive(Clone)]
pub struct MemcachedStore {
    pub(crate) space: Arc<Space>,
}

impl MemcachedStore {
    /// Connects to the servers in `url`; see [`MemcachedConfig::from_url`].
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if an address, an option, the prefix, the
    /// log-in or a certificate is not valid, or if a server has settings with which it loses counts. The errors of a call
    /// if one of the servers does not answer within the time limit or refuses the log-in.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(MemcachedConfig::from_url(url)?).await
    }

    /// Connects to the servers of `config`.
    ///
    /// # Errors
    /// The same as [`connect`](Self::connect).
    pub async fn connect_with(config: MemcachedConfig) -> Result<Self, StoreError> {
        let store = Self::lazy(config)?;
        store.space.servers.connect(store.space.deadline()).await?;
        Ok(store)
    }

    /// A store that connects on its first call: for a program that must be able to start while a server is down.
    ///
    /// # Errors
    /// If an address, the prefix, the log-in or a certificate is not valid, or if TLS needs the feature `tls`.
    pub fn lazy(config: MemcachedConfig) -> Result<Self, StoreError> {
        Ok(Self { space: Space::new(Servers::new(&config)?, config) })
    }

    /// A store that sends only the plain text protocol, over the connections of this pool: for a proxy (twemproxy; mcrouter
    /// is not tested), and for servers without meta commands.
    ///
    /// Of the configuration it uses the prefix, the timeout, the clock slack and the maximum size of an item. Servers and
    /// connections belong to the pool. It connects on its first call.
    ///
    /// ```
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratelimit_memcached::{MemcacheManager, MemcachePool, MemcachedConfig, MemcachedStore};
    ///
    /// let manager = MemcacheManager::new("memcached://127.0.0.1:22121")?;
    /// let pool = MemcachePool::builder(manager).max_size(16).build()?;
    /// let store = MemcachedStore::with_pool(pool, MemcachedConfig::default().prefix("limits"))?;
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    ///
    /// # Errors
    /// If the prefix is not valid.
    #[cfg(feature = "memcache")]
    #[cfg_attr(docsrs, doc(cfg(feature = "memcache")))]
    pub fn with_pool(pool: crate::MemcachePool, config: MemcachedConfig) -> Result<Self, StoreError> {
        crate::config::check::prefix(&config)?;
        Ok(Self { space: Space::new(Servers::on_pool(pool), config) })
    }

    fn slice(&self, claims: &Claims<'_>) -> OwnedClaims {
        OwnedClaims::new(claims, |id| self.space.location(id))
    }

    /// Decides slices. Runs to completion even if the call is dropped, so that nothing stays reserved.
    fn decide(&self, slices: Vec<OwnedClaims>) -> RunToEnd<Vec<Result<Answer, StoreError>>> {
        RunToEnd::new(self.deciding(slices))
    }

    fn deciding(
        &self,
        slices: Vec<OwnedClaims>,
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send + use<> {
        let (space, deadline) = (self.space.clone(), self.space.deadline());
        async move {
            let mut outcomes = Vec::new();
            let mut rest = &slices[..];
            while !rest.is_empty() {
                let (trip, later) = rest.split_at(trip(rest));
                outcomes.extend(decide(&space, trip, deadline).await);
                rest = later;
            }
            outcomes
        }
    }
}

/// How many slices fit into one round trip, by their number of commands and by what they reserve: counters must stay far from
/// 2^64.
fn trip(slices: &[OwnedClaims]) -> usize {
    let (mut size, mut units) = (0, 0_u64);
    let fits = slices.iter().take_while(|slice| {
        for claim in &slice.claims {
            size += commands(claim);
            units = units.saturating_add(claim.cost);
        }
        size <= COMMANDS && units <= MOST_RESERVED
    });
    fits.count().max(1)
}

fn commands(claim: &OwnedClaim) -> usize {
    match &claim.meter {
        Meter::Window(window) => window.carried() as usize + 2,
        Meter::Bucket(_) | Meter::Log(_) => 1,
    }
}

impl fmt::Debug for MemcachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcachedStore")
            .field("servers", &self.space.servers.addresses())
            .field("prefix", &self.space.prefix)
            .finish_non_exhaustive()
    }
}

impl CounterStore for MemcachedStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Conservative, Time::Caller).not_monotonic()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut outcomes = self.decide(vec![self.slice(&claims)]).await;
        outcomes.pop().unwrap_or_else(|| Err(ERRORS.stopped().maybe_applied()))
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let slices = slices.iter().map(|claims| self.slice(claims)).collect();
        self.decide(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let deadline = self.space.deadline();
        let refunds = refunds.iter().filter(|refund| refund.cost > 0);
        let (mut deductions, mut entries) = (Vec::new(), Vec::new());
        for owned in refunds.map(|refund| OwnedRefund::new(refund, |id| self.space.location(id))) {
            match &owned.claim.meter {
                Meter::Window(window) => deductions.push(window::refund(&owned.claim, window, owned.receipt)),
                Meter::Bucket(_) | Meter::Log(_) => entries.push(RefundAt { refund: owned, now }),
            }
        }
        let space = &self.space;
        let windows = (!deductions.is_empty()).then(|| refund::take_everywhere(space, deductions, deadline));
        let others = refund::by_server(entries).into_iter().map(|of_server| async move {
            let _locks =
                space.locks(of_server.iter().map(|returned| &returned.refund.claim), deadline).await?;
            refund::refund(space, of_server, deadline).await
        });
        let (windows, others) = join(OptionFuture::from(windows), join_all(others)).await;
        all_of(windows.into_iter().chain(others))
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = self.space.deadline();
        reset::forget(&self.space, claims, deadline).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_decision_future_fits_the_allocators_free_lists() {
        // See `connection.rs`: the allocator's free lists hold sizes up to 1,032 bytes.
        let store = MemcachedStore::lazy(MemcachedConfig::of("127.0.0.1")).expect("valid");
        let size = size_of_val(&store.deciding(Vec::new()));
        assert!(size <= 1_032, "{size} bytes");
    }
}
