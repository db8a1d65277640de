//! Handles on one server that compares and writes.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::store::Applied;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, ErrorKind, Limit, ManualClock, RateLimiter, StoreError, Timestamp};
use ratelimit_store_kit::Optimistic;
use ratelimit_store_kit::{Change, CompareAndSet, Outcome, Versioned};

const NOW: Timestamp = Timestamp::from_secs(1_000);

/// The values of a server, and how many requests it has got.
#[derive(Default)]
struct Values {
    values: HashMap<Vec<u8>, Versioned>,
    requests: u32,
}

#[derive(Clone, Default)]
struct Server {
    values: Arc<Mutex<Values>>,
    hangs: bool,
    /// How many calls fail with a deadlock.
    deadlocks: Arc<AtomicU32>,
}

impl Server {
    fn with<T>(&self, change: impl FnOnce(&mut Values) -> T) -> T {
        change(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn requests(&self) -> u32 {
        self.with(|values| std::mem::take(&mut values.requests))
    }

    /// A deadlock, if there are any left.
    fn deadlock(&self) -> Result<(), StoreError> {
        let left = self.deadlocks.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        left.map_or(Ok(()), |_| Err(StoreError::new("test", ErrorKind::Contended, "a deadlock")))
    }

    fn handle(&self) -> Arc<Optimistic<Self>> {
        Arc::new(Optimistic::new("test", "nowhere", self.clone()).with_time_limit(Duration::from_secs(60)))
    }
}

impl CompareAndSet for Server {
    async fn compare_and_set(&mut self, changes: &[Change<'_>]) -> Result<Outcome, StoreError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.deadlock()?;
        tokio::task::yield_now().await;
        let outcome = self.with(|Values { values, requests }| {
            *requests += 1;
            let version = |name| values.get(name).map(|value: &Versioned| value.version);
            if changes.iter().any(|change| version(change.name) != change.expected) {
                let present = changes.iter().filter_map(|change| values.get_key_value(change.name));
                return Outcome::Conflict(
                    present.map(|(name, value)| (name.clone(), value.clone())).collect(),
                );
            }
            for Change { name, new, .. } in changes {
                values.extend(new.clone().map(|new| (name.to_vec(), new.value)));
            }
            Outcome::Done
        });
        tokio::task::yield_now().await;
        Ok(outcome)
    }

    async fn remove(&mut self, names: &[Vec<u8>]) -> Result<(), StoreError> {
        self.deadlock()?;
        self.with(|values| {
            values.requests += 1;
            values.values.retain(|name, _| !names.contains(name));
        });
        Ok(())
    }
}

fn limiter(server: &Server, limits: &str) -> RateLimiter<Arc<Optimistic<Server>>, ManualClock> {
    let limits: ratelimit_core::Limits = limits.parse().expect("limits");
    RateLimiter::new(server.handle(), limits).with_clock(ManualClock::at(NOW))
}

#[tokio::test]
async fn a_claim_of_the_last_writer_takes_one_request_and_another_one_two() {
    let server = Server::default();
    let (a, b) = (limiter(&server, "3/h; 10/d"), limiter(&server, "3/h; 10/d"));
    for allowed in [true, true] {
        assert_eq!(a.check("k").await.expect("an answer").allowed(), allowed);
        assert_eq!(server.requests(), 1);
    }
    assert!(b.check("k").await.expect("an answer").allowed());
    assert_eq!(server.requests(), 2, "it did not know what a has charged");
    let refused = b.check("k").await.expect("an answer");
    assert!(!refused.allowed());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn slices_of_a_batch_count_what_those_before_have_charged() {
    let server = Server::default();
    let limiter = limiter(&server, "2/h; 3/d");
    let keys = ["a", "a", "b", "a", "b", "b"];
    let answers = limiter.check_many(keys).await;
    let allowed: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer").allowed()).collect();
    assert_eq!(allowed, [true, true, true, false, true, false]);
    assert_eq!(server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_at_once_admit_exactly_the_limit() {
    let server = Server::default();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter(&server, "50/h");
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..20 {
                    admitted += u32::from(limiter.check("k").await.expect("an answer").allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("a task");
    }
    assert_eq!(admitted, 50);
}

#[tokio::test]
async fn what_writes_nothing_leaves_nothing() {
    let server = Server::default();
    let (a, b) = (limiter(&server, "5/h"), limiter(&server, "5/h"));
    let decision = a.check("k").await.expect("an answer");
    b.reset("k").await.expect("an answer");
    // a remembers a meter that is gone.
    a.refund(&decision).await.expect("an answer");
    a.peek("k").await.expect("an answer");
    assert_eq!(server.with(|values| values.values.len()), 0);
    let store = server.handle();
    server.requests();
    assert!(store.claim_many(&[]).await.is_empty());
    store.refund(NOW, &[]).await.expect("nothing to do");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_version_does_not_come_back_after_a_reset() {
    let server = Server::default();
    let (a, b) = (limiter(&server, "2/h"), limiter(&server, "2/h"));
    a.check("k").await.expect("an answer");
    b.reset("k").await.expect("an answer");
    b.charge(ratelimit_core::Request::new("k").cost(2)).await.expect("an answer");
    // a knows the first write after a creation, and so is that of b.
    assert!(!a.check("k").await.expect("an answer").allowed());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_also_for_those_that_wait_and_these_have_charged_nothing() {
    let server = Server { hangs: true, ..Server::default() };
    let store = server.handle();
    let limit: Limit = "5/h".parse().expect("a limit");
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claims = [Claim { id, cost: 1, meter: limit.meter_for(b"k") }];
    let claims = Claims::new(NOW, Mode::Charge, &claims).expect("claims");
    let (first, second) = tokio::join!(store.claim(claims), store.claim(claims));
    for (outcome, applied) in [(first, Applied::Unknown), (second, Applied::No)] {
        let error = outcome.expect_err("the server hangs");
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Timeout, applied), "{error}");
    }
}

#[tokio::test]
async fn deadlocks_are_repeated() {
    let server = Server::default();
    let limiter = limiter(&server, "5/h");
    server.deadlocks.store(3, SeqCst);
    let decision = limiter.check("k").await.expect("an answer");
    server.deadlocks.store(3, SeqCst);
    limiter.refund(&decision).await.expect("an answer");
    server.deadlocks.store(3, SeqCst);
    limiter.reset("k").await.expect("an answer");
    assert_eq!(server.with(|values| values.values.len()), 0);
}
