//! The layer `Bulkhead`, and what `Resilience` builds.
#![cfg(feature = "tokio")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{AWAY, MapStore, Mood, Unsteady};
use futures::future::join_all;
use ratelimit_core::layers::{BreakerConfig, Bulkhead, Resilience};
use ratelimit_core::{CheckError, CounterStore, DynCounterStore, ErrorKind, Limit, RateLimiter, StoreError};

fn on<S: CounterStore>(store: S) -> RateLimiter<S> {
    RateLimiter::new(store, "12/h fixed".parse::<Limit>().unwrap())
}

async fn error<S: CounterStore>(limiter: &RateLimiter<S>) -> StoreError {
    match limiter.check("k").await {
        Err(CheckError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_bulkhead_lets_no_more_calls_in_than_it_says() {
    let store = Unsteady::default();
    let limiter = on(Bulkhead::new(store.clone(), 3));
    store.set(Mood::Hangs);
    let patience = Duration::from_millis(100);
    let calls = || async { tokio::time::timeout(patience, limiter.check("k")).await.ok() };
    let outcomes = join_all((0..10).map(|_| calls())).await;
    let (hung, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Option::is_none);
    assert_eq!((hung.len(), refused.len(), store.calls()), (3, 7, 3));
    for outcome in refused.into_iter().flatten() {
        assert!(matches!(outcome, Err(CheckError::Store(error)) if error.kind() == ErrorKind::Overloaded));
    }
    // The three have dropped their futures, and with them their places.
    store.set(Mood::Answers);
    assert!(join_all((0..3).map(|_| limiter.check("k"))).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_place_as_long_as_it_may() {
    let store = Unsteady::default();
    let limiter = on(Bulkhead::new(store.clone(), 1).with_wait(Duration::from_millis(50)));
    store.set(Mood::Hangs);

    let hangs = |millis| tokio::time::timeout(Duration::from_millis(millis), limiter.peek("k"));
    let begun = tokio::time::Instant::now();
    let (first, late) = tokio::join!(hangs(200), error(&limiter));
    assert!(first.is_err() && late.kind() == ErrorKind::Overloaded, "{late}");
    assert!(late.to_string().contains("1 are allowed at once, and none ended within 50ms"), "{late}");
    assert_eq!(begun.elapsed(), Duration::from_millis(200));
    let in_time = async {
        tokio::task::yield_now().await;
        store.set(Mood::Answers);
        limiter.check("k").await
    };
    let (first, in_time) = tokio::join!(hangs(40), in_time);
    assert!(first.is_err() && in_time.is_ok());
}

/// Every call is answered within the time limit, whatever the store does; and later immediately.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_costs_a_few_time_limits_and_then_nothing() {
    let store = Unsteady::default();
    let limiter = on(Resilience::new(store.clone())
        .timeout(Duration::from_millis(50))
        .fallback(MapStore::default(), 4));
    store.set(Mood::Hangs);
    let begun = tokio::time::Instant::now();
    let mut admitted = 0;
    for _ in 0..100 {
        let decision = limiter.check("k").await.unwrap();
        assert!(decision.degraded());
        admitted += u64::from(decision.allowed());
    }
    assert_eq!((admitted, store.calls(), begun.elapsed()), (3, 5, Duration::from_millis(250)));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_counts_against_the_time_limit() {
    let store = Unsteady::default();
    let stack = Resilience::new(store.clone()).timeout(Duration::from_millis(50)).concurrent_calls(1);
    let limiter = on(stack.wait(Duration::from_secs(9)).closed());
    store.set(Mood::Hangs);
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(error(&limiter), error(&limiter));
    assert_eq!((first.kind(), second.kind()), (ErrorKind::Timeout, ErrorKind::Timeout));
    assert_eq!(begun.elapsed(), Duration::from_millis(50));
}

#[tokio::test]
async fn open_closed_and_fallback_differ_in_what_they_answer() {
    let stack =
        |store: &Unsteady| Resilience::new(store.clone()).breaker(BreakerConfig::default().failures(1));
    let store = Unsteady::default();
    store.set(AWAY);
    let (open, closed) = (on(stack(&store).open()), on(stack(&store).closed()));
    let fallback = on(stack(&store).fallback(MapStore::default(), 6));
    for _ in 0..20 {
        assert!(open.check("k").await.unwrap().allowed());
    }
    let kinds = [error(&closed).await.kind(), error(&closed).await.kind()];
    assert_eq!(kinds, [ErrorKind::Unreachable, ErrorKind::CircuitOpen]);
    let decisions = fallback.check_many(["k"; 3]).await;
    let allowed: Vec<_> = decisions.into_iter().map(|decision| decision.unwrap().allowed()).collect();
    assert_eq!(allowed, [true, true, false]);
}

#[tokio::test]
async fn a_stack_is_a_store_behind_a_trait_object() {
    let store: Arc<dyn DynCounterStore> = Arc::new(Unsteady::default());
    let stack: Arc<dyn DynCounterStore> = Arc::new(Resilience::new(store).fallback(MapStore::default(), 4));
    let limiter = on(stack);
    let decision = limiter.check("k").await.unwrap();
    assert_eq!((decision.remaining(), decision.degraded()), (11, false));
}
