//! The layer `Breaker`: when it opens, who probes, and when it closes.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use common::{AWAY, Mood, Unsteady};
use ratelimit_core::layers::{Breaker, BreakerConfig};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    CheckError, CounterStore, ErrorKind, Limit, ManualClock, RateLimiter, StoreError, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

type Limiter<S = Unsteady> = RateLimiter<Breaker<S, ManualClock>, ManualClock>;

fn guarded<S: CounterStore>(store: S, config: BreakerConfig) -> Limiter<S> {
    let (clock, limit) = (ManualClock::at(START), "1000000/h".parse::<Limit>().unwrap());
    RateLimiter::new(Breaker::new(store, config).with_clock(clock.clone()), limit).with_clock(clock)
}

fn limiter() -> Limiter {
    guarded(Unsteady::default(), BreakerConfig::default())
}

fn store(limiter: &Limiter) -> &Unsteady {
    limiter.store().inner()
}

async fn check<S: CounterStore>(limiter: &Limiter<S>) -> Result<(), StoreError> {
    match limiter.check("k").await {
        Ok(_) => Ok(()),
        Err(CheckError::Store(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// The kind of the next call's error.
async fn kind<S: CounterStore>(limiter: &Limiter<S>) -> Option<ErrorKind> {
    check(limiter).await.err().map(|error| error.kind())
}

const OPEN: Option<ErrorKind> = Some(ErrorKind::CircuitOpen);
const FAILS: Option<ErrorKind> = Some(ErrorKind::Unreachable);

/// Opens the breaker, whose store is then away.
async fn open(limiter: &Limiter) {
    store(limiter).set(AWAY);
    for _ in 0..5 {
        assert_eq!(kind(limiter).await, FAILS);
    }
    assert!(limiter.store().is_open());
}

/// Advances the clock until the pause is over; returns how long that took.
async fn end_of_pause(limiter: &Limiter) -> Duration {
    let (calls, step) = (store(limiter).calls(), Duration::from_millis(1));
    for steps in 1..20_000 {
        limiter.clock().advance(step);
        let _ = check(limiter).await;
        if store(limiter).calls() > calls {
            return step * steps;
        }
    }
    panic!("no probe in 20 s");
}

#[tokio::test]
async fn it_opens_after_failures_in_succession_and_spares_the_store() {
    let limiter = limiter();
    for _ in 0..10 {
        store(&limiter).set(AWAY);
        for _ in 0..4 {
            assert_eq!(kind(&limiter).await, FAILS);
        }
        store(&limiter).set(Mood::Answers);
        assert_eq!(kind(&limiter).await, None, "four failures do not open it");
    }
    open(&limiter).await;
    let calls = store(&limiter).calls();
    for _ in 0..1_000 {
        assert_eq!(kind(&limiter).await, OPEN);
    }
    assert_eq!(store(&limiter).calls(), calls);
}

#[tokio::test]
async fn every_method_is_guarded_and_counts() {
    let limiter = limiter();
    let decision = limiter.check("k").await.unwrap();
    store(&limiter).set(AWAY);
    assert!(limiter.refund(&decision).await.is_err());
    assert!(limiter.reset("k").await.is_err());
    assert!(limiter.check_many(["k", "k", "k"]).await.iter().all(Result::is_err));
    assert!(limiter.peek("k").await.is_err());
    assert!(!limiter.store().is_open(), "four calls");
    assert!(limiter.check_many(["k"]).await.iter().all(Result::is_err));
    assert!(limiter.store().is_open());
    let calls = store(&limiter).calls();
    assert_eq!(limiter.refund(&decision).await.unwrap_err().kind(), ErrorKind::CircuitOpen);
    assert!(limiter.reset("k").await.is_err());
    for outcome in limiter.check_many(["k", "k", "k"]).await {
        assert!(matches!(outcome, Err(CheckError::Store(error)) if error.kind() == ErrorKind::CircuitOpen));
    }
    assert_eq!(store(&limiter).calls(), calls);
}

#[tokio::test]
async fn only_the_errors_of_a_store_that_is_away_open_it() {
    use ErrorKind::*;
    for opens in [Unreachable, Timeout, Denied, ReadOnly, Server] {
        let limiter = limiter();
        store(&limiter).set(Mood::Fails(opens));
        for _ in 0..5 {
            assert_eq!(kind(&limiter).await, Some(opens));
        }
        assert_eq!(kind(&limiter).await, OPEN, "{opens:?}");
    }
    for stays in [Full, Corrupt, Unsupported, Contended, Misconfigured, Overloaded] {
        let limiter = limiter();
        store(&limiter).set(Mood::Fails(stays));
        for _ in 0..50 {
            assert_eq!(kind(&limiter).await, Some(stays));
        }
        // Between failures, what shows that the server answers starts the count anew.
        for _ in 0..4 {
            store(&limiter).set(AWAY);
            assert_eq!(kind(&limiter).await, FAILS);
        }
        store(&limiter).set(Mood::Fails(stays));
        check(&limiter).await.unwrap_err();
        store(&limiter).set(AWAY);
        check(&limiter).await.unwrap_err();
        let is_an_answer = matches!(stays, Full | Corrupt | Unsupported);
        assert_eq!(limiter.store().is_open(), !is_an_answer, "{stays:?}");
    }
}

#[tokio::test]
async fn a_batch_with_an_answer_is_no_failure() {
    #[derive(Debug, Default)]
    struct Half(Unsteady);

    impl CounterStore for Half {
        fn promises(&self) -> Promises {
            self.0.promises()
        }

        async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            self.0.set(if claims[0].id.key == b"fails" { AWAY } else { Mood::Answers });
            self.0.claim(claims).await
        }

        async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
            self.0.refund(now, refunds).await
        }

        async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
            self.0.reset(claims).await
        }
    }

    let limiter = guarded(Half::default(), BreakerConfig::default());
    for _ in 0..10 {
        limiter.check_many(["a", "fails"]).await;
        assert!(!limiter.store().is_open());
    }
}

#[tokio::test]
async fn pauses_double_up_to_the_longest_and_start_anew_after_success() {
    let limiter = limiter();
    for _ in 0..2 {
        open(&limiter).await;
        for longest in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000] {
            let pause = end_of_pause(&limiter).await.as_millis();
            assert!((longest / 2..=longest + 1).contains(&pause), "{pause} ms of {longest} ms");
        }
        store(&limiter).set(Mood::Answers);
        end_of_pause(&limiter).await;
        assert!(!limiter.store().is_open());
        store(&limiter).set(AWAY);
        for _ in 0..4 {
            assert_eq!(kind(&limiter).await, FAILS, "failures count anew");
        }
        store(&limiter).set(Mood::Answers);
        assert_eq!(kind(&limiter).await, None);
    }
}

#[tokio::test]
async fn pauses_of_instances_differ() {
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let limiter = limiter();
        open(&limiter).await;
        pauses.push(end_of_pause(&limiter).await);
    }
    pauses.dedup();
    assert!(pauses.len() > 1, "eight pauses of {pauses:?}");
}

#[tokio::test]
async fn one_call_probes_while_others_still_fail_immediately() {
    let limiter = limiter();
    open(&limiter).await;
    store(&limiter).set(Mood::Hangs);
    limiter.clock().advance(Duration::from_secs(1));
    let calls = store(&limiter).calls();
    {
        let mut probe = pin!(limiter.check("k"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(probe.as_mut().poll(&mut context).is_pending());
        for _ in 0..100 {
            limiter.clock().advance(Duration::from_secs(1));
            let error = check(&limiter).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CircuitOpen);
            assert!(error.to_string().contains("another call is attempting it now"), "{error}");
        }
        assert_eq!(store(&limiter).calls(), calls + 1);
    }
    // The caller has dropped it. After another pause, the next one probes.
    assert_eq!(kind(&limiter).await, OPEN);
    store(&limiter).set(Mood::Answers);
    let pause = end_of_pause(&limiter).await;
    assert!(pause <= Duration::from_millis(251), "the pause is not longer: {pause:?}");
    assert!(!limiter.store().is_open());
}

#[tokio::test]
async fn late_outcomes_of_calls_from_before_are_ignored() {
    /// Each call waits until it is released, and then fails.
    #[derive(Clone, Debug, Default)]
    struct Late(Unsteady, Arc<AtomicBool>);

    impl CounterStore for Late {
        fn promises(&self) -> Promises {
            self.0.promises()
        }

        async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            if claims[0].id.key == b"late" {
                std::future::poll_fn(|_| {
                    if self.1.load(Ordering::SeqCst) {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                return Err(StoreError::new("late", ErrorKind::Timeout, "on purpose"));
            }
            self.0.claim(claims).await
        }

        async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
            self.0.refund(now, refunds).await
        }

        async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
            self.0.reset(claims).await
        }
    }

    let limiter = guarded(Late::default(), BreakerConfig::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut late: Vec<_> = (0..20).map(|_| Box::pin(limiter.check("late"))).collect();
    late.iter_mut().for_each(|call| assert!(call.as_mut().poll(&mut context).is_pending()));
    limiter.store().inner().0.set(AWAY);
    for _ in 0..5 {
        check(&limiter).await.unwrap_err();
    }
    limiter.store().inner().0.set(Mood::Answers);
    limiter.clock().advance(Duration::from_secs(1));
    assert_eq!(kind(&limiter).await, None, "the probe");
    limiter.store().inner().1.store(true, Ordering::SeqCst);
    late.iter_mut().for_each(|call| assert!(call.as_mut().poll(&mut context).is_ready()));
    assert!(!limiter.store().is_open(), "they failed before the store came back");
}

#[tokio::test]
async fn the_error_says_since_when_until_when_and_why() {
    let limiter = limiter();
    open(&limiter).await;
    limiter.clock().advance(Duration::from_millis(100));
    let error = check(&limiter).await.unwrap_err();
    assert_eq!((error.applied(), error.is_retryable()), (Applied::No, true));
    let text = error.to_string();
    for part in [
        "breaker is open: the next attempt is in ",
        "the first was 100ms ago",
        "unsteady is unreachable: on purpose",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(format!("{error:?}").contains("on purpose"));
}

#[tokio::test]
async fn extreme_configurations_neither_panic_nor_let_everything_through() {
    let never =
        BreakerConfig::default().failures(0).first_pause(Duration::ZERO).longest_pause(Duration::ZERO);
    let limiter = guarded(Unsteady::default(), never);
    store(&limiter).set(AWAY);
    assert_eq!((kind(&limiter).await, kind(&limiter).await), (FAILS, OPEN));
    let forever = never.first_pause(Duration::MAX).longest_pause(Duration::ZERO);
    let limiter = guarded(Unsteady::default(), forever);
    store(&limiter).set(AWAY);
    assert_eq!((kind(&limiter).await, kind(&limiter).await), (FAILS, OPEN));
    limiter.clock().set(Timestamp::MAX);
    assert_eq!((kind(&limiter).await, kind(&limiter).await), (FAILS, FAILS));
}

/// A store that is asked by many threads and counts how many probe at once.
#[derive(Debug, Default)]
struct Counted {
    away: AtomicBool,
    present: AtomicU64,
    most: AtomicU64,
    asked: AtomicU64,
    inner: Unsteady,
}

impl CounterStore for Counted {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let present = self.present.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(present, Ordering::SeqCst);
        self.asked.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        tokio::task::yield_now().await;
        self.present.fetch_sub(1, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::new("counted", ErrorKind::Unreachable, "on purpose"));
        }
        self.inner.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn many_threads_send_one_probe_at_a_time_and_all_return_after_success() {
    for _ in 0..50 {
        let limiter = Arc::new(guarded(Counted::default(), BreakerConfig::default()));
        let store = limiter.store().inner();
        store.away.store(true, Ordering::SeqCst);
        while !limiter.store().is_open() {
            let _ = check(&limiter).await;
        }
        store.most.store(0, Ordering::SeqCst);
        // Each round ends a pause; the probes fail.
        for _ in 0..4 {
            limiter.clock().advance(Duration::from_secs(6));
            let asked = store.asked.load(Ordering::SeqCst);
            let calls: Vec<_> = (0..16)
                .map(|_| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move { check(&limiter).await.is_err() })
                })
                .collect();
            for call in calls {
                assert!(call.await.unwrap());
            }
            assert_eq!(store.asked.load(Ordering::SeqCst), asked + 1, "one probe in a pause");
        }
        assert_eq!(store.most.load(Ordering::SeqCst), 1);
        store.away.store(false, Ordering::SeqCst);
        limiter.clock().advance(Duration::from_secs(6));
        let calls: Vec<_> = (0..16)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { check(&limiter).await })
            })
            .collect();
        for call in calls {
            let _ = call.await.unwrap();
        }
        assert!(!limiter.store().is_open());
        assert!(check(&limiter).await.is_ok());
    }
}
