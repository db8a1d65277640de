//! Callers that wait under a concurrency limit: admitted in order of arrival, woken by releases, never stuck.
#![cfg(feature = "tokio")]

mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{MapStore, Random};
use ratelimit_core::clock::Timer;
use ratelimit_core::{
    Acquire, AcquireError, Clock, Decision, Limits, ManualClock, RateLimiter, Request, Timestamp,
};
use tokio::task::JoinHandle;

type Limiter = RateLimiter<Arc<MapStore>, ManualClock>;

fn limiter(text: &str) -> Arc<Limiter> {
    let limits: Limits = text.parse().unwrap();
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    Arc::new(RateLimiter::new(Arc::new(MapStore::default()), limits).with_clock(clock))
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

type Outcome = Result<Decision<'static>, AcquireError>;

/// Who was admitted, in order, and with what.
#[derive(Clone, Default)]
struct Admitted(Arc<Mutex<VecDeque<(usize, Decision<'static>)>>>);

impl Admitted {
    fn numbers(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(|(number, _)| *number).collect()
    }

    /// Releases what was admitted first among what is still held.
    async fn release_oldest(&self, limiter: &Limiter) -> usize {
        let (number, decision) = self.0.lock().unwrap().pop_front().unwrap();
        limiter.release(&decision).await.unwrap();
        number
    }

    /// Starts to wait, and returns when the task waits or is admitted.
    async fn arrive(&self, limiter: &Arc<Limiter>, number: usize, cost: u64) -> JoinHandle<()> {
        let (admitted, limiter) = (self.clone(), limiter.clone());
        let task = tokio::spawn(async move {
            let decision = limiter.acquire(Request::new("k").cost(cost)).await.unwrap().into_owned();
            admitted.0.lock().unwrap().push_back((number, decision));
        });
        settle().await;
        task
    }
}

#[tokio::test]
async fn releases_admit_in_order_of_arrival() {
    let limiter = limiter("2 at once");
    let admitted = Admitted::default();
    for number in 0..8 {
        admitted.arrive(&limiter, number, 1).await;
    }
    // The clock stands still: only releases can wake them.
    for released in 0..6 {
        assert_eq!(admitted.numbers(), [released, released + 1]);
        assert_eq!(admitted.release_oldest(&limiter).await, released);
        settle().await;
    }
    assert_eq!(admitted.numbers(), [6, 7]);
}

#[tokio::test]
async fn a_newcomer_does_not_overtake() {
    let limiter = limiter("1 at once");
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 1).await;
    admitted.arrive(&limiter, 1, 1).await;
    admitted.release_oldest(&limiter).await;
    // The unit is free, and the first waiter has not run since.
    let now = Acquire::default().timeout(Duration::ZERO);
    let late = limiter.acquire_with("k", now).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "not admitted before the deadline: others that came earlier were still waiting"
    );
    admitted.arrive(&limiter, 2, 1).await;
    assert_eq!(admitted.numbers(), [1]);
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [2]);
    // Another key has its own order.
    assert!(limiter.acquire_with("other", now).await.is_ok());
}

#[tokio::test]
async fn large_requests_are_not_overtaken_by_small_ones() {
    let limiter = limiter("3 at once");
    let admitted = Admitted::default();
    for (number, cost) in [2, 3, 1].into_iter().enumerate() {
        admitted.arrive(&limiter, number, cost).await;
    }
    assert_eq!(admitted.numbers(), [0]);
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [1]);
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [2]);
}

#[tokio::test]
async fn who_gives_up_or_is_too_late_leaves_the_place_to_the_next() {
    let limiter = limiter("1 at once");
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 1).await;
    let first = admitted.arrive(&limiter, 1, 1).await;
    let late = tokio::spawn({
        let limiter = limiter.clone();
        let options = Acquire::default().timeout(Duration::from_secs(1));
        async move { limiter.acquire_with("k", options).await.map(Decision::into_owned) }
    });
    settle().await;
    let third = admitted.arrive(&limiter, 3, 1).await;
    limiter.clock().advance(Duration::from_secs(1));
    settle().await;
    let outcome: Outcome = late.await.unwrap();
    assert!(matches!(&outcome, Err(AcquireError::Deadline(reported)) if !reported.allowed()), "{outcome:?}");
    first.abort();
    settle().await;
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [3]);
    third.await.unwrap();
}

#[tokio::test]
async fn a_release_elsewhere_is_noticed_within_a_second() {
    let limiter = limiter("1 at once");
    let elsewhere = RateLimiter::new(limiter.store().clone(), limiter.limits().clone())
        .with_clock(limiter.clock().clone());
    let held = elsewhere.check("k").await.unwrap();
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 1).await;
    admitted.arrive(&limiter, 1, 1).await;
    elsewhere.release(&held).await.unwrap();
    settle().await;
    assert_eq!(admitted.numbers(), [0; 0]);
    limiter.clock().advance(Duration::from_secs(1));
    settle().await;
    assert_eq!(admitted.numbers(), [0]);
}

#[tokio::test]
async fn only_the_first_of_many_asks_the_store() {
    let limiter = limiter("1 at once lease 1h");
    let admitted = Admitted::default();
    for number in 0..100 {
        admitted.arrive(&limiter, number, 1).await;
    }
    let before = limiter.store().asked.load(Ordering::SeqCst);
    for _ in 0..60 {
        limiter.clock().advance(Duration::from_secs(1));
        settle().await;
    }
    let asked = limiter.store().asked.load(Ordering::SeqCst) - before;
    assert!(asked <= 60, "{asked} calls in a minute");
}

#[tokio::test]
async fn a_caller_under_several_limits_waits_for_all_of_them() {
    let limiter = limiter("1 at once; 1/min log");
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 1).await;
    admitted.arrive(&limiter, 1, 1).await;
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [0; 0]);
    limiter.clock().advance(Duration::from_secs(61));
    settle().await;
    assert_eq!(admitted.numbers(), [1]);
}

/// Admits a request, or says that it would have to wait.
async fn at_once(limiter: &Limiter, request: Request<'_, '_>) -> Option<Decision<'static>> {
    let now = Acquire::default().timeout(Duration::ZERO);
    limiter.acquire_with(request, now).await.ok().map(Decision::into_owned)
}

#[tokio::test]
async fn who_holds_one_limit_of_a_key_does_not_wait_behind_those_who_wait_for_it() {
    let limiter = limiter("1 at once name a");
    let other: Limits = "1 at once name b".parse().unwrap();
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 1).await;
    admitted.arrive(&limiter, 1, 1).await;
    // The holder needs the other limit before it can release the first one.
    let second = at_once(&limiter, Request::new("k").limits(&other)).await;
    assert!(second.is_some_and(|decision| decision.allowed()));
    admitted.release_oldest(&limiter).await;
    settle().await;
    assert_eq!(admitted.numbers(), [1]);
}

#[tokio::test]
async fn who_needs_no_unit_or_can_never_get_them_does_not_wait_behind_others() {
    let limiter = limiter("2 at once");
    let admitted = Admitted::default();
    admitted.arrive(&limiter, 0, 2).await;
    admitted.arrive(&limiter, 1, 1).await;
    let ended =
        |cost| tokio::time::timeout(Duration::from_secs(10), limiter.acquire(Request::new("k").cost(cost)));
    assert!(ended(0).await.unwrap().unwrap().allowed());
    assert!(matches!(ended(3).await.unwrap(), Err(AcquireError::Never(_))));
}

/// A clock that goes on by a nanosecond each time it is read.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }
}

impl Timer for Ticking {
    async fn sleep(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_nanos()).unwrap() + 1_000, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn without_time_to_wait_a_request_is_admitted_if_it_fits() {
    let store = Arc::new(MapStore::default());
    for text in ["2/h bucket", "2/h log", "2/h queue burst 2", "2 at once lease 1h"] {
        let limits: Limits = text.parse().unwrap();
        let limiter = RateLimiter::new(store.clone(), limits).with_clock(Ticking::default());
        let now = || limiter.acquire_with("k", Acquire::default().timeout(Duration::ZERO));
        assert!(now().await.unwrap().allowed(), "{text}");
        if !text.contains("queue") {
            assert!(now().await.unwrap().allowed(), "{text}");
        }
        assert!(matches!(now().await, Err(AcquireError::Deadline(_))), "{text}");
    }
}

#[tokio::test]
async fn who_is_refused_by_another_limit_does_not_hold_up_others() {
    let limiter = limiter("1/min log");
    let shared: Limits = "1 at once lease 1h".parse().unwrap();
    let request = |user| Request::new(user).and(Request::new("all").limits(&shared));
    let held = at_once(&limiter, Request::new("all").limits(&shared)).await.unwrap();
    // The first user has used up the minute, the second has not. Both wait for the shared unit first.
    assert!(limiter.check("one").await.unwrap().allowed());
    let admitted = Admitted::default();
    for (number, user) in ["one", "two"].into_iter().enumerate() {
        let (admitted, limiter, shared) = (admitted.clone(), limiter.clone(), shared.clone());
        tokio::spawn(async move {
            let request = Request::new(user).and(Request::new("all").limits(&shared));
            let decision = limiter.acquire(request).await.unwrap().into_owned();
            admitted.0.lock().unwrap().push_back((number, decision));
        });
        settle().await;
    }
    assert!(at_once(&limiter, request("three")).await.is_none(), "others wait");
    limiter.release(&held).await.unwrap();
    settle().await;
    assert_eq!(admitted.numbers(), [1]);
    admitted.release_oldest(&limiter).await;
    limiter.clock().advance(Duration::from_secs(61));
    settle().await;
    assert_eq!(admitted.numbers(), [0]);
}

#[tokio::test]
async fn who_waits_for_an_assigned_turn_does_not_hold_up_others() {
    let limiter = limiter("2 at once; 1/min queue burst 10");
    let shared: Limits = "2 at once".parse().unwrap();
    let held = at_once(&limiter, Request::new("k").cost(2).limits(&shared)).await.unwrap();
    let admitted = Admitted::default();
    for number in 0..3 {
        admitted.arrive(&limiter, number, 1).await;
    }
    limiter.release(&held).await.unwrap();
    settle().await;
    // The first has its turn now, and the second a minute later; both units are taken.
    assert_eq!(admitted.numbers(), [0]);
    assert_eq!(limiter.peek(Request::new("k").limits(&shared)).await.unwrap().remaining(), 0);
    admitted.release_oldest(&limiter).await;
    settle().await;
    // The third has the unit that was released, and its turn in two minutes.
    assert_eq!(limiter.peek(Request::new("k").limits(&shared)).await.unwrap().remaining(), 0);
    limiter.clock().advance(Duration::from_secs(120));
    settle().await;
    assert_eq!(admitted.numbers(), [1, 2]);
}

/// Arrivals, cancellations, releases and pauses at random, while tasks are between any two of their steps: the order is that
/// of arrival, at most three units are held, and at the end all were admitted.
#[tokio::test]
async fn random_histories_are_in_order_and_leave_nobody_waiting() {
    for seed in 1..=500 {
        let mut random = Random::new(seed);
        let limiter = limiter("3 at once lease 1h");
        let admitted = Admitted::default();
        let mut waiting: VecDeque<(usize, JoinHandle<()>)> = VecDeque::new();
        let mut last = 0;
        for number in 1..=200 {
            match random.below(5) {
                0 | 1 => {
                    let (admitted, limiter) = (admitted.clone(), limiter.clone());
                    let task = tokio::spawn(async move {
                        let decision = limiter.acquire("k").await.unwrap().into_owned();
                        admitted.0.lock().unwrap().push_back((number, decision));
                    });
                    waiting.push_back((number, task));
                }
                2 if !waiting.is_empty() => {
                    // In one that is admitted nothing happens.
                    let index = random.below(waiting.len());
                    let (number, task) = waiting.remove(index).unwrap();
                    task.abort();
                    let ended = task.await;
                    assert!(ended.is_ok() || !admitted.numbers().contains(&number));
                }
                3 if !admitted.0.lock().unwrap().is_empty() => {
                    let number = admitted.release_oldest(&limiter).await;
                    assert!(number > last, "seed {seed}: {number} after {last}");
                    last = number;
                }
                _ => limiter.clock().advance(Duration::from_millis(1)),
            }
            for _ in 0..random.below(4) {
                tokio::task::yield_now().await;
            }
            assert!(admitted.0.lock().unwrap().len() <= 3, "seed {seed}");
        }
        loop {
            settle().await;
            if admitted.0.lock().unwrap().is_empty() {
                break;
            }
            let number = admitted.release_oldest(&limiter).await;
            assert!(number > last, "seed {seed}: {number} after {last}");
            last = number;
        }
        let stuck = waiting.iter().filter(|(_, task)| !task.is_finished()).count();
        assert_eq!(stuck, 0, "seed {seed}");
        assert_eq!(limiter.peek("k").await.unwrap().remaining(), 3, "seed {seed}");
    }
}
