//! Stores that serve calls in their order, and lose the place of one that is dropped while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use tokio::task::yield_now;

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

const BATCHES: u8 = 0;
const FORCED: u8 = 1;
const REFUNDS: u8 = 2;
const RESETS: u8 = 3;
const LARGE: u8 = 4;

/// The claims of a large slice, at least.
const MANY: usize = 17;

pub(super) fn all() -> Vec<BrokenStore> {
    let deviation = "a batch that is dropped while it waits for its turn keeps the place";
    vec![
        BrokenStore::around::<InOrder<BATCHES>>("waiting-batches", deviation, "cancelled/waiting-batches"),
        BrokenStore::around::<InOrder<FORCED>>(
            "waiting-forced-charges",
            "the same for forced charges",
            "cancelled/waiting-forced-slices",
        ),
        BrokenStore::around::<InOrder<REFUNDS>>(
            "waiting-refunds",
            "the same for refunds",
            "cancelled/waiting-refunds",
        ),
        BrokenStore::around::<InOrder<RESETS>>(
            "waiting-resets",
            "the same for resets",
            "cancelled/waiting-resets",
        ),
        BrokenStore::around::<InOrder<LARGE>>(
            "waiting-large-slices",
            "the same for slices of more than sixteen claims",
            "cancelled/waiting-slices",
        ),
    ]
}

/// The turns of calls.
#[derive(Debug, Default)]
struct Turns {
    next: AtomicU64,
    served: AtomicU64,
}

/// The turn of a call. It ends when this is dropped.
struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.served.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct InOrder<const WHERE: u8> {
    meters: Arc<ReferenceStore>,
    turns: Arc<Turns>,
}

impl<const WHERE: u8> InOrder<WHERE> {
    async fn turn(&self, waits: bool) -> Option<Turn<'_>> {
        if !waits {
            return None;
        }
        let mine = self.turns.next.fetch_add(1, Ordering::SeqCst);
        while self.turns.served.load(Ordering::SeqCst) != mine {
            yield_now().await;
        }
        let turn = Turn(&self.turns);
        yield_now().await;
        Some(turn)
    }
}

impl<const WHERE: u8> Around for InOrder<WHERE> {
    type Shared = Turns;

    fn around(meters: Arc<ReferenceStore>, turns: Arc<Turns>) -> Self {
        Self { meters, turns }
    }
}

impl<const WHERE: u8> CounterStore for InOrder<WHERE> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let waits = match WHERE {
            FORCED => claims.mode() == Mode::Force,
            LARGE => claims.mode() == Mode::Charge && claims.len() >= MANY,
            _ => false,
        };
        let _turn = self.turn(waits).await;
        self.meters.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let _turn = self.turn(WHERE == BATCHES).await;
        self.meters.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let _turn = self.turn(WHERE == REFUNDS).await;
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let _turn = self.turn(WHERE == RESETS).await;
        self.meters.reset(claims).await
    }
}
