//! The layer `Batched` under random histories: claims arrive, callers give up, round trips take their time, fail or are
//! aborted, between any two steps of any task.
#![cfg(feature = "tokio")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{MapStore, Random};
use ratelimit_core::layers::{BatchConfig, Batched};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    CheckError, CounterStore, ErrorKind, Limit, ManualClock, RateLimiter, Request, StoreError, Timestamp,
};

const TRIPS: usize = 2;
const BATCH: usize = 4;
const WAITING: usize = 12;

/// A store whose round trips end after a random number of steps: with answers, with errors, or not at all.
#[derive(Debug)]
struct Slow {
    inner: MapStore,
    random: Mutex<Random>,
    in_progress: AtomicUsize,
    most_in_progress: AtomicUsize,
    /// How often the claim of each key was sent.
    sent: Mutex<BTreeMap<Vec<u8>, usize>>,
}

/// A round trip in progress.
struct Trip<'s>(&'s AtomicUsize);

impl Drop for Trip<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Slow {
    fn below(&self, bound: usize) -> usize {
        self.random.lock().unwrap().below(bound)
    }

    async fn trip(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let trip = Trip(&self.in_progress);
        let now = self.in_progress.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_progress.fetch_max(now, Ordering::SeqCst);
        assert!((1..=BATCH).contains(&slices.len()), "a batch of {}", slices.len());
        for claims in slices {
            *self.sent.lock().unwrap().entry(claims.iter().next().unwrap().id.key.to_vec()).or_default() += 1;
        }
        for _ in 0..self.below(6) {
            tokio::task::yield_now().await;
        }
        drop(trip);
        match self.below(20) {
            0 => panic!("{ABORTED}"),
            1 => {
                let error = StoreError::new("slow", ErrorKind::Server, "failed").maybe_applied();
                slices.iter().map(|_| Err(error.clone())).collect()
            }
            _ => self.inner.claim_many(slices).await,
        }
    }
}

const ABORTED: &str = "a round trip that is aborted on purpose";

impl CounterStore for Slow {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.trip(&[claims]).await.remove(0)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        self.trip(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

type Limiter = RateLimiter<Batched<Slow>, ManualClock>;

fn limiter(seed: u64) -> Arc<Limiter> {
    let slow = Slow {
        inner: MapStore::default(),
        random: Mutex::new(Random::new(seed)),
        in_progress: AtomicUsize::new(0),
        most_in_progress: AtomicUsize::new(0),
        sent: Mutex::default(),
    };
    let config = BatchConfig::default().concurrent_batches(TRIPS).batch_size(BATCH).max_waiting(WAITING);
    let store = Batched::with_config(slow, config.unbatched(0).timeout(Duration::from_secs(600)));
    let limit: Limit = "1/h".parse().unwrap();
    Arc::new(RateLimiter::new(store, limit).with_clock(ManualClock::at(Timestamp::from_secs(1_000))))
}

/// What a caller was told, if it did not give up.
type Reported = Option<Result<bool, CheckError>>;

/// One history. Returns what each caller was told.
async fn history(seed: u64) -> Vec<Reported> {
    let mut random = Random::new(seed ^ 0x9e37_79b9_7f4a_7c15);
    let limiter = limiter(seed);
    let mut callers = Vec::new();
    for number in 0..100_u32 {
        let limiter = limiter.clone();
        callers.push(tokio::spawn(async move {
            Ok::<_, CheckError>(limiter.check(Request::new(&number.to_be_bytes())).await?.allowed())
        }));
        if random.below(5) == 0 {
            callers[callers.len() - 1 - random.below(callers.len().min(8))].abort();
        }
        for _ in 0..random.below(3) {
            tokio::task::yield_now().await;
        }
    }
    let mut reported = Vec::new();
    for (number, caller) in (0..100_u32).zip(callers) {
        let waited = tokio::time::timeout(Duration::from_secs(20), caller).await;
        let ended = waited.unwrap_or_else(|_| panic!("seed {seed}: caller {number} was never told anything"));
        reported.push(ended.ok());
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let slow = limiter.store().inner();
    assert_eq!(slow.in_progress.load(Ordering::SeqCst), 0, "seed {seed}: round trips in progress");
    assert!(slow.most_in_progress.load(Ordering::SeqCst) <= TRIPS, "seed {seed}: too many round trips");
    let sent = slow.sent.lock().unwrap().clone();
    assert!(sent.values().all(|times| *times == 1), "seed {seed}: a claim was sent twice");
    for (number, reported) in (0..100_u32).zip(&reported) {
        let was_sent = sent.contains_key(&number.to_be_bytes()[..]);
        match reported {
            Some(Ok(admitted)) => assert!(was_sent && *admitted, "seed {seed}: caller {number}"),
            Some(Err(CheckError::Store(error))) => {
                let may_be = error.applied() != Applied::No;
                assert!(was_sent == may_be, "seed {seed}: caller {number}, sent: {was_sent}: {error}");
            }
            Some(Err(error)) => panic!("seed {seed}: caller {number}: {error}"),
            // It was aborted in its round trip, or gave up.
            None => {}
        }
    }
    reported
}

#[test]
fn random_histories_lose_no_claim_and_leak_no_round_trip() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str() != Some(ABORTED) {
            usual(info);
        }
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let reported: Vec<Reported> = (1..=300).flat_map(|seed| runtime.block_on(history(seed))).collect();
    // The histories contain what they are about.
    let count = |is_it: fn(&Reported) -> bool| reported.iter().filter(|reported| is_it(reported)).count();
    assert!(count(|reported| matches!(reported, Some(Ok(_)))) > 10_000);
    assert!(count(|reported| matches!(reported, Some(Err(_)))) > 500);
    assert!(count(Option::is_none) > 1_000);
}
