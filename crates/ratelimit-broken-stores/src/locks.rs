//! Stores that lock each meter in the order of the call, so that two callers wait for each other, or that keep locks or give
//! them up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use tokio::task::yield_now;

use super::broken_store::{Around, BrokenStore};
use super::flaw::Call;
use ratelimit_conformance::ReferenceStore;

const CLAIMS: u8 = 0;
const BATCHES: u8 = 1;
const REFUNDS: u8 = 2;
const RESETS: u8 = 3;
/// In a fixed order, but keeps the locks after a refusal.
const REFUSALS: u8 = 4;
/// In a fixed order, but a reset gives up next to many other calls.
const GIVES_UP: u8 = 5;

/// As asked, but only with many meters.
const LARGE_SLICES: u8 = 6;
const LARGE_BATCHES: u8 = 7;
const LARGE_REFUNDS: u8 = 8;
const LARGE_RESETS: u8 = 9;

/// The number of waiting calls from which on such a reset gives up.
const MANY: usize = 8;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<Locking<CLAIMS>>(
            "locks-slices-as-asked",
            "slices lock their meters in the order in which they are asked",
            "deadlocks/slices-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<BATCHES>>(
            "locks-batches-as-asked",
            "batches lock all of their meters, in the order in which they are asked",
            "deadlocks/batches-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<REFUNDS>>(
            "locks-refunds-as-asked",
            "refunds lock their meters in the order in which they are asked",
            "deadlocks/refunds-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<RESETS>>(
            "locks-resets-as-asked",
            "resets lock their meters in the order in which they are asked",
            "deadlocks/resets-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<REFUSALS>>(
            "locked-after-refusals",
            "after a refusal the meters stay locked",
            "dropped/claims-whole-or-not-at-all",
        ),
        BrokenStore::around::<Locking<GIVES_UP>>(
            "resets-that-give-up",
            "a reset does nothing while eight other calls wait for their meters",
            "atomic/resets-race-claims",
        ),
        BrokenStore::around::<Locking<LARGE_SLICES>>(
            "locks-large-slices-as-asked",
            "slices of more than eight claims lock their meters in the order in which they are asked",
            "deadlocks/slices-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<LARGE_BATCHES>>(
            "locks-large-batches-as-asked",
            "batches of more than 256 slices lock all of their meters in the order in which they are asked",
            "deadlocks/batches-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<LARGE_REFUNDS>>(
            "locks-large-refunds-as-asked",
            "refunds of more than sixteen meters lock them in the order in which they are asked",
            "deadlocks/refunds-in-opposite-orders",
        ),
        BrokenStore::around::<Locking<LARGE_RESETS>>(
            "locks-large-resets-as-asked",
            "resets of more than fifty meters lock them in the order in which they are asked",
            "deadlocks/resets-in-opposite-orders",
        ),
    ]
}

/// The names of the locked meters.
#[derive(Debug, Default)]
struct Locks {
    names: Mutex<HashSet<Vec<u8>>>,
    /// Each call that waits has a clone.
    waiting: Arc<()>,
}

impl Locks {
    fn names(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks that are released on drop.
struct Held<'a> {
    locks: &'a Locks,
    names: Vec<Vec<u8>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut locked = self.locks.names();
        locked.retain(|name| !self.names.contains(name));
    }
}

#[derive(Debug)]
struct Locking<const WHERE: u8> {
    meters: Arc<ReferenceStore>,
    locks: Arc<Locks>,
}

impl<const WHERE: u8> Locking<WHERE> {
    async fn lock(&self, call: Call, mut names: Vec<Vec<u8>>) -> Held<'_> {
        let as_asked = match call {
            Call::Claim => WHERE == CLAIMS || (WHERE == LARGE_SLICES && names.len() > 8),
            Call::Batch => WHERE == BATCHES || (WHERE == LARGE_BATCHES && names.len() > 256),
            Call::Refund => WHERE == REFUNDS || (WHERE == LARGE_REFUNDS && names.len() > 16),
            Call::Reset => WHERE == RESETS || (WHERE == LARGE_RESETS && names.len() > 50),
        };
        if !as_asked {
            names.sort();
        }
        let _waiting = self.locks.waiting.clone();
        let mut held = Held { locks: &self.locks, names: Vec::new() };
        for name in names {
            if held.names.contains(&name) {
                continue;
            }
            while !self.locks.names().insert(name.clone()) {
                yield_now().await;
            }
            held.names.push(name);
            yield_now().await;
        }
        held
    }
}

fn names(claims: &Claims<'_>) -> Vec<Vec<u8>> {
    claims.iter().map(|claim| claim.id.to_bytes()).collect()
}

impl<const WHERE: u8> Around for Locking<WHERE> {
    type Shared = Locks;

    fn around(meters: Arc<ReferenceStore>, locks: Arc<Locks>) -> Self {
        Self { meters, locks }
    }
}

impl<const WHERE: u8> CounterStore for Locking<WHERE> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut held = self.lock(Call::Claim, names(&claims)).await;
        let answer = self.meters.claim(claims).await;
        if WHERE == REFUSALS && answer.as_ref().is_ok_and(|answer| !answer.admitted) {
            held.names.clear();
        }
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let _held = self.lock(Call::Batch, slices.iter().flat_map(names).collect()).await;
        self.meters.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let names = refunds.iter().map(|refund| refund.id.to_bytes()).collect();
        let _held = self.lock(Call::Refund, names).await;
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        if WHERE == GIVES_UP && Arc::strong_count(&self.locks.waiting) > MANY {
            return Ok(());
        }
        let _held = self.lock(Call::Reset, names(&claims)).await;
        self.meters.reset(claims).await
    }
}
