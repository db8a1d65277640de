//! Waiting on stores that report a wrong `retry_after`: never a busy loop. Waiting on a fallback: never for long.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{AWAY, MapStore, Mood, Unsteady};
use ratelimit_core::clock::Timer;
use ratelimit_core::layers::{Divided, Fallback};
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    Acquire, AcquireError, Clock, CounterStore, Decision, Limit, ManualClock, RateLimiter, Request,
    StoreError, Timestamp,
};

/// A store that changes each instant at which a claim fits.
#[derive(Debug)]
struct Wrong {
    store: MapStore,
    tells: fn(now: Timestamp, fits_at: Timestamp) -> Timestamp,
}

impl CounterStore for Wrong {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answer = self.store.claim(claims).await?;
        for verdict in &mut answer.verdicts {
            verdict.fits_at = verdict.fits_at.map(|fits_at| (self.tells)(answer.now, fits_at));
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

/// A clock that sleepers advance, and that records each sleep.
#[derive(Clone, Default)]
struct Skipping {
    clock: ManualClock,
    slept: Arc<AtomicU64>,
}

impl Clock for Skipping {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Timer for Skipping {
    async fn sleep(&self, duration: Duration) {
        self.clock.advance(duration);
        self.slept.fetch_add(1, Ordering::SeqCst);
    }
}

fn limiter<C: Clock>(
    limit: &str,
    clock: C,
    tells: fn(Timestamp, Timestamp) -> Timestamp,
) -> RateLimiter<Wrong, C> {
    let store = Wrong { store: MapStore::default(), tells };
    RateLimiter::new(store, limit.parse::<Limit>().unwrap()).with_clock(clock)
}

fn skipping(limit: &str, tells: fn(Timestamp, Timestamp) -> Timestamp) -> RateLimiter<Wrong, Skipping> {
    let clock = Skipping::default();
    clock.clock.set(Timestamp::from_secs(1_800_000_000));
    limiter(limit, clock, tells)
}

fn store_calls<C>(limiter: &RateLimiter<Wrong, C>) -> u64
where
    C: Clock,
{
    limiter.store().store.asked.load(Ordering::SeqCst)
}

const NANO: Duration = Duration::from_nanos(1);

fn no_wait(now: Timestamp, _: Timestamp) -> Timestamp {
    now
}

fn a_nanosecond_early(now: Timestamp, fits_at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(fits_at.as_nanos() - 1).max(now)
}

fn a_nanosecond_from_now(now: Timestamp, _: Timestamp) -> Timestamp {
    now + NANO
}

/// A store that answers after 100 ms.
#[derive(Debug)]
struct Distant {
    store: MapStore,
    clock: ManualClock,
}

impl CounterStore for Distant {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.store.claim(claims).await;
        self.clock.advance(Duration::from_millis(100));
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

#[tokio::test]
async fn the_round_trip_is_a_part_of_the_wait_for_a_turn() {
    let clock = Skipping::default();
    clock.clock.set(Timestamp::from_secs(1_800_000_000));
    let store = Distant { store: MapStore::default(), clock: clock.clock.clone() };
    let limit: Limit = "1/s queue burst 5".parse().unwrap();
    let limiter = RateLimiter::new(store, limit).with_clock(clock);
    limiter.acquire("k").await.unwrap();
    let waited = limiter.clock().now();
    limiter.acquire("k").await.unwrap();
    assert_eq!(limiter.clock().now().since(waited), Duration::from_millis(900));
    // The next turn is a second later, of which the answer takes 100 ms.
    let begin = limiter.clock().now();
    let in_time = Acquire::default().timeout(Duration::from_secs(1));
    limiter.acquire_with("k", in_time).await.unwrap();
    assert_eq!(limiter.clock().now().since(begin), Duration::from_secs(1));
}

#[tokio::test]
async fn retries_back_off_when_the_store_reports_no_wait() {
    let limiter = skipping("1/min fixed", no_wait);
    limiter.acquire("k").await.unwrap();
    let before = limiter.clock().now();
    limiter.acquire("k").await.unwrap();
    let waited = limiter.clock().now().since(before);
    assert!(waited <= Duration::from_secs(61), "{waited:?}");
    // 1, 2, 4, ... 512 ms are a second; then one each second.
    let calls = store_calls(&limiter);
    assert!((50..75).contains(&calls), "{calls} calls in a minute");
}

#[tokio::test]
async fn a_wait_a_nanosecond_too_short_costs_one_call_and_a_millisecond() {
    for limit in ["1/min fixed", "1/min log", "1/min burst 1"] {
        let limiter = skipping(limit, a_nanosecond_early);
        let first = limiter.acquire("k").await.unwrap();
        let (start, reset) = (first.now(), first.reset_after());
        let second = limiter.acquire("k").await.unwrap();
        let longer = second.now().since(start) - reset;
        assert_eq!(longer, Duration::from_millis(1) - NANO, "{limit}");
        assert_eq!(store_calls(&limiter), 4, "{limit}");
    }
}

#[tokio::test]
async fn retries_are_at_least_a_millisecond_apart() {
    let limiter = skipping("1/s fixed", a_nanosecond_from_now);
    limiter.acquire("k").await.unwrap();
    limiter.acquire("k").await.unwrap();
    let calls = store_calls(&limiter);
    assert!(calls <= 1_003, "{calls} calls in a second");
}

#[tokio::test]
async fn the_deadline_ends_waiting_on_any_store() {
    let soon = Acquire::default().timeout(Duration::from_millis(100));
    let now = Acquire::default().timeout(Duration::ZERO);
    for tells in [no_wait, a_nanosecond_early, a_nanosecond_from_now] {
        let limiter = skipping("1/min fixed", tells);
        limiter.acquire("k").await.unwrap();
        let start = limiter.clock().now();
        for options in [soon, now] {
            let error = limiter.acquire_with("k", options).await.unwrap_err();
            assert!(matches!(error, AcquireError::Deadline(_)), "{error}");
        }
        assert!(limiter.clock().now().since(start) <= Duration::from_millis(100));
        assert!(store_calls(&limiter) < 110);
    }
}

/// A clock on which sleeping takes no time, so that only the limiter itself yields to other tasks.
#[derive(Clone, Copy)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_800_000_000)
    }
}

impl Timer for Standing {
    async fn sleep(&self, _: Duration) {}
}

#[tokio::test]
async fn waiting_yields_to_other_tasks() {
    let limiter = limiter("1/min fixed", Standing, no_wait);
    limiter.acquire("k").await.unwrap();
    tokio::select! {
        biased;
        _ = limiter.acquire("k") => panic!("it is never admitted"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test]
async fn acquire_waits_until_a_manual_clock_is_advanced() {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let limiter = Arc::new(limiter("1/min fixed", clock.clone(), no_wait));
    limiter.acquire("k").await.unwrap();
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("k").await.map(|decision| decision.now()) }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store_calls(&limiter), 2, "nobody asks while the clock stands");
    clock.advance(Duration::from_secs(60));
    waiter.await.unwrap().unwrap();
    assert_eq!(store_calls(&limiter), 3);
}

#[tokio::test]
async fn errors_name_the_limit() {
    let limiter = skipping("3/min burst 2 name log-in", |_, fits_at| fits_at);
    let never = limiter.acquire(ratelimit_core::Request::new("k").cost(3)).await.unwrap_err();
    let text =
        r#"never admitted: it costs 3, and the limit "3/min burst 2 name log-in" admits at most 2 at once"#;
    assert_eq!(never.to_string(), text);
    limiter.acquire(ratelimit_core::Request::new("k").cost(2)).await.unwrap();
    let options = Acquire::default().timeout(Duration::from_secs(1));
    let late = limiter.acquire_with("k", options).await.unwrap_err();
    let text =
        r#"not admitted before the deadline: under the limit "3/min burst 2 name log-in" it would take 20s"#;
    assert_eq!(late.to_string(), text);
    let limiter = skipping("2 in total", |_, fits_at| fits_at);
    limiter.acquire("k").await.unwrap();
    let spent = limiter.acquire(ratelimit_core::Request::new("k").cost(2)).await.unwrap_err();
    assert_eq!(spent.to_string(), r#"never admitted: the limit "2 in total" has 1 units left"#);
}

/// Each request costs this much, and is served within the longest wait or refused.
#[tokio::test]
async fn no_turn_in_a_divided_queue_comes_after_the_longest_wait() {
    let reserved = async |instances, immediate, cost, longest| {
        let limit = format!("1/s queue burst 60 immediate {immediate}").parse::<Limit>().unwrap();
        let limiter = RateLimiter::new(Divided::new(MapStore::default(), instances), limit);
        let limiter = limiter.with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let mut delays = Vec::new();
        loop {
            let request = Request::new("k").cost(cost);
            let turn = limiter.reserve(request, Duration::from_secs(longest)).await.unwrap();
            if !turn.allowed() {
                return delays;
            }
            delays.push(turn.delay().as_secs());
        }
    };
    assert_eq!(reserved(2, 3, 1, 5).await, [0, 2, 4]);
    for instances in 1..6 {
        for (immediate, cost) in [(1, 1), (3, 1), (3, 2), (8, 3), (2, 5)] {
            for longest in [0, 5, 9, 100] {
                let delays = reserved(instances, immediate, cost, longest).await;
                let case = format!("{instances} instances, immediate {immediate}, cost {cost}: {delays:?}");
                assert!(delays.iter().all(|delay| *delay <= longest.min(60 - immediate)), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn who_waits_on_the_fallback_asks_the_first_store_again_every_second() {
    let store = Unsteady::default();
    let fallback = Fallback::new(store.clone(), Divided::new(MapStore::default(), 4));
    let limiter = RateLimiter::new(fallback, "4/day fixed".parse::<Limit>().unwrap());
    let limiter = Arc::new(limiter.with_clock(ManualClock::at(Timestamp::from_secs(1_800_000_000))));
    store.set(AWAY);
    assert!(limiter.check("k").await.unwrap().allowed());
    let deadlines = [None, Some(Duration::from_secs(60))];
    let waiters = deadlines.map(|timeout| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let options = Acquire::default().timeout(timeout);
            limiter.acquire_with("k", options).await.map(Decision::into_owned)
        })
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.set(Mood::Answers);
    limiter.clock().advance(Duration::from_secs(1));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    for waiter in waiters {
        assert!(waiter.is_finished(), "still asleep");
        assert!(!waiter.await.unwrap().unwrap().degraded());
    }
    store.set(AWAY);
    let options = Acquire::default().timeout(Duration::from_millis(999));
    let late = limiter.acquire_with("k", options).await;
    assert!(matches!(late, Err(AcquireError::Deadline(_))), "{late:?}");
}
