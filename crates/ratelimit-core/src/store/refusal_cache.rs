//! A decorator that answers for the store while it is known that it refuses.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{
    Answer, Claim, Claims, CounterStore, Decisions, Meter, MeterId, Mode, Promises, Refund, StoreError, Time,
    Timestamp, Verdict, Verdicts,
};

/// How long a refusal is believed without asking, unless it is said otherwise.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How many refusals are remembered, unless it is said otherwise.
const CAPACITY: usize = 8_192;

/// Names of meters that are longer are not remembered.
const LONGEST: usize = 512;

/// A store that is not asked about who was just refused, until something can have come free.
///
/// A client that goes on asking although it is refused costs no trip: the first refusal told from when on the same cost fits,
/// and until then it is refused here. What is told is what the store would have told: for how long, how much is left, when all
/// is free again.
///
/// ```
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter, RefusalCache};
/// # fn example(store: impl CounterStore, limit: Limit) {
/// let limiter = RateLimiter::new(RefusalCache::new(store), limit);
/// # }
/// ```
///
/// # When it asks
/// - For a slice of several claims: what remains of the limits that do not refuse changes with time.
/// - For another cost than the one that was refused, or a limit that was changed meanwhile.
/// - For a refusal that left so much that a smaller cost may come to fit before: it is remembered only if
///   `cost - 1` units remained, as they do whenever the cost is one.
/// - On a store that decides by the server's clock: this side cannot tell when something comes free there.
/// - On a [conservative](crate::Decisions::Conservative) or [eventual](crate::Decisions::Eventual) store: its refusal may
///   have been for a moment only, or costs no trip to begin with.
///
/// # How stale it can be
/// What goes through this decorator and its clones is known: a refund, a reset or a charge drops what was remembered of the
/// meter. What others do is not: after *another* process has given units back or reset the key, this one may go on
/// refusing for [`max_age`](Self::with_max_age) (a second unless it is set), never longer. Nobody is ever admitted by what is
/// remembered. What others charge meanwhile may make a remembered `retry_after` too short by as much.
///
/// # Memory
/// A table of fixed size ([`with_capacity`](Self::with_capacity), 8,192 meters unless it is set), in which meters displace each
/// other; where they lie is chosen by a keyed hash.
#[derive(Clone, Debug)]
pub struct RefusalCache<S> {
    inner: S,
    max_age: Duration,
    table: Arc<Table>,
}

impl<S: CounterStore> RefusalCache<S> {
    /// `inner`, and what it has refused.
    pub fn new(inner: S) -> Self {
        Self { inner, max_age: MAX_AGE, table: Arc::new(Table::new(CAPACITY)) }
    }

    /// The same, believing a refusal for so long, on the caller's clock.
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// The same with room for so many refusals, at least one; it begins empty.
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        Self { table: Arc::new(Table::new(capacity)), ..self }
    }

    /// The store that is asked.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many refusals were answered without asking.
    pub fn answered(&self) -> u64 {
        self.table.answered.load(Ordering::Relaxed)
    }

    /// The only claim of a slice, if its refusal can be remembered.
    fn only<'a>(&self, claims: &Claims<'a>) -> Option<Claim<'a>> {
        let Promises { decisions, time } = self.inner.promises();
        if decisions != Decisions::Exact || time == Time::Server {
            return None;
        }
        match **claims {
            [claim] if claim.cost > 0 && claims.mode() != Mode::Force => Some(claim),
            _ => None,
        }
    }

    fn answer(&self, claims: &Claims<'_>) -> Option<Answer> {
        let verdict = self.table.find(&self.only(claims)?, claims.now())?;
        self.table.answered.fetch_add(1, Ordering::Relaxed);
        Some(Answer {
            admitted: false,
            charged: false,
            now: claims.now(),
            verdicts: Verdicts::from_slice(&[verdict]),
        })
    }

    /// To be kept from before the store is asked until it has answered.
    fn before(&self, claims: &Claims<'_>) -> Option<u64> {
        self.only(claims).map(|claim| self.table.changes(&claim.id))
    }

    /// Learns from the store's answer.
    fn learn(&self, claims: &Claims<'_>, before: Option<u64>, answer: &Result<Answer, StoreError>) {
        match answer {
            Ok(answer) if !answer.charged => {
                if let (Some(claim), Some(before)) = (self.only(claims), before)
                    && let Some(verdict) = answer.verdicts.first()
                {
                    self.table.note(&claim, claims.now(), verdict, self.max_age, before);
                }
            }
            Err(_) if claims.mode() == Mode::Peek => {}
            // It was charged, or may have been.
            _ => claims.iter().for_each(|claim| self.table.forget(&claim.id)),
        }
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
        let answer = self.inner.claim(claims).await;
        self.learn(&claims, before, &answer);
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers: Vec<Option<Result<Answer, StoreError>>> = Vec::with_capacity(slices.len());
        let (mut open, mut before, mut touched) = (Vec::new(), Vec::new(), HashSet::new());
        for claims in slices {
            // A slice sees what those before it have charged.
            let alone = claims.iter().all(|claim| !touched.contains(&self.table.place(&claim.id)));
            let answer = if alone { self.answer(claims) } else { None };
            if answer.is_none() {
                open.push(*claims);
                before.push(self.before(claims));
                touched.extend(claims.iter().map(|claim| self.table.place(&claim.id)));
            }
            answers.push(answer.map(Ok));
        }
        let told = if open.is_empty() { Vec::new() } else { self.inner.claim_many(&open).await };
        for ((claims, before), answer) in open.iter().zip(before).zip(&told) {
            self.learn(claims, before, answer);
        }
        let mut told = told.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| told.next())).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let given = self.inner.refund(now, refunds).await;
        refunds.iter().for_each(|refund| self.table.forget(&refund.id));
        given
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let done = self.inner.reset(claims).await;
        claims.iter().for_each(|claim| self.table.forget(&claim.id));
        done
    }
}

/// Refusals, each in the place that its meter's name gives it.
#[derive(Debug)]
struct Table {
    hasher: RandomState,
    places: Box<[Mutex<Place>]>,
    answered: AtomicU64,
}

#[derive(Debug, Default)]
struct Place {
    /// How often something was forgotten here: an answer that was asked for before is not remembered after.
    changes: u64,
    known: Option<Refusal>,
}

/// What is known of a meter.
struct Refusal {
    name: Vec<u8>,
    meter: Meter,
    cost: u64,
    from: Timestamp,
    until: Timestamp,
    verdict: Verdict,
}

impl std::fmt::Debug for Refusal {
    /// Keys identify people: the name is not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Refusal(of {} from {:?} until {:?})", self.cost, self.from, self.until)
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

    fn at(&self, id: &MeterId<'_>) -> MutexGuard<'_, Place> {
        self.places[self.place(id)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self, id: &MeterId<'_>) -> u64 {
        self.at(id).changes
    }

    /// The store's verdict at `now`, if it is known that it refuses.
    fn find(&self, claim: &Claim<'_>, now: Timestamp) -> Option<Verdict> {
        let place = self.at(&claim.id);
        let known = place.known.as_ref()?;
        let holds = known.cost == claim.cost
            && known.meter == claim.meter
            && (known.from..known.until).contains(&now)
            && known.name == claim.id.to_bytes();
        // In a queue the turn stays where it is; elsewhere it would be now.
        holds.then(|| Verdict { ready_at: known.verdict.ready_at.max(now), receipt: now, ..known.verdict })
    }

    fn note(&self, claim: &Claim<'_>, now: Timestamp, verdict: &Verdict, max_age: Duration, before: u64) {
        let Some(fits_at) = verdict.fits_at.filter(|_| !verdict.fits) else { return };
        if verdict.remaining != claim.cost - 1 || claim.id.key.len() > LONGEST {
            return;
        }
        let known = Refusal {
            name: claim.id.to_bytes(),
            meter: claim.meter,
            cost: claim.cost,
            from: now,
            until: fits_at.min(now + max_age),
            verdict: *verdict,
        };
        let mut place = self.at(&claim.id);
        if place.changes == before {
            place.known = Some(known);
        }
    }

    /// Forgets the meter, and whatever else is in its place: that costs a trip and no more.
    fn forget(&self, id: &MeterId<'_>) {
        let mut place = self.at(id);
        place.changes += 1;
        place.known = None;
    }
}
