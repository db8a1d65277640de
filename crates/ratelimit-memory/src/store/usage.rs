//! How many meters a store has, how many it has evicted, and freeing its memory.

use ratelimit_core::kit;

use super::{MemoryStore, NAME};

impl MemoryStore {
    /// The number of stored meters, including expired ones that have not been removed yet.
    ///
    /// One key under three limits has three meters. Takes no lock. The number is exact if no other thread uses the store.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether the store has no meters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of meters that were evicted although they still counted, since the store was created. Their keys have
    /// begun anew, with a full quota. If it rises, raise [`max_keys`](crate::MemoryConfig::max_keys).
    ///
    /// Meters that were empty, or whose time was over, are not among them. A meter whose time has just ended may count for
    /// up to a second more. With the feature `metrics` of [`ratelimit_core`], which that of `ratelimit-tower` enables, this is
    /// also the metric `ratelimit_evicted_total{store="memory"}`.
    ///
    /// ```
    /// use ratelimit_memory::{Limit, MemoryConfig, MemoryStore, RateLimiter};
    ///
    /// let store = MemoryStore::with_config(MemoryConfig::default().max_keys(1_000));
    /// let limiter = RateLimiter::new(store, "10/min".parse::<Limit>()?);
    /// for user in 0..1_500 {
    ///     limiter.check_now(&*format!("user:{user}"))?;
    /// }
    /// assert!(limiter.store().evicted() >= 500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// Records that meters were evicted that still counted. The caller must hold no lock: what the program has installed for
    /// its metrics runs in this call.
    #[cold]
    pub(crate) fn count_evicted(&self, meters: u64) {
        self.evicted.add(meters);
        kit::count_evicted(NAME, meters);
    }

    /// Frees the memory that the current meters do not need. The allocator decides how much of it is returned to the
    /// system.
    ///
    /// Checks continue meanwhile; only those on one shard at a time wait, for some dozen microseconds. This removes no
    /// meters. So call it when the keys of a flood have expired and later checks have removed them, or every hour.
    ///
    /// ```
    /// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(MemoryStore::new(), "10/min".parse::<Limit>()?);
    /// assert!(limiter.check_now("user:7")?.allowed());
    /// limiter.store().shrink_to_fit();
    /// assert_eq!(limiter.peek_now("user:7")?.remaining(), 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink_to_fit(&self) {
        for number in 0..self.shards.count() {
            let idle = self.shards.lock(number).shrink_to_fit();
            drop(idle); // after the lock is released
        }
    }
}
