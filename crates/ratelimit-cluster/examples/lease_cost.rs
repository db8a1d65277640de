//! What a check costs that a lease pays, beside one on memory: one thread, 100,000 active keys.
//!
//! `cargo run --release -p ratelimit-cluster --example lease_cost`
#![allow(clippy::disallowed_methods, reason = "measures how long checks take")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::executor::block_on;
use ratelimit_cluster::Leased;
use ratelimit_core::{
    Answer, Claims, CounterStore, Limit, ManualClock, Promises, RateLimiter, Refund, StoreError, Timestamp,
};
use ratelimit_memory::MemoryStore;

const KEYS: u64 = 100_000;
const ROUNDS: u64 = 50;

/// Counts the trips that a server would have seen.
#[derive(Debug, Default)]
struct Counting(MemoryStore, AtomicU64);

impl CounterStore for Counting {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

fn main() {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let memory = measure("memory", MemoryStore::new(), &keys).1;
    let (leased, each) = measure("leases on memory", Leased::new(Counting::default()), &keys);
    let trips = leased.store().inner().1.load(Ordering::Relaxed);
    println!(
        "{:.0} % of memory's time; {trips} trips for {} checks",
        100.0 * each / memory,
        KEYS * (ROUNDS + 10)
    );
}

#[allow(clippy::cast_precision_loss)]
fn measure<S: CounterStore>(name: &str, store: S, keys: &[String]) -> (RateLimiter<S, ManualClock>, f64) {
    let limit: Limit = "10000/h".parse().expect("a limit");
    let limiter =
        RateLimiter::new(store, limit).with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let round = || {
        for key in keys {
            assert!(block_on(limiter.check(key)).expect("an answer").allowed());
        }
    };
    (0..10).for_each(|_| round());
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    let each = began.elapsed().as_nanos() as f64 / (KEYS * ROUNDS) as f64;
    println!("{name}: {each:.0} ns a check");
    (limiter, each)
}
