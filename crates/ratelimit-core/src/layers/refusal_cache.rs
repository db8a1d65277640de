//! A layer that caches refusals.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;

use crate::store::Decisions;
use crate::{
    Answer, Claim, Claims, CounterStore, Meter, MeterId, Mode, Promises, Receipt, Refund, StoreError, Time,
    Timestamp, Verdict, Verdicts,
};

/// The default of [`RefusalCache::with_max_age`].
const MAX_AGE: Duration = Duration::from_secs(1);

/// The default of [`RefusalCache::with_capacity`].
const CAPACITY: usize = 8_192;

/// Sets of claims whose names are longer are not cached.
const LONGEST: usize = 1_024;

/// A layer that repeats a store's refusals until units can have become available.
///
/// So refused clients that keep retrying cost no round trips: the first refusal says when the same cost fits, and until
/// then this layer refuses it. Its answers have the figures that the store would return: how long to wait, how much
/// remains, when everything is available again.
///
/// ```
/// # use ratelimit_core::layers::RefusalCache;
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let limiter = RateLimiter::new(RefusalCache::new(store), limit);
/// # }
/// ```
///
/// # When it calls the store
/// - For several claims, because what remains of the limits that do not refuse changes with time. But while a key is
///   [banned](crate::Algorithm::Ban), it refuses the whole request from the cache, with the figures of the cached refusal
///   for the other limits.
/// - For another cost than the one that was refused, or a limit that has changed since.
/// - If so much remained at the refusal that a smaller cost may fit earlier. A refusal is cached only if `cost - 1`
///   units remained, which is always so for a cost of one.
/// - For names (namespace, scope and key) that are longer than 1,024 bytes in total.
/// - On a store that decides by the server's clock: the client cannot know when units become available there.
/// - On a store that is not [exact](crate::store::Decisions::Exact) throughout (Memcached, a Redis Cluster, a fleet), except for
///   bans. There a refusal may be momentary, or costs no round trip to begin with.
///
/// # How stale it can be
/// The cache takes into account all calls through this layer and its clones: a refund, a reset or a charge removes the
/// meter's entry. It does not know of other processes. After *another* process has refunded units or reset the key, this
/// one may go on refusing for [`max_age`](Self::with_max_age) (one second by default), never longer. For the same time, a
/// cached `retry_after` does not include charges of other processes, so it may be too short. A cached entry never admits
/// a request.
///
/// # Memory
/// A table of fixed size ([`with_capacity`](Self::with_capacity), 8,192 meters by default). A keyed hash chooses the
/// place of an entry, and a new entry replaces the old one in its place.
#[derive(Clone, Debug)]
pub struct RefusalCache<S> {
    inner: S,
    max_age: Duration,
    table: Arc<Table>,
}

impl<S: CounterStore> RefusalCache<S> {
    /// Wraps `inner` with an empty cache.
    pub fn new(inner: S) -> Self {
        Self { inner, max_age: MAX_AGE, table: Arc::new(Table::new(CAPACITY)) }
    }

    /// Sets how long a cached refusal is used, on the caller's clock.
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// Sets the maximum number of cached refusals, at least one, and empties the cache.
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { table: Arc::new(Table::new(capacity)), ..self }
    }

    /// The store underneath.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The number of refusals that were answered from the cache.
    pub fn answered(&self) -> u64 {
        self.table.answered.load(Ordering::Relaxed)
    }

    /// The claims whose refusal can be cached as a refusal of the whole set: the only claim, or those of bans.
    fn cachable<'c, 'a>(&self, claims: &'c Claims<'a>) -> impl Iterator<Item = &'c Claim<'a>> {
        let Promises { decisions, time, .. } = self.inner.promises();
        let is_open = time == Time::Server || claims.mode() == Mode::Force;
        let is_cachable = move |claim: &&Claim<'a>| match claims.len() {
            _ if is_open => false,
            1 if claim.cost > 0 => decisions == Decisions::Exact,
            _ => is_gate(claim),
        };
        claims.iter().filter(is_cachable)
    }

    fn answer(&self, claims: &Claims<'_>) -> Option<Answer> {
        let verdicts = self.cachable(claims).find_map(|claim| self.table.find(claim, claims))?;
        self.table.answered.fetch_add(1, Ordering::Relaxed);
        Some(Answer { admitted: false, charged: false, now: claims.now(), verdicts })
    }

    /// The state of the cache before the call to the store, which [`learn`](Self::learn) needs after it.
    fn before(&self, claims: &Claims<'_>) -> Before {
        self.cachable(claims).map(|claim| self.table.changes(&claim.id)).collect()
    }

    /// Updates the cache from the store's answer.
    fn learn(&self, claims: &Claims<'_>, before: &Before, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(answer) if !answer.charged => {
                for (claim, before) in self.cachable(claims).zip(before) {
                    self.table.note(claim, claims, &answer.verdicts, self.max_age, *before);
                }
            }
            Err(_) if claims.mode() == Mode::Peek => {}
            // The claims were charged, or may have been.
            _ => self.forget(claims),
        }
    }

    fn forget(&self, claims: &Claims<'_>) {
        claims.iter().for_each(|claim| self.table.forget(&claim.id));
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: CounterStore> CounterStore for RefusalCache<S> {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if let Some(answer) = self.answer(&claims) {
            return Ok(answer);
        }
        let before = self.before(&claims);
        let given_up = AtEnd(|| self.forget(&claims));
        let answer = self.inner.claim(claims).await;
        given_up.disarm();
        self.learn(&claims, &before, &answer);
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers: Vec<Option<Result<Answer, StoreError>>> = Vec::with_capacity(slices.len());
        let (mut open, mut before, mut touched) = (Vec::new(), Vec::new(), HashSet::new());
        for claims in slices {
            // Claims count what those before them in the batch have charged.
            let alone = claims.iter().all(|claim| !touched.contains(&self.table.place(&claim.id)));
            let answer = if alone { self.answer(claims) } else { None };
            if answer.is_none() {
                open.push(*claims);
                before.push(self.before(claims));
                touched.extend(claims.iter().map(|claim| self.table.place(&claim.id)));
            }
            answers.push(answer.map(Ok));
        }
        let given_up = AtEnd(|| open.iter().for_each(|claims| self.forget(claims)));
        let fetched = if open.is_empty() { Vec::new() } else { self.inner.claim_many(&open).await };
        given_up.disarm();
        for ((claims, before), answer) in open.iter().zip(&before).zip(&fetched) {
            self.learn(claims, before, answer);
        }
        let mut fetched = fetched.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| fetched.next())).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let _forgotten = AtEnd(|| refunds.iter().for_each(|refund| self.table.forget(&refund.id)));
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let _forgotten = AtEnd(|| self.forget(&claims));
        self.inner.reset(claims).await
    }
}

/// Calls a closure when it is dropped: when a call has ended, and also if its caller gives it up before, because the store may
/// have done it.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> AtEnd<F> {
    /// Calls nothing: the call has ended.
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Cached refusals, each in the place that the hash of its meter's name chooses.
#[derive(Debug)]
struct Table {
    hasher: RandomState,
    places: Box<[Mutex<CacheSlot>]>,
    answered: AtomicU64,
}

#[derive(Debug, Default)]
struct CacheSlot {
    /// How many times an entry was removed here. The answer to a call that began before a removal is not cached.
    changes: u64,
    known: Option<CachedRefusal>,
}

/// For each claim, how many times an entry had been removed from its place before the store was called.
type Before = SmallVec<[u64; 1]>;

/// A cached refusal of a set of claims.
struct CachedRefusal {
    names: Vec<u8>,
    requested: SmallVec<[(u64, Meter); 1]>,
    from: Timestamp,
    until: Timestamp,
    verdicts: Verdicts,
}

/// Whether this is the claim of a ban. Its refusal holds until the ban ends, whatever else is charged meanwhile.
fn is_gate(claim: &Claim<'_>) -> bool {
    claim.cost == 0 && matches!(claim.meter, Meter::Bucket(bucket) if bucket.burst() == 0)
}

/// The names of all meters. Each says how long it is.
fn names(claims: &Claims<'_>) -> Vec<u8> {
    claims.iter().flat_map(|claim| claim.id.to_bytes()).collect()
}

fn requested(claims: &Claims<'_>) -> impl Iterator<Item = (u64, Meter)> {
    claims.iter().map(|claim| (claim.cost, claim.meter))
}

impl std::fmt::Debug for CachedRefusal {
    /// Keys identify people: does not show the name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Refusal(from {:?} until {:?})", self.from, self.until)
    }
}

impl Table {
    fn new(capacity: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            places: (0..capacity.max(1)).map(|_| Mutex::default()).collect(),
            answered: AtomicU64::new(0),
        }
    }

    fn place(&self, id: &MeterId<'_>) -> usize {
        let hash = self.hasher.hash_one((id.namespace, id.scope, id.key));
        usize::try_from(hash % self.places.len() as u64).unwrap_or(0)
    }

    fn at(&self, id: &MeterId<'_>) -> MutexGuard<'_, CacheSlot> {
        self.places[self.place(id)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self, id: &MeterId<'_>) -> u64 {
        self.at(id).changes
    }

    /// Returns the verdicts of the cached refusal of `claims` that was cached for `claim`, if it still holds.
    fn find(&self, claim: &Claim<'_>, claims: &Claims<'_>) -> Option<Verdicts> {
        let now = claims.now();
        let place = self.at(&claim.id);
        let known = place.known.as_ref()?;
        let holds = (known.from..known.until).contains(&now)
            && requested(claims).eq(known.requested.iter().copied())
            && known.names == names(claims);
        let at_now = |verdict: &Verdict| Verdict {
            fits: verdict.fits || verdict.fits_at.is_some_and(|instant| instant <= now),
            // In a queue the turn stays the same; otherwise it is now.
            ready_at: verdict.ready_at.max(now),
            receipt: Receipt::at(now),
            ..*verdict
        };
        holds.then(|| known.verdicts.iter().map(at_now).collect())
    }

    /// Caches the refusal of `claims`, if `claim` is certain to be refused for a while.
    fn note(
        &self,
        claim: &Claim<'_>,
        claims: &Claims<'_>,
        verdicts: &Verdicts,
        max_age: Duration,
        before: u64,
    ) {
        let now = claims.now();
        let Some((_, verdict)) = claims.iter().zip(verdicts).find(|(it, _)| it.id == claim.id) else {
            return;
        };
        let Some(fits_at) = verdict.fits_at.filter(|_| !verdict.fits) else { return };
        let is_certain = is_gate(claim) || verdict.remaining == claim.cost - 1;
        let names = names(claims);
        // A fallback's refusal is only valid until the first store answers again.
        if !is_certain || names.len() > LONGEST || verdict.receipt.is_of_fallback() {
            return;
        }
        let until = fits_at.min(now + max_age);
        let known = CachedRefusal {
            names,
            requested: requested(claims).collect(),
            from: now,
            until,
            verdicts: verdicts.clone(),
        };
        let mut place = self.at(&claim.id);
        if place.changes == before {
            place.known = Some(known);
        }
    }

    /// Removes the entry in the meter's place. If it is that of another meter, this costs one round trip.
    fn forget(&self, id: &MeterId<'_>) {
        let mut place = self.at(id);
        place.changes += 1;
        place.known = None;
    }
}
