//! Many tasks on several stores: never more than the limit is admitted, and how much less.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Limiter, START, limits};
use ratelimit_core::{CheckError, ErrorKind, Limits, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memcached::MemcachedStore;
use tokio::sync::Barrier;

fn limiter(store: &MemcachedStore, limits: &Limits, now: Timestamp) -> Limiter {
    RateLimiter::new(store.clone(), limits.clone()).with_clock(ManualClock::at(now))
}

/// Stores of two processes; with the plain protocol also two of those, and one of each.
async fn pairs(server: &common::Server) -> Vec<[MemcachedStore; 2]> {
    #[allow(unused_mut)] // without the feature
    let mut pairs = vec![[server.store().await, server.store().await]];
    #[cfg(feature = "memcache")]
    for first in [server.store().await, common::plain(&server.address())] {
        pairs.push([first, common::plain(&server.address())]);
    }
    pairs
}

/// How many of these claims were admitted, refused and contended.
async fn storm(
    stores: &[MemcachedStore],
    limits: &Limits,
    now: Timestamp,
    tasks: usize,
    each: usize,
) -> [u64; 3] {
    let barrier = Arc::new(Barrier::new(tasks));
    let tasks: Vec<_> = (0..tasks)
        .map(|nth| {
            let limiter = limiter(&stores[nth % stores.len()], limits, now);
            let barrier = barrier.clone();
            tokio::spawn(async move {
                barrier.wait().await;
                let mut counts = [0; 3];
                for _ in 0..each {
                    match limiter.check("k").await {
                        Ok(decision) if decision.allowed() => counts[0] += 1,
                        Ok(_) => counts[1] += 1,
                        Err(CheckError::Store(error)) if error.kind() == ErrorKind::Contended => {
                            counts[2] += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                counts
            })
        })
        .collect();
    let mut sum = [0; 3];
    for task in tasks {
        let counts = task.await.unwrap();
        sum = std::array::from_fn(|nth| sum[nth] + counts[nth]);
    }
    sum
}

async fn drain(limiter: &Limiter) -> u64 {
    let mut admitted = 0;
    while limiter.check("k").await.unwrap().allowed() {
        admitted += 1;
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_never_exceed_the_limit() {
    let server = common::Server::start(&[]).await;
    let mut lines = Vec::new();
    let several = [
        ["200/h fixed"].as_slice(),
        &["200/h"],
        &["200/h precision 15min"],
        &["200/h precision 15min strict"],
        &["200/h burst 200"],
        &["200/h log"],
        &["300/min", "200/h burst 200", "250/h log"],
    ];
    let pairs = pairs(&server).await;
    for (stores, texts) in pairs.iter().flat_map(|stores| several.map(|texts| (stores, texts))) {
        let limits = limits(texts);
        let [admitted, refused, contended] = storm(stores, &limits, START, 64, 10).await;
        let alone = limiter(&stores[0], &limits, START);
        let later = drain(&alone).await;
        lines.push(format!("{texts:?}: {admitted} of 200 at once ({refused} refused, {contended} contended), {later} after it"));
        assert!(admitted <= 200, "{texts:?}: {admitted}");
        // All reservations of refused claims have been given back.
        assert_eq!(admitted + later, 200, "{texts:?}");
        alone.reset("k").await.unwrap();
        assert_eq!(drain(&alone).await, 200);
        alone.reset("k").await.unwrap();
    }
    println!("{}", lines.join("\n"));
}

/// The count before an increment is not enough: the previous window has to be weighted with the count in the reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_previous_window_is_not_forgotten_under_contention() {
    let server = common::Server::start(&[]).await;
    let stores = [server.store().await, server.store().await];
    for (nth, (text, at)) in
        [("100/min", 75), ("100/min precision 20s", 65)].into_iter().cycle().take(20).enumerate()
    {
        let limits = limits(&[&format!("{text} name n{nth}")]);
        let early = limiter(&stores[0], &limits, START + Duration::from_secs(10));
        assert!(early.check(Request::new("k").cost(60)).await.unwrap().allowed());
        let now = START + Duration::from_secs(at);
        let [admitted, ..] = storm(&stores, &limits, now, 64, 3).await;
        assert!(admitted <= 55, "{text}: {admitted} of 55");
        assert_eq!(admitted + drain(&limiter(&stores[1], &limits, now)).await, 55, "{text}");
    }
}

/// A full meter under load must still admit units that become free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refusals_under_load_do_not_block_units_that_become_free() {
    let server = common::Server::start(&[]).await;
    let stores = [server.store().await, server.store().await];
    let limits = limits(&["20/min"]);
    assert_eq!(drain(&limiter(&stores[0], &limits, START)).await, 20);
    let mut admitted = 0;
    for step in 0..=60 {
        let now = START + Duration::from_secs(60 + step);
        admitted += storm(&stores, &limits, now, 64, 2).await[0];
    }
    println!("{admitted} of 20 were admitted while 64 tasks asked");
    assert!((15..=20).contains(&admitted), "{admitted} of 20");
}

/// Reservations that are taken back after a reset must not be taken off what has been counted since.
///
/// 32 tasks continually reserve in the window and take back, because the bucket next to it is empty; in sequence, another
/// task resets the window and fills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_reset_returned_reservations_admit_no_more_than_the_limit() {
    let server = common::Server::start(&[]).await;
    let pairs = pairs(&server).await;
    let windows = ["20/h fixed", "20/h", "20/h precision 15min"];
    for (stores, window) in pairs.iter().flat_map(|stores| windows.map(|window| (stores, window))) {
        let both = limits(&[window, "1/h burst 1"]);
        assert!(limiter(&stores[0], &limits(&["1/h burst 1"]), START).check("k").await.unwrap().allowed());
        let alone = limiter(&stores[0], &limits(&[window]), START);
        let doomed: Vec<_> = (0..32)
            .map(|nth| {
                let limiter = limiter(&stores[nth % 2], &both, START);
                tokio::spawn(async move {
                    loop {
                        assert!(!limiter.check("k").await.unwrap().allowed());
                    }
                })
            })
            .collect();
        let mut most = 0;
        for _ in 0..200 {
            alone.reset("k").await.unwrap();
            let admitted = drain(&alone).await;
            assert!(admitted <= 20, "{admitted} by {window} after a reset");
            most = most.max(admitted);
        }
        doomed.iter().for_each(tokio::task::JoinHandle::abort);
        for task in doomed {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        println!("{window}: at most {most} of 20 while 32 tasks reserve in vain");
        let bucket = limiter(&stores[0], &limits(&["1/h burst 1"]), START);
        bucket.reset("k").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reset_among_claims_admits_at_most_one_more_limit() {
    let server = common::Server::start(&[]).await;
    let pairs = pairs(&server).await;
    for nth in 0..30 {
        let stores = &pairs[nth % pairs.len()];
        let limits = limits(&[&format!("20/h name n{nth}")]);
        let (other, watch) = (limiter(&stores[0], &limits, START), limiter(&stores[1], &limits, START));
        let reset = tokio::spawn(async move {
            // When it is full, many have reserved units and are about to take them back.
            while watch.peek("k").await.unwrap().remaining() > 0 {}
            other.reset("k").await.unwrap();
        });
        let [admitted, ..] = storm(stores, &limits, START, 128, 1).await;
        reset.await.unwrap();
        let all = admitted + drain(&limiter(&stores[0], &limits, START)).await;
        assert!((20..=40).contains(&all), "{all} by a limit of 20 with one reset");
    }
}

/// A claim meets a reset that has replaced some of the segments' counters and not yet the others. Its units are charged in
/// earlier segments, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reset_of_several_segments_makes_the_limit_available_once() {
    let server = common::Server::start(&[]).await;
    let pairs = pairs(&server).await;
    for nth in 0..60 {
        let stores = &pairs[nth % pairs.len()];
        let window = ["10/min", "10/min precision 15s"][nth % 2];
        let limits = limits(&[&format!("{window} name n{nth}")]);
        let all = Request::new("k").cost(10);
        assert!(limiter(&stores[0], &limits, START).check(all.clone()).await.unwrap().allowed());
        let now = START + Duration::from_secs(if nth % 2 == 0 { 60 } else { 50 });
        let one = limiter(&stores[0], &limits, now);
        assert_eq!(one.peek("k").await.unwrap().remaining(), 0, "{window}");
        let tasks = (0..8).map(|task| {
            let limiter = limiter(&stores[task % 2], &limits, now);
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..20 {
                    match limiter.check(Request::new("k").cost(10)).await {
                        Ok(decision) => admitted += u64::from(decision.allowed()),
                        Err(CheckError::Store(error)) if error.kind() == ErrorKind::Contended => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                admitted
            })
        });
        let tasks: Vec<_> = tasks.collect();
        one.reset("k").await.unwrap();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        admitted += u64::from(one.check(all).await.unwrap().allowed());
        assert_eq!(admitted, 1, "ten units by {window} at a time, after one reset");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dropped_futures_leave_nothing_reserved() {
    let server = common::Server::start(&[]).await;
    for (nth, [_, store]) in pairs(&server).await.iter().enumerate() {
        nothing_is_left_reserved(store, nth).await;
    }
}

/// Calls of earlier rounds may still be running: each round has its own limits.
async fn nothing_is_left_reserved(store: &MemcachedStore, nth: usize) {
    let window = format!("100/h name n{nth}");
    let both = limits(&[&window, &format!("10/h burst 10 name n{nth}")]);
    let limiter = limiter(store, &both, START);
    for _ in 0..10 {
        assert!(limiter.check("k").await.unwrap().allowed());
    }
    // The bucket is full: each of these reserves in the window, is refused, and gives back, wherever it is dropped.
    for micros in 0..300 {
        let _ = tokio::time::timeout(Duration::from_micros(micros), limiter.check("k")).await;
        let _ = tokio::time::timeout(Duration::from_micros(micros), limiter.check_many(["k"; 4])).await;
    }
    let window = RateLimiter::new(store.clone(), limits(&[&window])).with_clock(ManualClock::at(START));
    for _ in 0..500 {
        if window.peek("k").await.unwrap().remaining() == 90 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of 90 are left", window.peek("k").await.unwrap().remaining());
}
