//! Several threads on one store: every unit is counted once, and no thread waits forever.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_memory::core::IntoLimits;
use ratelimit_memory::{
    Limit, Limits, ManualClock, MemoryConfig, MemoryStore, RateLimiter, Request, Timestamp,
};

const THREADS: usize = 8;

/// Runs `work` in all threads at once.
fn in_threads(work: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

fn limiter(shards: usize, limits: impl IntoLimits) -> RateLimiter<MemoryStore, ManualClock> {
    let store = MemoryStore::with_config(MemoryConfig::default().shards(shards));
    RateLimiter::new(store, limits).with_clock(ManualClock::at(Timestamp::from_secs(1_000)))
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// Exactly the limit is admitted, however many requests are concurrent.
fn check(text: &str) {
    let limiter = limiter(1_024, limit(text));
    let most = limiter.limits()[0].burst();
    let admitted = AtomicU64::new(0);
    in_threads(|_| {
        for _ in 0..most {
            let decision = limiter.check_now("user:7").unwrap();
            admitted.fetch_add(decision.allowed().into(), Ordering::Relaxed);
        }
    });
    assert_eq!(admitted.into_inner(), most, "{text}");
}

#[test]
fn exactly_the_limit_is_admitted() {
    for text in [
        "10000/min fixed",
        "10000/min",
        "10000/min precision 1s",
        "10000/min precision 1s strict",
        "10000/min log",
        "100/min burst 10000",
        "100/min leaky burst 10000",
        "100/min queue burst 10000",
    ] {
        check(text);
    }
}

#[test]
fn slices_over_several_keys_in_any_order_neither_deadlock_nor_miscount() {
    // One, two and many shards: with two, checks often need both; with many, nearly always different ones.
    for shards in [1, 2, 64] {
        let limits = Limits::new([limit("3000/min"), limit("3000/min fixed")]).unwrap();
        let limiter = limiter(shards, limits);
        let keys = ["a", "b", "c", "d"];
        let admitted: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
        in_threads(|thread| {
            for round in 0..2_000 {
                let first = (thread + round) % keys.len();
                let second = (first + 1 + (thread / 2 + round) % (keys.len() - 1)) % keys.len();
                let pair = Request::new(keys[first]).and(keys[second]);
                if limiter.check_now(pair).unwrap().allowed() {
                    admitted[first].fetch_add(1, Ordering::Relaxed);
                    admitted[second].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut exhausted = 0;
        for (key, admitted) in keys.iter().zip(admitted) {
            let admitted = admitted.into_inner();
            let decision = limiter.peek_now(*key).unwrap();
            for status in decision.each() {
                assert_eq!(status.remaining(), 3_000 - admitted, "{shards} {key}");
            }
            exhausted += usize::from(admitted == 3_000);
        }
        // As long as two keys have room, some thread gets a pair.
        assert!(exhausted >= keys.len() - 1, "{shards}: {exhausted}");
    }
}

#[test]
fn concurrent_refunds_and_charges_are_counted_exactly() {
    let limiter = limiter(4, limit("1000000/min burst 1000000"));
    let kept = AtomicU64::new(0);
    in_threads(|thread| {
        for round in 0..2_000 {
            let decision = limiter.check_now("user:7").unwrap();
            if (thread + round) % 3 == 0 {
                kept.fetch_add(1, Ordering::Relaxed);
            } else {
                limiter.refund_now(&decision);
            }
        }
    });
    assert_eq!(limiter.peek_now("user:7").unwrap().remaining(), 1_000_000 - kept.into_inner());
}

#[test]
fn concurrent_evictions_keep_the_number_of_keys_bounded() {
    let config = MemoryConfig::default().max_keys(1_000);
    let limits = Limits::new([limit("10/s"), limit("10/s burst 3")]).unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let limiter = RateLimiter::new(MemoryStore::with_config(config), limits).with_clock(clock.clone());
    in_threads(|thread| {
        for round in 0..5_000 {
            let key = format!("{}", (thread * 7_919 + round * 104_729) % 4_001);
            limiter.check_now(&key).unwrap();
            assert!(limiter.store().len() <= 1_000);
            if thread == 0 {
                clock.advance(Duration::from_millis(5));
            }
        }
    });
}

#[test]
fn every_unit_counts_while_the_store_shrinks() {
    for text in ["5/h", "5/h log"] {
        let limiter = limiter(16, limit(text));
        // Many of these places become free again.
        (0..20_000).for_each(|key| assert!(limiter.check_now(&*format!("flood:{key}")).unwrap().allowed()));
        limiter.clock().advance(Duration::from_secs(20_000));
        let [admitted, shrunk, ended] = [(); 3].map(|()| AtomicU64::new(0));
        in_threads(|thread| {
            if thread == 0 {
                while ended.load(Ordering::Relaxed) < THREADS as u64 - 1 {
                    limiter.store().shrink_to_fit();
                    shrunk.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
            for key in (0..10).flat_map(|_| 0..1_000) {
                let decision = limiter.check_now(&*format!("user:{key}")).unwrap();
                admitted.fetch_add(decision.allowed().into(), Ordering::Relaxed);
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
        assert!(shrunk.into_inner() > 0);
        assert_eq!(admitted.into_inner(), 5_000, "{text}");
    }
}
