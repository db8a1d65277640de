//! Stores that make a call again that was dropped after it had taken effect, or that lose some of many calls at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};
use tokio::task::yield_now;

use super::broken_store::{Around, BrokenStore};
use super::flaw::{Call, Flaw, Look};
use ratelimit_conformance::ReferenceStore;

const CLAIMS: u8 = 0;
const FORCED: u8 = 1;
const REFUNDS: u8 = 2;
const BATCHES: u8 = 3;
const LARGE_REFUNDS: u8 = 4;
const LARGE_SLICES: u8 = 5;

/// The calls at once that are one too many.
const TOO_MANY: usize = 256;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<Again<CLAIMS>>(
            "claims-again",
            "a claim that is dropped before its answer is made again",
            "dropped/claims-whole-or-not-at-all",
        ),
        BrokenStore::around::<Again<FORCED>>(
            "forces-again",
            "the same for forced charges",
            "dropped/forced-charges-whole-or-not-at-all",
        ),
        BrokenStore::around::<Again<REFUNDS>>(
            "refunds-again",
            "the same for refunds",
            "dropped/refunds-whole-or-not-at-all",
        ),
        BrokenStore::around::<Again<BATCHES>>(
            "batches-again",
            "the same for batches",
            "dropped/batches-whole-or-not-at-all",
        ),
        BrokenStore::around::<Again<LARGE_REFUNDS>>(
            "large-refunds-again",
            "the same for refunds of more than fifty meters",
            "dropped/large-refunds",
        ),
        BrokenStore::around::<Again<LARGE_SLICES>>(
            "large-slices-in-part",
            "slices of more than twenty-five claims are charged claim by claim",
            "dropped/large-slices",
        ),
        BrokenStore::around::<AtOnce>(
            "too-many-at-once",
            "while 256 calls wait, further forced charges are answered and not made",
            "atomic/hundreds-at-once",
        ),
        BrokenStore::new::<TornLargeBatches>(
            "torn-large-batches",
            "slices of a batch of more than 256 are written in a second step",
            "deadlocks/batches-in-opposite-orders",
        ),
    ]
}

/// Does something if it is dropped before its end.
struct Unless<F: FnMut()>(Option<F>);

impl<F: FnMut()> Drop for Unless<F> {
    fn drop(&mut self) {
        if let Some(mut again) = self.0.take() {
            again();
        }
    }
}

#[derive(Debug)]
struct Again<const WHAT: u8>(Arc<ReferenceStore>);

impl<const WHAT: u8> Again<WHAT> {
    async fn one_by_one(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.0.claim(claims.with_mode(Mode::Peek)).await?;
        if !answer.admitted {
            return Ok(answer);
        }
        for claim in claims.iter() {
            if let Ok(only) = Claims::new(claims.now(), Mode::Force, std::slice::from_ref(claim)) {
                self.0.claim(only).await?;
                yield_now().await;
            }
        }
        Ok(Answer { charged: true, ..answer })
    }
}

impl<const WHAT: u8> Around for Again<WHAT> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self(meters)
    }
}

impl<const WHAT: u8> CounterStore for Again<WHAT> {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if WHAT == LARGE_SLICES && claims.len() > 25 && claims.mode() == Mode::Charge {
            return self.one_by_one(claims).await;
        }
        let answer = self.0.claim(claims).await;
        let repeats = match WHAT {
            CLAIMS => claims.mode() == Mode::Charge,
            FORCED => claims.mode() == Mode::Force,
            _ => false,
        };
        if repeats {
            let mut again = Unless(Some(|| drop(self.0.claim_now(claims))));
            yield_now().await;
            again.0 = None;
        }
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let answers = self.0.claim_many(slices).await;
        if WHAT == BATCHES {
            let mut again = Unless(Some(|| slices.iter().for_each(|claims| drop(self.0.claim_now(*claims)))));
            yield_now().await;
            again.0 = None;
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let refunded = self.0.refund(now, refunds).await;
        if WHAT == REFUNDS || (WHAT == LARGE_REFUNDS && refunds.len() > 50) {
            let mut again = Unless(Some(|| self.0.refund_now(now, refunds)));
            yield_now().await;
            again.0 = None;
        }
        refunded
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

/// Counts the calls that wait.
#[derive(Debug)]
struct AtOnce {
    meters: Arc<ReferenceStore>,
    waiting: Arc<AtomicUsize>,
}

impl Around for AtOnce {
    type Shared = AtomicUsize;

    fn around(meters: Arc<ReferenceStore>, waiting: Arc<AtomicUsize>) -> Self {
        Self { meters, waiting }
    }
}

impl CounterStore for AtOnce {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Unless(Some(|| {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }));
        // Until there are too many, so that it does not depend on the speed of the machine how many wait.
        for _ in 0..2_000 {
            if self.waiting.load(Ordering::SeqCst) > TOO_MANY + 32 {
                break;
            }
            yield_now().await;
        }
        let is_lost = before >= TOO_MANY && claims.mode() == Mode::Force;
        let mode = if is_lost { Mode::Peek } else { claims.mode() };
        let answer = self.meters.claim(claims.with_mode(mode)).await?;
        drop(waiting);
        Ok(if is_lost { Answer { admitted: true, charged: true, ..answer } } else { answer })
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}

/// The number of slices of the newest batch.
#[derive(Debug, Default)]
struct TornLargeBatches(AtomicUsize);

impl Flaw for TornLargeBatches {
    fn order(&self, count: usize) -> Vec<usize> {
        self.0.store(count, Ordering::SeqCst);
        (0..count).collect()
    }

    fn torn(&self, look: &Look<'_>) -> bool {
        look.call == Call::Batch && self.0.load(Ordering::SeqCst) > 256
    }
}
