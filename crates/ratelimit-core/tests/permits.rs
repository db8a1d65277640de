//! Permits: renewed while they are held, lost when the store is gone for a lease, released when they are dropped.
#![cfg(feature = "tokio")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::MapStore;
use ratelimit_core::clock::TokioClock;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claims, Decisions, Mode, Promises, Refund, Time};
use ratelimit_core::{
    Acquire, AcquireError, Clock, CounterStore, ErrorKind, Limit, Limits, ManualClock, Permit, RateLimiter,
    StoreError, Timestamp,
};

/// A store that can be switched off.
#[derive(Debug, Default)]
struct Switched {
    inner: MapStore,
    is_off: AtomicBool,
    /// Refunds are applied, but nobody learns of it.
    loses_answers: AtomicBool,
    renewals: AtomicUsize,
    releases: AtomicUsize,
}

impl Switched {
    fn check(&self) -> Result<(), StoreError> {
        match self.is_off.load(Ordering::SeqCst) {
            true => Err(StoreError::new("switched", ErrorKind::Unreachable, "switched off")),
            false => Ok(()),
        }
    }
}

impl CounterStore for Switched {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.renewals.fetch_add(usize::from(claims.mode() == Mode::Force), Ordering::SeqCst);
        self.check()?;
        self.inner.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.inner.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        self.inner.refund(now, refunds).await?;
        match self.loses_answers.load(Ordering::SeqCst) {
            true => Err(StoreError::new("switched", ErrorKind::Timeout, "the answer was lost")),
            false => Ok(()),
        }
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

fn limiter(text: &str) -> Arc<RateLimiter<Arc<Switched>>> {
    Arc::new(RateLimiter::new(Arc::new(Switched::default()), text.parse::<Limit>().unwrap()))
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..2_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within ten seconds: {what}");
}

#[tokio::test]
async fn failed_renewals_are_repeated_until_the_lease_ends() {
    let limiter = limiter("1 at once lease 400ms");
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().is_off.store(true, Ordering::SeqCst);
    until("lost", async || permit.is_lost()).await;
    assert!(limiter.store().renewals.load(Ordering::SeqCst) > 1);
    limiter.store().is_off.store(false, Ordering::SeqCst);
    // The units are free, and a late release takes nothing from the next holder.
    let next = limiter.check("k").await.unwrap();
    assert!(next.allowed());
    permit.release().await.unwrap();
    assert!(!limiter.check("k").await.unwrap().allowed());
}

#[tokio::test]
async fn a_short_outage_of_the_store_loses_no_permit() {
    let limiter = limiter("1 at once lease 2s");
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().is_off.store(true, Ordering::SeqCst);
    until("a failed renewal", async || limiter.store().renewals.load(Ordering::SeqCst) > 0).await;
    limiter.store().is_off.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!permit.is_lost());
    assert!(!limiter.check("k").await.unwrap().allowed());
    drop(permit);
    until("released", async || limiter.peek("k").await.unwrap().remaining() == 1).await;
}

/// A store that does not answer renewals: each takes two seconds to fail, and may have been applied.
#[derive(Debug, Default)]
struct Frozen {
    inner: MapStore,
    renewals: Mutex<Vec<tokio::time::Instant>>,
}

impl CounterStore for Frozen {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if claims.mode() != Mode::Force {
            return self.inner.claim(claims).await;
        }
        self.renewals.lock().unwrap().push(tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(2)).await;
        Err(StoreError::new("frozen", ErrorKind::Timeout, "no answer"))
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

/// With pauses between a failure and the next attempt, a slow failure would leave too few attempts.
#[tokio::test(start_paused = true)]
async fn renewals_that_may_have_been_applied_begin_a_quarter_of_a_lease_apart() {
    let limit: Limit = "1 at once lease 12s".parse().unwrap();
    let limiter = Arc::new(RateLimiter::new(Frozen::default(), limit));
    let held = tokio::time::Instant::now();
    let _permit = limiter.hold(limiter.check("k").await.unwrap());
    tokio::time::sleep(Duration::from_secs(12)).await;
    let renewals = limiter.store().renewals.lock().unwrap();
    let seconds: Vec<u64> = renewals.iter().map(|begun| begun.duration_since(held).as_secs()).collect();
    assert_eq!(seconds, [4, 7, 10]);
}

/// The store is away when a permit is released; afterwards it answers.
async fn released_in_an_outage(release: impl AsyncFn(Permit)) -> Arc<RateLimiter<Arc<Switched>>> {
    let limiter = limiter("1 at once");
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().is_off.store(true, Ordering::SeqCst);
    release(permit).await;
    until("tried", async || limiter.store().releases.load(Ordering::SeqCst) > 0).await;
    limiter.store().is_off.store(false, Ordering::SeqCst);
    limiter
}

#[tokio::test]
async fn a_release_reports_that_the_store_is_down_and_is_repeated() {
    let limiter = released_in_an_outage(async |permit| {
        assert_eq!(permit.release().await.unwrap_err().kind(), ErrorKind::Unreachable);
    })
    .await;
    until("released", async || limiter.peek("k").await.unwrap().remaining() == 1).await;
}

#[tokio::test]
async fn the_release_of_a_dropped_permit_is_repeated_while_the_store_is_down() {
    let limiter = released_in_an_outage(async |permit| drop(permit)).await;
    until("released", async || limiter.peek("k").await.unwrap().remaining() == 1).await;
}

#[tokio::test]
async fn releases_are_repeated_until_the_longest_lease_ends() {
    let limits: Limits = "1 at once lease 400ms name short; 1 at once lease 30s name long".parse().unwrap();
    let limiter = Arc::new(RateLimiter::new(Arc::new(Switched::default()), limits));
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().is_off.store(true, Ordering::SeqCst);
    drop(permit);
    // The short lease has ended many attempts ago.
    until("tried", async || limiter.store().releases.load(Ordering::SeqCst) > 60).await;
    limiter.store().is_off.store(false, Ordering::SeqCst);
    until("released", async || limiter.peek("k").await.unwrap().remaining() == 1).await;
}

#[tokio::test]
async fn a_release_that_may_have_been_applied_is_not_repeated() {
    let limiter = limiter("2 at once lease 800ms");
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().loses_answers.store(true, Ordering::SeqCst);
    assert_eq!(permit.release().await.unwrap_err().applied(), Applied::Unknown);
    tokio::time::sleep(Duration::from_millis(200)).await; // the time of several attempts
    assert_eq!(limiter.store().releases.load(Ordering::SeqCst), 1);
}

/// A store that decides by its own clock, which is apart from the limiter's.
#[derive(Debug)]
struct OwnClock {
    inner: MapStore,
    clock: ManualClock,
}

impl CounterStore for OwnClock {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Server)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let copies: Vec<_> = claims.iter().copied().collect();
        self.inner.claim(Claims::new(self.clock.now(), claims.mode(), &copies).unwrap()).await
    }

    async fn refund(&self, _: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(self.clock.now(), refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

#[tokio::test]
async fn the_clock_that_decides_ends_a_lease() {
    for ahead in [0, 600, 1_200] {
        let of_store = ManualClock::at(Timestamp::from_secs(10_600));
        let of_limiter = ManualClock::at(Timestamp::from_secs(10_000 + ahead));
        let store = OwnClock { inner: MapStore::default(), clock: of_store.clone() };
        let limit: Limit = "1 at once lease 60s".parse().unwrap();
        let limiter = RateLimiter::new(store, limit).with_clock(of_limiter.clone());
        let pass =
            |seconds| [&of_store, &of_limiter].map(|clock| clock.advance(Duration::from_secs(seconds)));
        let decision = limiter.check("k").await.unwrap().into_owned();
        for _ in 0..4 {
            pass(60);
            assert!(limiter.renew(&decision).await.unwrap(), "{ahead} s");
            assert!(!limiter.check("k").await.unwrap().allowed());
        }
        pass(61);
        let mut next = limiter.check("k").await.unwrap().into_owned();
        assert!(next.allowed());
        assert!(!limiter.renew(&decision).await.unwrap(), "{ahead} s: the lease has ended");
        // What the late renewal charged is given back.
        limiter.release(&next).await.unwrap();
        next = limiter.check("k").await.unwrap().into_owned();
        assert!(next.allowed());
        assert!(limiter.renew(&next).await.unwrap());
    }
}

/// Two nodes whose clocks are 50 seconds apart. Each limit is on another one, and the answer has the later instant.
#[derive(Debug)]
struct TwoNodes {
    inner: MapStore,
    clock: ManualClock,
}

impl CounterStore for TwoNodes {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Server)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answers = Vec::new();
        for (claim, ahead) in claims.iter().zip([0, 50]) {
            let now = self.clock.now() + Duration::from_secs(ahead);
            answers.push(self.inner.claim(Claims::new(now, claims.mode(), &[*claim]).unwrap()).await?);
        }
        let mut answer = answers[1].clone();
        answer.charged = answers.iter().all(|answer| answer.charged);
        answer.verdicts = answers.iter().map(|answer| answer.verdicts[0]).collect();
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

#[tokio::test]
async fn each_lease_ends_by_the_clock_of_its_node() {
    let clock = ManualClock::at(Timestamp::from_secs(10_000));
    let store = TwoNodes { inner: MapStore::default(), clock: clock.clone() };
    let limits: Limits = "2 at once lease 60s name a; 2 at once lease 60s name b".parse().unwrap();
    let limiter = RateLimiter::new(store, limits).with_clock(clock.clone());
    let decision = limiter.check("k").await.unwrap().into_owned();
    for seconds in [20, 60, 1] {
        clock.advance(Duration::from_secs(seconds));
        assert!(limiter.renew(&decision).await.unwrap(), "after {seconds} s");
    }
    clock.advance(Duration::from_secs(61));
    assert!(!limiter.renew(&decision).await.unwrap());
}

#[tokio::test]
async fn decisions_without_a_lease_are_held_by_nothing() {
    let limiter = limiter("1/h");
    let decision = limiter.check("k").await.unwrap();
    assert!(limiter.renew(&decision).await.unwrap());
    limiter.hold(decision).release().await.unwrap();
    let refused = limiter.check("k").await.unwrap();
    assert!(!refused.allowed());
    assert!(limiter.renew(&refused).await.unwrap());
    limiter.release(&refused).await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 0);
}

#[tokio::test]
async fn waiting_ends_soon_after_a_release_or_at_the_deadline() {
    let limiter = limiter("1 at once");
    let held = limiter.check("k").await.unwrap().into_owned();
    let patient = Acquire::default().timeout(Duration::from_secs(30));
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire_with("k", patient).await.map(|decision| decision.allowed()) }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    limiter.release(&held).await.unwrap();
    assert!(waiting.await.unwrap().unwrap());
    let hasty = Acquire::default().timeout(Duration::from_millis(30));
    let late = limiter.acquire_with("k", hasty).await.unwrap_err();
    assert!(matches!(late, AcquireError::Deadline(_)), "{late}");
}

/// Each way to give back what a permit holds, on the permit's decision or on the clone that is held.
#[tokio::test(start_paused = true)]
async fn permits_of_a_decision_and_its_clones_take_nothing_from_others() {
    let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
    for way in 0..5 {
        let limit: Limit = "3 at once lease 60s".parse().unwrap();
        let limiter = Arc::new(RateLimiter::new(MapStore::default(), limit).with_clock(clock));
        let left = async || limiter.peek("k").await.unwrap().remaining();
        let decision = limiter.check("k").await.unwrap();
        let other = limiter.hold(limiter.check("k").await.unwrap());
        let permit = limiter.hold(decision.clone());
        assert_eq!(*permit.decision(), decision);
        let second = limiter.hold(decision.clone().into_owned());
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(left().await, 1, "{way}: both have been renewed, and are one");
        match way {
            0 => limiter.release(&decision).await.unwrap(),
            1 => limiter.refund(permit.decision()).await.unwrap(),
            2 => limiter.settle(&decision, 0).await.unwrap(),
            3 => second.release().await.unwrap(),
            _ => drop(second),
        }
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(left().await, 2, "{way}");
        assert!(permit.is_lost() && !other.is_lost(), "{way}");
        permit.release().await.unwrap();
        limiter.release(&decision).await.unwrap();
        assert_eq!(left().await, 2, "{way}: the other is at work");
        other.release().await.unwrap();
        assert_eq!(left().await, 3, "{way}");
    }
}
