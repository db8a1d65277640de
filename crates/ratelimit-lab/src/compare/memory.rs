//! Measures the memory that a store takes for each key.

use ratelimit_core::{Algorithm, Limit, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memory::{MemoryConfig, MemoryStore};

/// The maximum number of keys.
const KEYS: u64 = 10_000;

/// About how many units the logs of all keys have, if there are more than ten keys.
const UNITS: u64 = 1_000_000;

/// The maximum number of charges that use up a quota. A segmented window that is compared has fewer segments.
const CHARGES: u64 = 100;

/// Fills keys with the quota, evenly over one period, and returns the bytes that the store has allocated for each.
/// `allocated` returns how many bytes the program has allocated.
pub(super) fn bytes_per_key(limit: &Limit, allocated: fn() -> usize) -> anyhow::Result<f64> {
    let clock = ManualClock::default();
    // One shard, since each shard has room for a few more keys than it holds.
    let store = MemoryStore::with_config(MemoryConfig::default().shards(1));
    let limiter = RateLimiter::new(store, limit.clone()).with_clock(clock.clone());
    // Only a log grows with the quota. Everything else has many keys, so that what the store has once counts little.
    let keys = match limit.algorithm() {
        Algorithm::SlidingLog => (UNITS / limit.quota().max(1)).clamp(10, KEYS),
        _ => KEYS,
    };
    let charges = limit.quota().clamp(1, CHARGES);
    let units = |charges_done: u64| limit.quota() * charges_done / charges;
    let step = limit.period() / u32::try_from(charges).unwrap_or(u32::MAX);
    let empty = allocated();
    let mut time = Timestamp::from_secs(1_000_000_000);
    for charge in 0..charges {
        clock.set(time);
        time = time + step;
        let cost = units(charge + 1) - units(charge);
        for key in 0..keys {
            limiter.check_now(Request::new(&key.to_le_bytes()).cost(cost))?;
        }
    }
    limiter.store().shrink_to_fit();
    let full = allocated();
    anyhow::ensure!(full >= empty, "the program has freed memory meanwhile");
    Ok(crate::engine::share((full - empty) as u64, keys))
}
