//! The layers `Fallback`, `Divided` and `Open`: who decides, who is charged, and who gets units back.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{AWAY, MapStore, Mood, Unsteady};
use proptest::prelude::*;
use ratelimit_core::layers::{Divided, Fallback, RefusalCache};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    Acquire, AcquireError, CheckError, CounterStore, Decision, ErrorKind, Limits, ManualClock, RateLimiter,
    Request, StoreError, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

type Backed = Fallback<Unsteady, Divided<Unsteady>>;

/// A limiter whose store and fallback can both be away. Limits are divided by four on the fallback.
fn limiter(limits: &str) -> RateLimiter<Backed, ManualClock> {
    on(Fallback::new(Unsteady::default(), Divided::new(Unsteady::default(), 4)), limits)
}

fn on<S: CounterStore>(store: S, limits: &str) -> RateLimiter<S, ManualClock> {
    let limits: Limits = limits.parse().unwrap();
    RateLimiter::new(store, limits).with_clock(ManualClock::at(START))
}

fn store(limiter: &RateLimiter<Backed, ManualClock>) -> &Unsteady {
    limiter.store().store()
}

fn fallback(limiter: &RateLimiter<Backed, ManualClock>) -> &Unsteady {
    limiter.store().fallback().inner()
}

/// Nothing is stored, so nobody is banned.
#[tokio::test]
async fn a_fallback_that_counts_nothing_bans_nobody() {
    let store = Unsteady::default();
    store.set(AWAY);
    let limiter = on(Fallback::open(store), "2/min; ban 1h after 1 in 1min");
    let refused = limiter.check(Request::new("k").cost(3)).await.unwrap();
    assert_eq!(refused.each().map(|limit| limit.allowed()).collect::<Vec<_>>(), [false, true]);
    assert!(limiter.check("k").await.unwrap().allowed());
}

/// Units that remain on a store.
async fn remaining(store: &Unsteady, limits: &str) -> u64 {
    on(store.store.clone(), limits).peek("k").await.unwrap().remaining()
}

/// Checks until one is refused; returns how many were admitted, and the refusal.
async fn use_up<S: CounterStore>(limiter: &RateLimiter<S, ManualClock>) -> (u64, Decision<'_>) {
    for admitted in 0..1_000 {
        let decision = limiter.check("k").await.unwrap();
        if !decision.allowed() {
            return (admitted, decision);
        }
    }
    panic!("a thousand were admitted");
}

#[tokio::test]
async fn the_fallback_admits_each_limit_divided() {
    let limits = [
        "12/min",
        "12/min fixed",
        "12/min precision 20s",
        "12/min precision 20s strict",
        "12/min log",
        "12/min burst 12",
        "12/min leaky burst 12",
        "12/min queue burst 12",
        "12 at once",
        #[cfg(feature = "calendar")]
        "12/month",
    ];
    for text in limits {
        let limiter = limiter(text);
        let (admitted, refusal) = use_up(&limiter).await;
        assert_eq!((admitted, refusal.limit(), refusal.degraded()), (12, 12, false), "{text}");
        store(&limiter).set(AWAY);
        let (admitted, refusal) = use_up(&limiter).await;
        assert_eq!((admitted, refusal.limit(), refusal.degraded()), (3, 3, true), "{text}");
        assert!(refusal.retry_after().is_some_and(|wait| !wait.is_zero()), "{text}");
        store(&limiter).set(Mood::Answers);
        assert!(!limiter.check("k").await.unwrap().allowed(), "{text}: the store's counts are as they were");
    }
}

#[tokio::test]
async fn a_bucket_on_the_fallback_drains_at_the_divided_rate() {
    let limiter = limiter("12/min burst 4");
    store(&limiter).set(AWAY);
    let (admitted, refusal) = use_up(&limiter).await;
    assert_eq!((admitted, refusal.retry_after()), (1, Some(Duration::from_secs(20))));
}

#[tokio::test]
async fn a_bucket_in_steps_on_the_fallback_is_refilled_in_the_same_steps() {
    let limiter = limiter("8/h burst 8 step 1h");
    store(&limiter).set(AWAY);
    let (admitted, refusal) = use_up(&limiter).await;
    assert_eq!((admitted, refusal.retry_after()), (2, Some(Duration::from_secs(3_600))));
    limiter.clock().advance(Duration::from_secs(3_600));
    assert_eq!(use_up(&limiter).await.0, 2);
}

#[tokio::test]
async fn a_window_on_the_fallback_is_as_long_as_on_the_store_even_if_more_instances_than_units_divide_it() {
    for (text, admitted) in [("3/h from first request", 1), ("9/h from first request", 2)] {
        let limiter = limiter(text);
        store(&limiter).set(AWAY);
        for _ in 0..3 {
            let (first, refusal) = use_up(&limiter).await;
            assert_eq!(
                (first, refusal.retry_after()),
                (admitted, Some(Duration::from_secs(3_600))),
                "{text}"
            );
            limiter.clock().advance(Duration::from_secs(3_600));
        }
    }
}

#[tokio::test]
async fn bans_on_the_fallback_are_as_long_as_on_the_store() {
    for name in ["", " name log-in"] {
        let limiter = limiter(&format!("8/min; ban 10min after 3 in 1min growing 2 up to 1h{name}"));
        store(&limiter).set(AWAY);
        for _ in 0..2 {
            assert!(limiter.check("k").await.unwrap().allowed());
        }
        let minutes = |decision: &Decision<'_>| decision.retry_after().unwrap().as_secs() / 60;
        for banned in [10, 20] {
            for _ in 0..2 {
                let refusal = limiter.check(Request::new("k").cost(3)).await.unwrap();
                assert!(!refusal.allowed() && minutes(&refusal) < 2, "{refusal:?}");
            }
            let refusal = limiter.check(Request::new("k").cost(3)).await.unwrap();
            assert_eq!(minutes(&refusal), banned, "{refusal:?}");
            limiter.clock().advance(refusal.retry_after().unwrap());
        }
    }
}

#[tokio::test]
async fn more_instances_than_units_admit_one_each() {
    for text in ["3/min", "3/min log", "3/min burst 3", "3 at once"] {
        let limiter = limiter(text);
        store(&limiter).set(AWAY);
        assert_eq!(use_up(&limiter).await.0, 1, "{text}");
    }
}

#[tokio::test]
async fn units_return_only_to_the_store_that_charged_them() {
    for text in ["12/min", "12/min fixed", "12/min log", "12/min burst 12", "12 at once"] {
        let limiter = limiter(text);
        for _ in 0..12 {
            assert!(limiter.check("k").await.unwrap().allowed());
        }
        store(&limiter).set(AWAY);
        let decision = limiter.check(Request::new("k").cost(3)).await.unwrap().into_owned();
        assert!(decision.charged() && decision.degraded(), "{text}");
        store(&limiter).set(Mood::Answers);
        let returned = if text == "12 at once" {
            limiter.release(&decision).await.unwrap();
            3
        } else {
            limiter.settle(&decision, 1).await.unwrap();
            2
        };
        assert_eq!(remaining(store(&limiter), text).await, 0, "{text}: units of others were given away");
        store(&limiter).set(AWAY);
        assert_eq!(use_up(&limiter).await.0, returned, "{text}: the fallback has them back");
    }
}

#[tokio::test]
async fn refunds_to_a_store_that_is_away_fail_and_touch_no_other() {
    let limiter = limiter("12/min");
    let of_store = limiter.check(Request::new("k").cost(5)).await.unwrap();
    store(&limiter).set(AWAY);
    let of_fallback = limiter.check(Request::new("k").cost(3)).await.unwrap();
    assert_eq!(limiter.refund(&of_store).await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(
        !limiter.check("k").await.unwrap().allowed(),
        "the fallback has returned units that it had not charged"
    );
    limiter.refund(&of_fallback).await.unwrap();
    assert_eq!(use_up(&limiter).await.0, 3);
    store(&limiter).set(Mood::Answers);
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 7);
}

#[tokio::test]
async fn what_is_used_beyond_the_estimate_is_charged_where_decisions_are_made_now() {
    let limiter = limiter("12/min");
    let decision = limiter.check("k").await.unwrap();
    store(&limiter).set(AWAY);
    limiter.settle(&decision, 3).await.unwrap();
    assert_eq!(use_up(&limiter).await.0, 1, "two of three were charged on the fallback");
    let decision = limiter.charge("k").await.unwrap();
    store(&limiter).set(Mood::Answers);
    limiter.settle(&decision, 5).await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 12 - 1 - 4);
}

#[tokio::test]
async fn a_lease_moves_to_the_fallback_and_back() {
    let text = "4 at once lease 60s";
    let limiter = limiter(text);
    let held = limiter.check("k").await.unwrap();
    store(&limiter).set(AWAY);
    for _ in 0..5 {
        limiter.clock().advance(Duration::from_secs(20));
        assert!(limiter.renew(&held).await.unwrap(), "it is still held");
    }
    assert!(
        !limiter.check("k").await.unwrap().allowed(),
        "it counts on the fallback, which has room for one"
    );
    store(&limiter).set(Mood::Answers);
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 4, "the old lease has ended");
    assert!(limiter.renew(&held).await.unwrap());
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 3);
    store(&limiter).set(AWAY);
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 1, "the renewal has released it there");
    store(&limiter).set(Mood::Answers);
    limiter.release(&held).await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 4);
}

#[tokio::test]
async fn a_lease_that_ended_is_lost_on_the_fallback_too() {
    let limiter = limiter("4 at once lease 60s");
    store(&limiter).set(AWAY);
    let held = limiter.check("k").await.unwrap();
    assert!(held.degraded());
    limiter.clock().advance(Duration::from_secs(61));
    assert!(!limiter.renew(&held).await.unwrap());
}

/// Leases of the store that are renewed on the fallback exceed its limit by far. It must not forget its own for that.
#[tokio::test]
async fn renewals_push_no_lease_of_the_fallback_out() {
    let limiter = limiter("20 at once lease 60s");
    let mut of_store = Vec::new();
    for _ in 0..20 {
        of_store.push(limiter.check("k").await.unwrap());
    }
    store(&limiter).set(AWAY);
    assert_eq!(use_up(&limiter).await.0, 5);
    limiter.clock().advance(Duration::from_secs(1));
    for held in &of_store {
        assert!(limiter.renew(held).await.unwrap());
    }
    for held in &of_store {
        limiter.release(held).await.unwrap();
    }
    assert_eq!(use_up(&limiter).await.0, 0, "the five that it admitted are still held");
}

#[tokio::test]
async fn an_answer_that_got_lost_counts_on_both() {
    let limiter = limiter("12/min");
    store(&limiter).set(Mood::LosesAnswers);
    let decision = limiter.check("k").await.unwrap();
    assert!(decision.degraded());
    limiter.refund(&decision).await.unwrap();
    assert_eq!(remaining(store(&limiter), "12/min").await, 11, "only the fallback returns what it charged");
    assert_eq!(remaining(fallback(&limiter), "3/min").await, 3);
}

#[tokio::test]
async fn a_peek_writes_nothing_and_a_reset_reaches_both() {
    let limiter = limiter("12/min");
    use_up(&limiter).await;
    store(&limiter).set(AWAY);
    let peek = limiter.peek("k").await.unwrap();
    assert_eq!((peek.remaining(), peek.degraded(), peek.charged()), (3, true, false));
    use_up(&limiter).await;
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 0);
    let forced = limiter.charge("k").await.unwrap();
    assert!(forced.allowed() && forced.degraded());
    // Not reset where it counts, so it is an error; but what can be reset is.
    assert!(limiter.reset("k").await.is_err());
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 3);
    use_up(&limiter).await;
    store(&limiter).set(Mood::Answers);
    limiter.reset("k").await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 12);
    store(&limiter).set(AWAY);
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 3);
    store(&limiter).set(Mood::Answers);
    fallback(&limiter).set(AWAY);
    assert!(limiter.reset("k").await.is_err(), "it may count on the fallback later");
}

#[tokio::test]
async fn many_checks_take_one_call_to_each_store_in_order() {
    let limiter = limiter("8/min");
    store(&limiter).set(AWAY);
    let decisions = limiter.check_many(["k"; 4]).await;
    let allowed: Vec<bool> = decisions.into_iter().map(|decision| decision.unwrap().allowed()).collect();
    assert_eq!(allowed, [true, true, false, false]);
    assert_eq!((store(&limiter).calls(), fallback(&limiter).calls()), (1, 1));
}

/// A store that fails for one key.
#[derive(Debug, Default)]
struct Picky(MapStore);

impl CounterStore for Picky {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if claims.iter().any(|claim| claim.id.key == b"corrupt") {
            return Err(StoreError::new("picky", ErrorKind::Corrupt, "on purpose"));
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

#[tokio::test]
async fn of_many_checks_only_those_that_failed_go_to_the_fallback() {
    let limiter = on(Fallback::new(Picky::default(), Divided::new(Unsteady::default(), 4)), "8/min");
    let decisions = limiter.check_many(["a", "corrupt", "b", "corrupt", "corrupt"]).await;
    let decisions: Vec<_> = decisions.into_iter().map(Result::unwrap).collect();
    let seen: Vec<_> = decisions.iter().map(|decision| (decision.degraded(), decision.remaining())).collect();
    assert_eq!(seen, [(false, 7), (true, 1), (false, 7), (true, 0), (true, 0)]);
    assert_eq!(limiter.store().fallback().inner().store.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn if_both_fail_the_error_names_both() {
    for (first, second, kind, applied) in [
        (AWAY, AWAY, ErrorKind::Unreachable, Applied::No),
        (AWAY, Mood::LosesAnswers, ErrorKind::Unreachable, Applied::Unknown),
        (Mood::LosesAnswers, AWAY, ErrorKind::Timeout, Applied::Unknown),
    ] {
        let limiter = limiter("12/min");
        store(&limiter).set(first);
        fallback(&limiter).set(second);
        let many = limiter.check_many(["k"]).await.pop().unwrap();
        for result in [limiter.check("k").await, many] {
            let Err(CheckError::Store(error)) = result else { panic!("{result:?}") };
            assert_eq!((error.kind(), error.applied()), (kind, applied), "{error}");
            assert_eq!(error.to_string().matches("unsteady").count(), 2, "{error}");
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_divided_limit_is_not_refused_for_ever() {
    let limiter = limiter("12/min");
    store(&limiter).set(AWAY);
    let refusal = limiter.check(Request::new("k").cost(5)).await.unwrap();
    assert_eq!((refusal.allowed(), refusal.retry_after()), (false, Some(Duration::from_secs(1))));
    let never = limiter.check(Request::new("k").cost(13)).await.unwrap();
    assert_eq!((never.allowed(), never.retry_after()), (false, None));
    let options = Acquire::default().timeout(Duration::ZERO);
    let error = limiter.acquire_with(Request::new("k").cost(5), options).await.unwrap_err();
    assert!(matches!(error, AcquireError::Deadline(_)), "{error}");
}

#[tokio::test]
async fn open_admits_without_charging() {
    let limiter = on(Fallback::open(Unsteady::default()), "2/min; 1 at once");
    limiter.store().store().set(AWAY);
    for _ in 0..10 {
        let decision = limiter.check("k").await.unwrap();
        assert!(decision.allowed() && decision.degraded() && !decision.charged());
        assert_eq!((decision.remaining(), decision.delay()), (1, Duration::ZERO));
        assert!(limiter.renew(&decision).await.unwrap());
        limiter.refund(&decision).await.unwrap();
    }
    assert!(!limiter.check(Request::new("k").cost(3)).await.unwrap().allowed(), "no store would admit it");
    assert!(limiter.charge(Request::new("k").cost(3)).await.unwrap().allowed());
    limiter.store().store().set(Mood::Answers);
    assert!(!limiter.check("k").await.is_ok_and(|decision| decision.degraded()));
}

#[tokio::test]
async fn open_renews_nothing_and_gives_nothing_back() {
    let limiter = on(Fallback::open(Unsteady::default()), "1 at once lease 60s");
    let held = limiter.check("k").await.unwrap().into_owned();
    // One call fails: the renewal. The store answers when the old units would be given back.
    limiter.store().store().set_once(AWAY, Mood::Answers);
    let error = limiter.renew(&held).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No));
    assert!(!limiter.check("k").await.unwrap().allowed(), "the store still counts what is held");
    assert!(limiter.renew(&held).await.unwrap());
    limiter.release(&held).await.unwrap();
    assert!(limiter.check("k").await.unwrap().allowed());
}

/// A settlement that gives units back and then charges others, and a refund to both stores.
#[tokio::test]
async fn what_is_done_in_part_may_have_been_applied() {
    let limiter = on(Unsteady::default(), "10/min name a");
    let both = Request::new("a").cost(5).and(Request::new("b").cost(5));
    let decision = limiter.check(both).await.unwrap();
    limiter.store().set_once(Mood::Answers, AWAY);
    let error = limiter.settle_each(&decision, |limit| 1 + 6 * limit.key_index() as u64).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Unknown);
    // A call that does nothing but fail was not applied.
    let error = limiter.settle(&decision, 7).await.unwrap_err();
    assert_eq!(error.applied(), Applied::No);

    let limiter = on(Fallback::new(Unsteady::default(), MapStore::default()), "10/min");
    limiter.store().store().set_once(AWAY, Mood::Answers);
    let [of_fallback, of_store] =
        [limiter.check("k").await.unwrap().into_owned(), limiter.check("k").await.unwrap().into_owned()];
    assert!(of_fallback.degraded() && !of_store.degraded());
    limiter.store().store().set(AWAY);
    assert_eq!(limiter.refund(&of_store).await.unwrap_err().applied(), Applied::No);
    let Err(CheckError::Store(error)) = limiter.reset("k").await else { panic!("the store is away") };
    assert_eq!(error.applied(), Applied::Unknown, "the fallback is reset");
}

#[tokio::test]
async fn a_cache_above_does_not_keep_refusals_of_the_fallback() {
    let store = Fallback::new(Unsteady::default(), Divided::new(MapStore::default(), 12));
    let limiter = on(RefusalCache::new(store), "12/min");
    limiter.store().inner().store().set(AWAY);
    assert_eq!(use_up(&limiter).await.0, 1);
    limiter.store().inner().store().set(Mood::Answers);
    assert!(limiter.check("k").await.unwrap().allowed());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Check { instance: usize, cost: u64 },
    Refund(usize),
    Mood(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3_usize, 1..4_u64).prop_map(|(instance, cost)| Step::Check { instance, cost }),
        4 => any::<usize>().prop_map(Step::Refund),
        2 => (0..3_usize).prop_map(Step::Mood),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// However often the store goes away, with its answers or without, at most the limit is used on the store and at most
    /// the limit on all fallbacks together: by those whose decisions were not refunded.
    #[test]
    fn at_most_twice_the_limit_is_used(steps in steps(), kind in 0..5_usize) {
        let text = ["12/h fixed", "12/h", "12/h log", "12/h burst 12", "12 at once lease 1h"][kind];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Unsteady::default();
        let limits: Vec<_> = (0..3)
            .map(|_| on(Fallback::new(store.clone(), Divided::new(Arc::new(MapStore::default()), 3)), text))
            .collect();
        let mut used: Vec<(usize, u64, Decision<'static>)> = Vec::new();
        for step in steps {
            match step {
                Step::Mood(mood) => store.set([Mood::Answers, AWAY, Mood::LosesAnswers][mood]),
                Step::Check { instance, cost } => {
                    let request = Request::new("k").cost(cost);
                    let decision = runtime.block_on(limits[instance].check(request)).unwrap();
                    if decision.allowed() {
                        used.push((instance, cost, decision.into_owned()));
                    }
                }
                Step::Refund(index) if !used.is_empty() => {
                    let (instance, _, decision) = used.swap_remove(index % used.len());
                    let _ = runtime.block_on(limits[instance].refund(&decision));
                }
                Step::Refund(_) => {}
            }
            let of = |degraded: bool| -> u64 {
                let those = used.iter().filter(|(_, _, decision)| decision.degraded() == degraded);
                those.map(|(_, cost, _)| cost).sum()
            };
            prop_assert!(of(false) <= 12, "{} on the store", of(false));
            prop_assert!(of(true) <= 12, "{} on the fallbacks", of(true));
        }
    }
}
