//! What the layers around a store cost: a check on the memory store by itself, under a closed breaker, under all of
//! `Resilience`, and while the breaker is open, without a fallback and with one.
//!
//! The stores take turns, so that what else the machine does falls on all of them. The result is the tenth percentile of all
//! passes, because other work only adds to the times.
//!
//! `cargo run --release -p ratelimit-memory --example layer_cost`
#![allow(clippy::disallowed_methods, reason = "measures how long checks take")]

use std::time::{Duration, Instant};

use ratelimit_memory::core::layers::{Breaker, BreakerConfig, Divided, Fallback, Resilience};
use ratelimit_memory::core::store::{Answer, Claims, Promises, Refund};
use ratelimit_memory::core::{CounterStore, ErrorKind, StoreError, SystemClock};
use ratelimit_memory::{Limit, MemoryStore, RateLimiter, Timestamp};

const CHECKS: u32 = 20_000;
const PASSES: usize = 100;

/// A store that is away.
#[derive(Debug)]
struct Away(MemoryStore);

impl CounterStore for Away {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, _: Claims<'_>) -> Result<Answer, StoreError> {
        Err(StoreError::new("away", ErrorKind::Unreachable, "on purpose"))
    }

    async fn refund(&self, _: Timestamp, _: &[Refund<'_>]) -> Result<(), StoreError> {
        Err(StoreError::new("away", ErrorKind::Unreachable, "on purpose"))
    }

    async fn reset(&self, _: Claims<'_>) -> Result<(), StoreError> {
        Err(StoreError::new("away", ErrorKind::Unreachable, "on purpose"))
    }
}

/// Nanoseconds of a check, after each pass.
async fn pass<S: CounterStore>(limiter: &RateLimiter<S, SystemClock>, answers: bool, took: &mut Vec<f64>) {
    let begun = Instant::now();
    for _ in 0..CHECKS {
        assert_eq!(std::hint::black_box(limiter.check("user:7").await).is_ok(), answers);
    }
    took.push(begun.elapsed().as_secs_f64() * 1e9 / f64::from(CHECKS));
}

fn on<S: CounterStore>(store: S) -> Result<RateLimiter<S>, Box<dyn std::error::Error>> {
    Ok(RateLimiter::new(store, "900000000/h".parse::<Limit>()?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One pause for the whole measurement.
    let hour = Duration::from_secs(3_600);
    let config = BreakerConfig::default().first_pause(hour).longest_pause(hour);
    let bare = on(MemoryStore::new())?;
    let closed = on(Breaker::new(MemoryStore::new(), config))?;
    let all = on(Resilience::new(MemoryStore::new()).breaker(config).fallback(MemoryStore::new(), 4))?;
    let open = on(Breaker::new(Away(MemoryStore::new()), config))?;
    let memory = Divided::new(MemoryStore::new(), 4);
    let fallback = on(Fallback::new(Breaker::new(Away(MemoryStore::new()), config), memory))?;
    for _ in 0..10 {
        // Opens both.
        let _ = (open.check("user:7").await, fallback.check("user:7").await);
    }
    let mut took = [const { Vec::new() }; 5];
    for _ in 0..PASSES {
        pass(&bare, true, &mut took[0]).await;
        pass(&closed, true, &mut took[1]).await;
        pass(&all, true, &mut took[2]).await;
        pass(&open, false, &mut took[3]).await;
        pass(&fallback, true, &mut took[4]).await;
    }
    let names = [
        "memory store by itself",
        "under a closed breaker",
        "under all of Resilience",
        "breaker open: the error",
        "breaker open: the fallback's decision",
    ];
    for (name, mut took) in names.into_iter().zip(took) {
        took.sort_by(f64::total_cmp);
        println!("{name}: {:.0} ns a check", took[PASSES / 10]);
    }
    Ok(())
}
