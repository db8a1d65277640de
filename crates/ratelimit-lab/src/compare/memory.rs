//! Measures the memory that a store takes for each key.

use ratelimit_core::{Limit, ManualClock, RateLimiter, Timestamp};
use ratelimit_memory::{MemoryConfig, MemoryStore};

/// The maximum number of checks that fill the keys.
const CHECKS: u64 = 1_000_000;

/// Fills from 10 to 10,000 keys with the quota, evenly over one period, and returns the bytes that the store has
/// allocated for each. Of a quota above 100,000, only the first 100,000 units are used. `allocated` returns how many
/// bytes the program has allocated.
pub(super) fn bytes_per_key(limit: &Limit, allocated: fn() -> usize) -> anyhow::Result<f64> {
    let clock = ManualClock::default();
    // One shard, since each shard has room for a few more keys than it holds.
    let store = MemoryStore::with_config(MemoryConfig::default().shards(1));
    let limiter = RateLimiter::new(store, limit.clone()).with_clock(clock.clone());
    let keys = (CHECKS / limit.quota().max(1)).clamp(10, 10_000);
    let empty = allocated();
    let step = limit.period() / u32::try_from(limit.quota()).unwrap_or(u32::MAX).max(1);
    let mut time = Timestamp::from_secs(1_000_000_000);
    for _ in 0..limit.quota().min(CHECKS / keys) {
        clock.set(time);
        time = time + step;
        for key in 0..keys {
            limiter.check_now(&key.to_le_bytes())?;
        }
    }
    limiter.store().shrink_to_fit();
    let full = allocated();
    anyhow::ensure!(full >= empty, "the program has freed memory meanwhile");
    Ok(crate::engine::share((full - empty) as u64, keys))
}
