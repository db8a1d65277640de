//! The layer `Batched`: which claims are sent together, that it is exact, and what happens to callers that give up.
#![cfg(feature = "tokio")]

mod common;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use common::MapStore;
use ratelimit_core::layers::{BatchConfig, Batched};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    CheckError, CounterStore, ErrorKind, Limit, ManualClock, RateLimiter, StoreError, Timestamp,
};
use tokio::sync::Semaphore;

/// A store whose round trips wait for a permit, and that records how many sets of claims each carries.
#[derive(Debug)]
struct Gate {
    inner: MapStore,
    permits: Semaphore,
    trips: Mutex<Vec<usize>>,
}

impl Gate {
    async fn pass(&self, slices: usize) {
        self.trips.lock().unwrap().push(slices);
        self.permits.acquire().await.unwrap().forget();
    }
}

impl CounterStore for Gate {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.pass(1).await;
        self.inner.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.pass(slices.len()).await;
        self.inner.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

type Limiter = RateLimiter<Arc<Batched<Gate>>, ManualClock>;

fn limiter(limit: &str, config: BatchConfig) -> Arc<Limiter> {
    let gate = Gate { inner: MapStore::default(), permits: Semaphore::new(0), trips: Mutex::default() };
    let store = Arc::new(Batched::with_config(gate, config));
    let limit: Limit = limit.parse().unwrap();
    Arc::new(RateLimiter::new(store, limit).with_clock(ManualClock::at(Timestamp::from_secs(1_000))))
}

/// All but one claim wait, however few there are.
fn one_trip() -> BatchConfig {
    BatchConfig::default().concurrent_batches(1).unbatched(0).timeout(Duration::from_secs(60))
}

fn check(limiter: &Arc<Limiter>) -> tokio::task::JoinHandle<Result<bool, CheckError>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { Ok(limiter.check("k").await?.allowed()) })
}

/// Lets every task make as much progress as it can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn gate(limiter: &Limiter) -> &Gate {
    limiter.store().inner()
}

fn trips(limiter: &Limiter) -> Vec<usize> {
    gate(limiter).trips.lock().unwrap().clone()
}

#[tokio::test]
async fn checks_arriving_during_a_trip_share_the_next_batch() {
    let limiter = limiter("20/h", one_trip());
    let mut checks = vec![check(&limiter)];
    settle().await;
    assert_eq!(trips(&limiter), [1], "the first goes at once");
    checks.extend((0..30).map(|_| check(&limiter)));
    settle().await;
    assert_eq!(trips(&limiter), [1], "the others wait");
    gate(&limiter).permits.add_permits(1);
    settle().await;
    assert_eq!(trips(&limiter), [1, 30]);
    gate(&limiter).permits.add_permits(10);
    let mut admitted = Vec::new();
    for check in checks {
        admitted.push(check.await.unwrap().unwrap());
    }
    // In the order of arrival: the first twenty.
    assert_eq!(admitted, (0..31).map(|nth| nth < 20).collect::<Vec<_>>());
    assert!(!limiter.check("k").await.unwrap().allowed());
    assert_eq!(trips(&limiter), [1, 30, 1], "and who finds nobody goes at once again");
}

#[tokio::test]
async fn checks_a_moment_later_join_the_first_batch() {
    let limiter = limiter("20/h", one_trip());
    gate(&limiter).permits.add_permits(1);
    let later = async {
        tokio::task::yield_now().await;
        limiter.check("k").await
    };
    let (first, second) = tokio::join!(limiter.check("k"), later);
    assert_eq!((first.unwrap().remaining(), second.unwrap().remaining()), (19, 18));
    assert_eq!(trips(&limiter), [2]);
}

#[tokio::test]
async fn batch_size_and_concurrent_batches_are_bounded() {
    let limiter = limiter("1000/h", one_trip().concurrent_batches(3).batch_size(8));
    let checks: Vec<_> = (0..63).map(|_| check(&limiter)).collect();
    settle().await;
    assert_eq!(trips(&limiter), [8; 3]);
    gate(&limiter).permits.add_permits(3);
    settle().await;
    assert_eq!(trips(&limiter), [8; 6]);
    gate(&limiter).permits.add_permits(100);
    for check in checks {
        assert!(check.await.unwrap().unwrap());
    }
    assert_eq!(trips(&limiter), [8, 8, 8, 8, 8, 8, 8, 7]);
}

#[tokio::test]
async fn few_checks_are_sent_alone_and_many_in_batches() {
    let limiter = limiter("100000/h", one_trip().unbatched(4));
    let mut checks: Vec<_> = (0..4).map(|_| check(&limiter)).collect();
    settle().await;
    assert_eq!(trips(&limiter), [1; 4], "nobody waits");
    checks.extend((0..6).map(|_| check(&limiter)));
    settle().await;
    assert_eq!(trips(&limiter), [1; 4], "from the fifth on they wait");
    gate(&limiter).permits.add_permits(3);
    settle().await;
    assert_eq!(trips(&limiter), [1; 4], "three more are under way than go together");
    gate(&limiter).permits.add_permits(1);
    settle().await;
    assert_eq!(trips(&limiter), [1, 1, 1, 1, 6]);
    gate(&limiter).permits.add_permits(1);
    for check in checks {
        assert!(check.await.unwrap().unwrap());
    }

    // A momentary low count does not mean low concurrency.
    let two = [check(&limiter), check(&limiter)];
    settle().await;
    assert_eq!(trips(&limiter)[5..], [2]);
    gate(&limiter).permits.add_permits(1);
    for check in two {
        assert!(check.await.unwrap().unwrap());
    }

    // Sequential checks do not wait, whatever came before; nor do a few concurrent ones after many of them.
    gate(&limiter).permits.add_permits(1_000);
    for _ in 0..1_000 {
        assert!(limiter.check("k").await.unwrap().allowed());
    }
    let before = trips(&limiter).len();
    let four: Vec<_> = (0..4).map(|_| check(&limiter)).collect();
    settle().await;
    assert_eq!(trips(&limiter)[before..], [1; 4]);
    gate(&limiter).permits.add_permits(4);
    for check in four {
        assert!(check.await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn cancelled_checks_do_not_cause_batching() {
    let limiter = limiter("100000/h", one_trip().unbatched(4));
    for _ in 0..100 {
        let leaving: Vec<_> = (0..4).map(|_| check(&limiter)).collect();
        settle().await;
        leaving.iter().for_each(tokio::task::JoinHandle::abort);
        settle().await;
    }
    assert_eq!(trips(&limiter), [1; 400]);
}

#[tokio::test]
async fn checks_cancelled_in_the_queue_are_not_charged() {
    let limiter = limiter("100/h", one_trip());
    let first = check(&limiter);
    settle().await;
    let leaving: Vec<_> = (0..10).map(|_| check(&limiter)).collect();
    let staying = check(&limiter);
    settle().await;
    leaving.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    gate(&limiter).permits.add_permits(100);
    assert!(first.await.unwrap().unwrap() && staying.await.unwrap().unwrap());
    assert_eq!(trips(&limiter), [1, 1]);
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 97);
}

#[tokio::test]
async fn checks_cancelled_in_the_queue_leave_room_for_others() {
    let limiter = limiter("100/h", one_trip().max_waiting(3));
    let first = check(&limiter);
    settle().await;
    for _ in 0..5 {
        let leaving: Vec<_> = (0..3).map(|_| check(&limiter)).collect();
        settle().await;
        leaving.iter().for_each(tokio::task::JoinHandle::abort);
        settle().await;
    }
    let staying: Vec<_> = (0..3).map(|_| check(&limiter)).collect();
    settle().await;
    gate(&limiter).permits.add_permits(100);
    assert!(first.await.unwrap().unwrap());
    for check in staying {
        assert!(check.await.unwrap().unwrap());
    }
    assert_eq!(trips(&limiter), [1, 3]);
}

#[tokio::test]
async fn checks_cancelled_during_a_trip_do_not_delay_others() {
    let limiter = limiter("100/h", one_trip().unbatched(1));
    let first = check(&limiter);
    settle().await;
    let others: Vec<_> = (0..5).map(|_| check(&limiter)).collect();
    settle().await;
    first.abort();
    settle().await;
    assert_eq!(trips(&limiter), [1, 5], "the others go when the first is gone");
    // A caller whose claim is already being sent gives up too.
    others[2].abort();
    gate(&limiter).permits.add_permits(100);
    settle().await;
    for (nth, other) in others.into_iter().enumerate() {
        let outcome = tokio::time::timeout(Duration::from_secs(10), other).await.unwrap();
        assert_eq!(outcome.is_ok(), nth != 2);
    }
    assert!(limiter.check("k").await.unwrap().allowed());
}

#[tokio::test]
async fn trips_complete_when_their_callers_are_cancelled() {
    let limiter = limiter("100/h", one_trip());
    let first = check(&limiter);
    settle().await;
    let other = check(&limiter);
    settle().await;
    first.abort();
    settle().await;
    assert_eq!(trips(&limiter), [1]);
    gate(&limiter).permits.add_permits(2);
    assert!(other.await.unwrap().unwrap());
    assert_eq!(trips(&limiter), [1, 1]);
    gate(&limiter).permits.add_permits(1);
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 97, "it was charged");
}

fn kind(outcome: Result<bool, CheckError>) -> ErrorKind {
    match outcome {
        Err(CheckError::Store(error)) => {
            assert_eq!(error.applied(), ratelimit_core::store::Applied::No, "{error}");
            error.kind()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_length_and_in_time() {
    let config = one_trip().max_waiting(3).timeout(Duration::from_millis(50));
    let limiter = limiter("100/h", config);
    let first = check(&limiter);
    settle().await;
    let waiting: Vec<_> = (0..3).map(|_| check(&limiter)).collect();
    settle().await;
    assert_eq!(kind(check(&limiter).await.unwrap()), ErrorKind::Contended);
    for check in waiting {
        assert_eq!(kind(check.await.unwrap()), ErrorKind::Timeout);
    }
    let CheckError::Store(late) = first.await.unwrap().unwrap_err() else { panic!("not the store's") };
    assert_eq!((late.kind(), late.applied()), (ErrorKind::Timeout, Applied::Unknown), "it is under way");
    gate(&limiter).permits.add_permits(100);
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 98, "only two were charged");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_covers_queueing_and_the_trip() {
    let limiter = limiter("100/h", one_trip().timeout(Duration::from_millis(50)));
    let first = check(&limiter);
    settle().await;
    let second = check(&limiter);
    settle().await;
    gate(&limiter).permits.add_permits(1);
    settle().await;
    // The second is being sent now, for longer than it would have waited.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(first.await.unwrap().unwrap());
    let CheckError::Store(late) = second.await.unwrap().unwrap_err() else { panic!("not the store's") };
    assert_eq!((late.kind(), late.applied()), (ErrorKind::Timeout, Applied::Unknown));
    gate(&limiter).permits.add_permits(2);
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 97, "all three were charged");
}

/// Were they sent when they have waited for most of their time limit, all would be charged and none answered in time.
#[tokio::test(start_paused = true)]
async fn too_many_checks_are_answered_at_the_capacity_and_the_others_are_not_charged() {
    // 80 checks each second: four in each trip of 50 ms. Twice as many arrive.
    let limiter = limiter("100000/h", one_trip().batch_size(4).timeout(Duration::from_millis(200)));
    let trips = {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                gate(&limiter).permits.add_permits(1);
                while gate(&limiter).permits.available_permits() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        })
    };
    let mut checks = Vec::new();
    for _ in 0..640 {
        checks.push(check(&limiter));
        tokio::time::sleep(Duration::from_micros(6_250)).await;
    }
    let mut answered = [0; 4];
    for (nth, check) in checks.into_iter().enumerate() {
        match check.await.unwrap() {
            Ok(allowed) => answered[nth / 160] += u64::from(allowed),
            outcome => assert_eq!(kind(outcome), ErrorKind::Timeout),
        }
    }
    assert!(answered[1..].iter().all(|answered| *answered >= 60), "{answered:?}");
    gate(&limiter).permits.add_permits(100);
    assert_eq!(limiter.check("k").await.unwrap().remaining(), 99_999 - answered.iter().sum::<u64>());
    trips.abort();
}

/// Waiting claims are then not sent, and callers on another runtime get an error.
#[test]
fn a_runtime_shutdown_fails_waiting_checks() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = limiter("100/h", one_trip());
    for (waiting, steps) in [(0, 100), (1, 100), (20, 100), (20, 1), (20, 2), (20, 3)] {
        let (first, second) = (runtime(), runtime());
        first.block_on(async {
            for _ in 0..2 {
                _ = (0..=waiting).map(|_| check(&limiter)).collect::<Vec<_>>();
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
            }
        });
        let other = {
            let _within = second.enter();
            check(&limiter)
        };
        second.block_on(settle());
        drop(first);
        let CheckError::Store(error) = second.block_on(other).unwrap().unwrap_err() else { panic!() };
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
    gate(&limiter).permits.add_permits(1);
    assert!(runtime().block_on(limiter.check("k")).unwrap().allowed());
}

/// Many threads, and a limit that is used up exactly.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_contention_exactly_the_limit_is_admitted() {
    for (trips, alone) in [(1, 0), (3, 0), (1, 16), (3, 63), (2, 64)] {
        let limiter = limiter("500/h", one_trip().concurrent_batches(trips).unbatched(alone).batch_size(7));
        gate(&limiter).permits.add_permits(100_000);
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..20 {
                        admitted += u32::from(limiter.check("k").await.unwrap().allowed());
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 500);
    }
}
