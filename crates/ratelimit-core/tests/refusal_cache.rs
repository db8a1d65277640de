//! The layer `RefusalCache`: when it asks the store, what it returns, and how stale that may be.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{MapStore, Mood, Unsteady};
use proptest::prelude::*;
use ratelimit_core::layers::RefusalCache;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{
    CounterStore, Decision, Limit, Limits, ManualClock, RateLimiter, Request, StoreError, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TICK: Duration = Duration::from_nanos(1);

type Cached = RateLimiter<RefusalCache<Arc<MapStore>>, ManualClock>;

fn limiter<S: CounterStore>(store: S, limit: &str) -> RateLimiter<S, ManualClock> {
    let limit: Limit = limit.parse().unwrap();
    RateLimiter::new(store, limit).with_clock(ManualClock::at(START))
}

fn cached(store: &Arc<MapStore>, limit: &str) -> Cached {
    limiter(RefusalCache::new(store.clone()).with_max_age(Duration::from_secs(3_600)), limit)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn store_calls(store: &MapStore) -> u64 {
    store.asked.load(Ordering::SeqCst)
}

/// Uses up a key's limit, and then gets one refusal.
async fn fill<'l>(limiter: &'l Cached, key: &str) -> Decision<'l> {
    loop {
        let decision = limiter.check(key).await.unwrap();
        if !decision.allowed() {
            return decision;
        }
    }
}

#[test]
fn repeated_refusals_take_no_store_call_until_a_unit_is_free() {
    run(async {
        for limit in [
            "3/min fixed",
            "3/min",
            "3/min precision 20s",
            "3/min burst 3",
            "3/min log",
            "3/min queue burst 3",
        ] {
            let store = Arc::new(MapStore::default());
            let limiter = cached(&store, limit);
            let wait = fill(&limiter, "k").await.retry_after().unwrap();
            let before = store_calls(&store);
            for _ in 0..100 {
                assert!(!limiter.check("k").await.unwrap().allowed(), "{limit}");
            }
            limiter.clock().advance(wait - TICK);
            let late = limiter.check("k").await.unwrap();
            assert_eq!((late.allowed(), late.retry_after()), (false, Some(TICK)), "{limit}");
            assert_eq!((store_calls(&store) - before, limiter.store().answered()), (0, 101), "{limit}");
            limiter.clock().advance(TICK);
            assert!(limiter.check("k").await.unwrap().allowed(), "{limit}");
        }
    });
}

#[test]
fn local_refunds_and_resets_take_effect_immediately() {
    run(async {
        let store = Arc::new(MapStore::default());
        let limiter = cached(&store, "3/min");
        let first = limiter.check("k").await.unwrap();
        fill(&limiter, "k").await;
        assert!(!limiter.check("k").await.unwrap().allowed());
        limiter.refund(&first).await.unwrap();
        assert!(limiter.check("k").await.unwrap().allowed());
        fill(&limiter, "k").await;
        limiter.reset("k").await.unwrap();
        assert!(limiter.check("k").await.unwrap().allowed());
    });
}

#[test]
fn refunds_and_resets_take_effect_even_if_their_caller_gives_up() {
    run(async {
        let store = Unsteady::default();
        let cache = RefusalCache::new(store.clone()).with_max_age(Duration::from_secs(3_600));
        let limiter = limiter(cache, "3/min");
        let first = limiter.check("k").await.unwrap();
        for resets in [false, true] {
            while limiter.check("k").await.unwrap().allowed() {}
            store.set(Mood::HangsAfterwards);
            let (reset, refund) = (limiter.reset("k"), limiter.refund(&first));
            tokio::select! {
                biased;
                _ = reset, if resets => unreachable!(),
                _ = refund, if !resets => unreachable!(),
                () = std::future::ready(()) => {}
            }
            store.set(Mood::Answers);
            assert!(limiter.check("k").await.unwrap().allowed());
        }
    });
}

#[test]
fn charges_take_effect_even_if_their_caller_gives_up() {
    run(async {
        for is_batch in [false, true] {
            let store = Unsteady::default();
            let cache = RefusalCache::new(store.clone()).with_max_age(Duration::from_secs(3_600));
            let limiter = limiter(cache, "10/min burst 10");
            let cost = |units| Request::new("k").cost(units);
            limiter.check(cost(6)).await.unwrap();
            let retry_after = async || limiter.check(cost(5)).await.unwrap().retry_after();
            assert_eq!(retry_after().await, Some(Duration::from_secs(6)));
            store.set(Mood::HangsAfterwards);
            tokio::select! {
                biased;
                _ = limiter.check(cost(4)), if !is_batch => unreachable!(),
                _ = limiter.check_many([cost(4)]), if is_batch => unreachable!(),
                () = std::future::ready(()) => {}
            }
            store.set(Mood::Answers);
            assert_eq!(retry_after().await, Some(Duration::from_secs(30)), "batch: {is_batch}");
        }
    });
}

#[test]
fn resets_by_other_processes_take_effect_after_max_age() {
    run(async {
        let store = Arc::new(MapStore::default());
        let cached = limiter(RefusalCache::new(store.clone()), "3/h");
        let other = limiter(store.clone(), "3/h");
        while cached.check("k").await.unwrap().allowed() {}
        other.reset("k").await.unwrap();
        cached.clock().advance(Duration::from_secs(1) - TICK);
        assert!(!cached.check("k").await.unwrap().allowed());
        cached.clock().advance(TICK);
        assert!(cached.check("k").await.unwrap().allowed());
    });
}

#[test]
fn a_banned_key_takes_no_store_call_until_max_age_a_reset_or_the_end_of_the_ban() {
    run(async {
        let store = Arc::new(MapStore::default());
        let limits: Limits =
            "3/s; 100/day; ban 1min after 2 in 1min; ban 1day after 9 in 1day name long".parse().unwrap();
        let cache = RefusalCache::new(store.clone()).with_max_age(Duration::from_secs(40));
        let other = RateLimiter::new(store.clone(), limits.clone()).with_clock(ManualClock::at(START));
        let limiter = RateLimiter::new(cache, limits).with_clock(other.clock().clone());
        fill(&limiter, "k").await;
        assert!(fill(&limiter, "k").await.decided_by().rule().is_ban());

        let calls_for = async |advance: Duration| {
            limiter.clock().advance(advance);
            let before = store_calls(&store);
            let decision = limiter.check("k").await.unwrap();
            (decision.allowed(), decision.retry_after().unwrap().as_secs(), store_calls(&store) - before)
        };
        assert_eq!(calls_for(Duration::from_secs(10)).await, (false, 50, 1), "the first one asks the store");
        assert_eq!(calls_for(Duration::from_secs(10)).await, (false, 40, 0));
        assert_eq!(calls_for(Duration::from_secs(30)).await, (false, 10, 1), "after max_age");
        let decision = limiter.check("k").await.unwrap();
        let allowed: Vec<bool> = decision.each().map(|status| status.allowed()).collect();
        assert_eq!(allowed, [true, true, false, true], "the limits themselves have room again");
        assert!(limiter.check("other").await.unwrap().allowed());
        assert_eq!(calls_for(Duration::from_secs(10) - TICK).await, (false, 0, 0));
        assert_eq!(calls_for(TICK).await, (true, 0, 1), "the end of the ban");

        fill(&limiter, "k").await;
        fill(&limiter, "k").await;
        assert_eq!(calls_for(Duration::ZERO).await, (false, 60, 1));
        assert_eq!(calls_for(Duration::ZERO).await, (false, 60, 0));
        limiter.reset("k").await.unwrap();
        assert!(limiter.check("k").await.unwrap().allowed(), "the ban was lifted");
    });
}

#[test]
fn changed_limits_other_costs_and_several_limits_reach_the_store() {
    run(async {
        let store = Arc::new(MapStore::default());
        let limiter = cached(&store, "3/min");
        fill(&limiter, "k").await;
        let raised: Limits = "4/min".parse::<Limit>().unwrap().into();
        assert!(limiter.check(Request::new("k").limits(&raised)).await.unwrap().allowed());
        fill(&limiter, "k").await;
        let before = store_calls(&store);
        assert!(!limiter.check(Request::new("k").cost(2)).await.unwrap().allowed());
        let both = Limits::new(["3/min".parse().unwrap(), "9/h".parse().unwrap()]).unwrap();
        assert!(!limiter.check(Request::new("k").limits(&both)).await.unwrap().allowed());
        assert!(
            !limiter.check(Request::new("other").cost(1).and(Request::new("k"))).await.unwrap().allowed()
        );
        assert_eq!(store_calls(&store) - before, 3);
        assert!(limiter.check("other").await.unwrap().allowed());
    });
}

#[test]
fn a_slice_sees_changes_by_earlier_slices_of_its_batch() {
    run(async {
        let (store, twin) = (Arc::new(MapStore::default()), MapStore::default());
        let (limiter, twin) = (cached(&store, "3/min"), limiter(twin, "3/min"));
        let two = || Request::new("k").cost(2);
        // Now one is left, so two are refused.
        assert!(limiter.check(two()).await.unwrap().allowed() && twin.check(two()).await.unwrap().allowed());
        assert!(!limiter.check(two()).await.unwrap().allowed());
        let batch = [two(), Request::new("k"), two(), Request::new("new")];
        let reported: Vec<_> =
            limiter.check_many(batch.iter()).await.into_iter().map(Result::unwrap).collect();
        let true_ones: Vec<_> = twin.check_many(batch.iter()).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(reported, true_ones);
    });
}

/// A store that declares other guarantees.
#[derive(Debug)]
struct Promising(Arc<MapStore>, Promises);

impl CounterStore for Promising {
    fn promises(&self) -> Promises {
        self.1
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.0.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

#[test]
fn conservative_stores_and_server_clocks_are_never_cached() {
    run(async {
        for promises in [
            Promises::new(Decisions::Conservative, Time::Caller).not_monotonic(),
            Promises::new(Decisions::Exact, Time::Server),
        ] {
            let store = Arc::new(MapStore::default());
            let promising = Promising(store.clone(), promises);
            let limiter = limiter(RefusalCache::new(promising), "3/min");
            for _ in 0..10 {
                limiter.check("k").await.unwrap();
            }
            assert_eq!((store_calls(&store), limiter.store().answered()), (10, 0));
        }
    });
}

/// A store whose answers are delayed.
#[derive(Debug)]
struct Held {
    inner: MapStore,
    answers: tokio::sync::Semaphore,
}

impl CounterStore for Held {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.inner.claim(claims).await;
        self.answers.acquire().await.unwrap().forget();
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

#[test]
fn refusals_from_before_a_reset_are_not_cached() {
    run(async {
        let held = Held { inner: MapStore::default(), answers: tokio::sync::Semaphore::new(1) };
        let limiter = Arc::new(limiter(RefusalCache::new(held), "1/h"));
        assert!(limiter.check("k").await.unwrap().allowed());
        let late = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.check("k").await.unwrap().allowed() }
        });
        tokio::task::yield_now().await;
        limiter.reset("k").await.unwrap();
        limiter.store().inner().answers.add_permits(2);
        assert!(!late.await.unwrap(), "it was decided before the reset");
        assert!(limiter.check("k").await.unwrap().allowed());
    });
}

#[derive(Clone, Debug)]
enum Step {
    Check { key: u8, cost: u64 },
    WouldAllow { key: u8, cost: u64 },
    Charge { key: u8, cost: u64 },
    Refund,
    Reset { key: u8 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (key, cost) = (0..3_u8, 0..5_u64);
    prop_oneof![
        8 => (key.clone(), cost.clone()).prop_map(|(key, cost)| Step::Check { key, cost }),
        2 => (key.clone(), cost.clone()).prop_map(|(key, cost)| Step::WouldAllow { key, cost }),
        1 => (key.clone(), cost).prop_map(|(key, cost)| Step::Charge { key, cost }),
        1 => Just(Step::Refund),
        1 => key.prop_map(|key| Step::Reset { key }),
        3 => (0..200_000_000_u64).prop_map(Step::Wait),
        1 => (0..3_000_000_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// All figures of all decisions are the same with and without it.
    #[test]
    fn the_cache_changes_no_decision(
        limit in prop::sample::select(vec![
            "4/2s fixed", "4/2s", "4/2s precision 500ms", "4/2s precision 500ms strict", "4/2s burst 4", "4/2s log",
            "4/2s leaky burst 4", "4/2s queue burst 4",
        ]),
        capacity in 1..4_usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let cache = RefusalCache::new(MapStore::default()).with_capacity(capacity);
        let (cached, twin) = (limiter(cache, limit), limiter(MapStore::default(), limit));
        run(async {
            let mut last = None;
            for step in steps {
                match step {
                    Step::Check { key, cost } => {
                        let key = [key];
                        let request = Request::new(&key).cost(cost);
                        let decisions = (cached.check(&request).await.unwrap(), twin.check(&request).await.unwrap());
                        prop_assert_eq!(&decisions.0, &decisions.1);
                        last = Some(decisions);
                    }
                    Step::WouldAllow { key, cost } => {
                        let key = [key];
                        let request = Request::new(&key).cost(cost);
                        let decision = cached.would_allow(&request).await.unwrap();
                        prop_assert_eq!(decision, twin.would_allow(&request).await.unwrap());
                    }
                    Step::Charge { key, cost } => {
                        let key = [key];
                        let request = Request::new(&key).cost(cost);
                        prop_assert_eq!(cached.charge(&request).await.unwrap(), twin.charge(&request).await.unwrap());
                    }
                    Step::Refund => {
                        if let Some((decision, twins)) = last.take() {
                            cached.refund(&decision).await.unwrap();
                            twin.refund(&twins).await.unwrap();
                        }
                    }
                    Step::Reset { key } => {
                        cached.reset(&[key]).await.unwrap();
                        twin.reset(&[key]).await.unwrap();
                    }
                    Step::Wait(nanos) => {
                        cached.clock().advance(Duration::from_nanos(nanos));
                        twin.clock().advance(Duration::from_nanos(nanos));
                    }
                }
            }
            Ok(())
        })?;
    }
}
