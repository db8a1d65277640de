//! Stores whose meters depend on the handle that wrote them, or that leave something where nothing was written.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::meter::{State, decide, refund};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claim, Claims, Decisions, Mode, Promises, Refund, Time};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use super::broken_store::{Around, BrokenStore};
use super::forgotten::forget_at;
use ratelimit_conformance::ReferenceStore;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<SweepsOwn>(
            "sweeps-its-own",
            "each handle removes only the expired meters that it wrote itself",
            "lifetimes/forgotten-after-their-writer",
        ),
        BrokenStore::around::<ForgetsOnClose>(
            "forgets-on-close",
            "a handle that is closed takes the meters with it that it charged last",
            "handles/closed-ones-have-charged",
        ),
        BrokenStore::around::<Placeholders<false>>(
            "empty-rows",
            "a handle that knows a meter stores an empty row for it in a refused slice or a refund, also if it is gone",
            "memory/nothing-is-left-behind",
        ),
        BrokenStore::around::<Placeholders<true>>(
            "empty-rows-of-refusals",
            "a refused slice stores an empty row for each of its meters that is new",
            "memory/nothing-is-left-of-unknown-meters",
        ),
    ]
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Owned {
    meters: Mutex<HashMap<Vec<u8>, Meter>>,
    handles: AtomicUsize,
}

struct Meter {
    state: State,
    forget_at: Timestamp,
    writer: usize,
}

struct SweepsOwn {
    owned: Arc<Owned>,
    number: usize,
}

impl fmt::Debug for SweepsOwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweepsOwn").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Around for SweepsOwn {
    type Shared = Owned;

    fn around(_: Arc<ReferenceStore>, owned: Arc<Owned>) -> Self {
        let number = owned.handles.fetch_add(1, Ordering::SeqCst);
        Self { owned, number }
    }

    fn stored(_: &ReferenceStore, owned: &Owned) -> u64 {
        locked(&owned.meters).len() as u64
    }
}

impl SweepsOwn {
    fn put(
        &self,
        meters: &mut HashMap<Vec<u8>, Meter>,
        name: Vec<u8>,
        meter: &ratelimit_core::meter::Meter,
        state: State,
    ) {
        let former = meters.get(&name).map(|meter| meter.forget_at);
        let forget_at = forget_at(meter, &state, former);
        meters.insert(name, Meter { state, forget_at, writer: self.number });
    }
}

impl CounterStore for SweepsOwn {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut meters = locked(&self.owned.meters);
        let names: Vec<_> = claims.iter().map(|claim| claim.id.to_bytes()).collect();
        let mut states: Vec<_> =
            names.iter().map(|name| meters.get(name).map(|meter| meter.state.clone())).collect();
        let answer = decide(&claims, &mut states);
        if answer.charged {
            for ((claim, name), state) in claims.iter().zip(names).zip(states) {
                if let Some(state) = state {
                    self.put(&mut meters, name, &claim.meter, state);
                }
            }
            let is_kept =
                |meter: &Meter| meter.writer != self.number || meter.forget_at + CLOCK_SLACK >= claims.now();
            meters.retain(|_, meter| is_kept(meter));
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let mut meters = locked(&self.owned.meters);
        for refunded in refunds {
            let name = refunded.id.to_bytes();
            let mut state = meters.get(&name).map(|meter| meter.state.clone());
            refund(&refunded.meter, &mut state, refunded.cost, refunded.receipt, now);
            if let Some(state) = state {
                self.put(&mut meters, name, &refunded.meter, state);
            }
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let mut meters = locked(&self.owned.meters);
        claims.iter().for_each(|claim| drop(meters.remove(&claim.id.to_bytes())));
        Ok(())
    }
}

/// A meter: its namespace, its scope and its key.
type Name = (String, String, Vec<u8>);

fn name(claim: &Claim<'_>) -> Name {
    (claim.id.namespace.to_owned(), claim.id.scope.to_owned(), claim.id.key.to_owned())
}

/// Remembers the meters that it has charged.
#[derive(Debug)]
struct ForgetsOnClose {
    meters: Arc<ReferenceStore>,
    charged: Mutex<HashMap<Name, ratelimit_core::meter::Meter>>,
}

impl Drop for ForgetsOnClose {
    fn drop(&mut self) {
        for ((namespace, scope, key), meter) in locked(&self.charged).drain() {
            let id = ratelimit_core::store::MeterId { namespace: &namespace, scope: &scope, key: &key };
            if let Ok(claims) = Claims::new(Timestamp::EPOCH, Mode::Charge, &[Claim { id, cost: 0, meter }]) {
                self.meters.reset_now(claims);
            }
        }
    }
}

impl Around for ForgetsOnClose {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters, charged: Mutex::default() }
    }
}

impl CounterStore for ForgetsOnClose {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.meters.claim(claims).await?;
        if answer.charged {
            locked(&self.charged).extend(claims.iter().map(|claim| (name(claim), claim.meter)));
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}

/// Rows without a state.
#[derive(Debug, Default)]
struct Rows(Mutex<HashSet<Vec<u8>>>);

/// Inserts a row before it decides, for meters that this handle knows, or for all of a refused slice.
#[derive(Debug)]
struct Placeholders<const OF_NEW: bool> {
    meters: Arc<ReferenceStore>,
    rows: Arc<Rows>,
    known: Mutex<HashSet<Vec<u8>>>,
}

impl<const OF_NEW: bool> Placeholders<OF_NEW> {
    fn is_stored(&self, claim: &Claim<'_>, now: Timestamp) -> Result<bool, StoreError> {
        let Ok(peek) = Claims::new(now, Mode::Peek, std::slice::from_ref(claim)) else { return Ok(true) };
        Ok(self.meters.claim_now(peek)?.verdicts.iter().any(|verdict| verdict.remaining < verdict.limit))
    }

    fn leave(&self, claim: &Claim<'_>, now: Timestamp) -> Result<(), StoreError> {
        let name = claim.id.to_bytes();
        if (OF_NEW || locked(&self.known).contains(&name)) && !self.is_stored(claim, now)? {
            locked(&self.rows.0).insert(name);
        }
        Ok(())
    }
}

impl<const OF_NEW: bool> Around for Placeholders<OF_NEW> {
    type Shared = Rows;

    fn around(meters: Arc<ReferenceStore>, rows: Arc<Rows>) -> Self {
        Self { meters, rows, known: Mutex::default() }
    }

    fn stored(meters: &ReferenceStore, rows: &Rows) -> u64 {
        meters.len() + locked(&rows.0).len() as u64
    }
}

impl<const OF_NEW: bool> CounterStore for Placeholders<OF_NEW> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.meters.claim(claims).await?;
        for claim in claims.iter() {
            if answer.charged {
                locked(&self.rows.0).remove(&claim.id.to_bytes());
                locked(&self.known).insert(claim.id.to_bytes());
            } else if claims.len() > 1 && claims.mode() == Mode::Charge {
                self.leave(claim, claims.now())?;
            }
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await?;
        for refunded in refunds.iter().filter(|_| !OF_NEW) {
            self.leave(&Claim { id: refunded.id, cost: refunded.cost, meter: refunded.meter }, now)?;
        }
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        locked(&self.rows.0).retain(|name| claims.iter().all(|claim| claim.id.to_bytes() != *name));
        self.meters.reset(claims).await
    }
}
