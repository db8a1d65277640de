//! The store: shards, found by hash.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::{
    Answer, Claims, CounterStore, Decisions, ErrorKind, Meter, MeterId, Mode, Promises, Refund, StoreError,
    SyncCounterStore, Time, Timestamp, Verdict, Verdicts,
};

use crate::ask::Ask;
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::lots::{Held, Lots};
use crate::shard::Bound;
use crate::slice::Slice;
use crate::slot::{Slot, Way};
use crate::table::Place;
use crate::{MemoryConfig, WhenFull};

/// Meters in the memory of this process.
///
/// Share it behind an [`Arc`](std::sync::Arc), or by reference: many threads, and many limiters with name spaces of
/// their own.
///
/// ```
/// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
/// use std::sync::Arc;
///
/// let store = Arc::new(MemoryStore::new());
/// let log_in = RateLimiter::new(store.clone(), "5/min".parse::<Limit>()?).with_namespace("log-in");
/// let search = RateLimiter::new(store.clone(), "10/s burst 20".parse::<Limit>()?).with_namespace("search");
///
/// assert!(log_in.check_now("user:7")?.allowed());
/// assert!(search.check_now("user:7")?.allowed());
/// assert_eq!(store.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - Decisions are exact. A slice of several claims is decided as one step.
/// - Time is the caller's, and a meter remembers the newest instant at which it was charged.
/// - A check of a known key allocates nothing (a sliding log does while it grows), and neither does a refusal.
/// - Peeks, refusals and costs of zero store nothing.
/// - A check waits for others only while they decide on the same shard, and never panics because another thread did. A key
///   that is refused again and again waits for nobody, and writes nothing (logs and segmented windows do wait).
///
/// # Forgetting
/// There is no thread and no full sweep. Each charge of a new key, and one in 32 of the others, looks at up to eight
/// meters, on a walk that goes round the whole store, and drops those that have been irrelevant for
/// [`CLOCK_SLACK`](ratelimit_core::CLOCK_SLACK). It leaves out the parts of the store in which nothing can be irrelevant
/// yet. So under any traffic there are at most about a seventh more meters than are live, and a few hundred; without
/// traffic nothing is forgotten, and nothing grows.
///
/// What forgotten meters took is there for others, and stays the store's: what allocators give back to the system they give
/// back tens of megabytes at a time, for which a check would wait several milliseconds. After a flood of keys
/// [`shrink_to_fit`](Self::shrink_to_fit) gives it back.
///
/// "Now" is the `now` of the claim: the store has no clock. **All limiters on one store should therefore use the same
/// clock.** A claim that is far ahead of the others would take their meters for expired, though of no more than
/// the eight that it looks at, for the store does not remember its time. The system's clock never leaps.
///
/// # Memory
/// A meter takes 40 bytes, however long its key, in a table that is 88 to 97 % full: some 47 in all where there are a million.
/// While there are less than some 650,000 (650 to a shard) it may be down to 58 % full, because it moves its meters less often.
/// A segmented window takes eight bytes for each segment more, a sliding log eight to nine for each unit. A part of the store
/// that holds one meter has room for 56, in 2 kB; where there will always be few, choose fewer
/// [`shards`](MemoryConfig::shards). [`MemoryConfig::max_keys`] sets a bound to their number.
///
/// Keys are not kept, but fingerprints of 96 bits, by secrets that nobody outside of the process knows. That two of ten
/// million meters share one has a probability of 10<sup>-15</sup>; they would then count together.
#[repr(C)] // what each claim needs is side by side
pub struct MemoryStore {
    lots: Lots,
    prints: Fingerprints,
    bound: Bound,
    config: MemoryConfig,
    walk: Walk,
}

/// Which shard is tidied next. On cache lines of its own: it changes all the time, the rest of the store never.
#[derive(Default)]
#[repr(align(128))]
struct Walk(AtomicUsize);

/// One in so many charges of a known key tidies up.
const TIDY_EVERY: u32 = 32;

/// How many meters are looked at in one go.
const LOOKS: usize = 8;

/// How many shards are visited in one go, most of them empty if there are several.
const VISITS: usize = 16;

impl MemoryStore {
    /// An empty store without a bound.
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// An empty store.
    pub fn with_config(config: MemoryConfig) -> Self {
        let config = config.settled();
        Self {
            lots: Lots::new(config.shards),
            prints: Fingerprints::new(),
            bound: Bound { most: config.share(), evict: config.when_full == WhenFull::Evict },
            config,
            walk: Walk::default(),
        }
    }

    /// How the store is laid out: the configuration it was made with, with the number of shards that there are.
    pub fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// How many meters are stored, those included that have expired and not yet been dropped.
    ///
    /// One key under three limits is three meters. Takes no lock; exact while nobody writes.
    pub fn len(&self) -> usize {
        self.lots.len()
    }

    /// Whether no meter is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives back the memory that is not needed for the meters that there are. The allocator decides what of it the system
    /// gets.
    ///
    /// Checks go on meanwhile, but for those of one shard at a time, which wait for some dozen microseconds. It forgets nothing:
    /// after a flood of keys call it when they have expired and others have been checked since, or every hour.
    ///
    /// ```
    /// use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
    ///
    /// let limiter = RateLimiter::new(MemoryStore::new(), "10/min".parse::<Limit>()?);
    /// assert!(limiter.check_now("user:7")?.allowed());
    /// limiter.store().shrink_to_fit();
    /// assert_eq!(limiter.peek_now("user:7")?.remaining(), 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink_to_fit(&self) {
        for number in 0..self.lots.count() {
            let idle = self.lots.lock(number).shrink_to_fit();
            drop(idle); // when the lock has been let go
        }
    }

    /// What is left to do when a claim has been decided on a meter in its slot.
    #[inline(always)]
    fn claimed<R>(
        &self,
        mut shard: Held<'_>,
        place: Place,
        (admitted, verdict): (bool, Verdict),
        ask: Ask<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        shard.has_decided(place, admitted, ask);
        let tidy = admitted && ask.charges() && shard.is_time(TIDY_EVERY);
        self.let_go(shard, tidy, ask.now);
        then(Ok((admitted, verdict)))
    }

    /// A claim on a meter that is not known, or whose state is not in its slot.
    #[inline(never)]
    fn claim_unusual<R>(
        &self,
        mut shard: Held<'_>,
        print: Fingerprint,
        place: Option<Place>,
        ask: Ask<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let Some(place) = place else { return self.claim_new(shard, print, ask, then) };
        let (admitted, verdict) = shard.claim_other(place, ask);
        let tidy = admitted && ask.charges() && shard.is_time(TIDY_EVERY);
        self.let_go(shard, tidy, ask.now);
        then(Ok((admitted, verdict)))
    }

    /// A claim on a meter that is not known.
    ///
    /// It is decided before it is put in: to read again what was just written to memory that is not near takes as long as to
    /// wait for that memory.
    #[inline(always)]
    fn claim_new<R>(
        &self,
        mut shard: Held<'_>,
        print: Fingerprint,
        ask: Ask<'_>,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let admitted = ask.fits_fresh();
        if !(admitted && ask.charges()) {
            return then(Ok((admitted, shard.look(None, ask))));
        }
        if !shard.make_room(1, self.bound, ask.now, &[]) {
            return then(Err(full()));
        }
        let decided = match Slot::fresh(print, ask.meter, ask.now) {
            // Each way by itself up to the end, as of a known meter.
            Some((mut slot, Way::Window(window))) => {
                let decided = slot.claim_window(window, ask);
                shard.put(print, slot);
                self.let_go(shard, true, ask.now);
                return then(Ok(decided));
            }
            Some((mut slot, Way::Bucket(bucket))) => {
                let decided = slot.claim_bucket(bucket, ask);
                shard.put(print, slot);
                self.let_go(shard, true, ask.now);
                return then(Ok(decided));
            }
            None => shard.claim_large(print, ask),
        };
        self.let_go(shard, true, ask.now);
        then(Ok(decided))
    }

    /// Lets a shard go, and walks on if it is time.
    #[inline(always)]
    fn let_go(&self, shard: Held<'_>, tidy: bool, now: Timestamp) {
        drop(shard);
        if tidy {
            self.tidy(now);
        }
    }

    fn claim_all(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let prints = claims.iter().map(|claim| self.prints.of(&claim.id));
        let mut slice = Slice::hold(&self.lots, claims, prints);
        let admitted = slice.fits();
        let charged = admitted && claims.mode() != Mode::Peek;
        let mut answer = Answer { admitted, charged, now: claims.now(), verdicts: Verdicts::new() };
        if !charged {
            slice.look(&mut answer.verdicts);
            return Ok(answer);
        }
        if !slice.make_room(self.bound) {
            return Err(full());
        }
        let tidy = slice.charge(&mut answer.verdicts, TIDY_EVERY);
        drop(slice);
        if tidy {
            self.tidy(claims.now());
        }
        Ok(answer)
    }

    /// Goes on with the walk round the store for a few steps. Holds no lock when it is called, and waits for none.
    #[cold]
    fn tidy(&self, now: Timestamp) {
        // Threads that walk at once may tread on each other's heels; the walk goes on all the same.
        let start = self.walk.0.load(Ordering::Relaxed);
        let visits = start..(start + VISITS).min(self.lots.count());
        let next = match self.lots.may_forget(visits.clone(), now) {
            true => self.sweep(visits, now),
            false => visits.end,
        };
        self.walk.0.store(if next < self.lots.count() { next } else { 0 }, Ordering::Relaxed);
    }

    /// Looks at some of the meters of these shards, and tells which shard comes next.
    #[cold]
    fn sweep(&self, numbers: Range<usize>, now: Timestamp) -> usize {
        let mut looks = 0;
        for number in numbers.clone() {
            if self.lots.may_forget(number..number + 1, now)
                && let Some(mut shard) = self.lots.try_lock(number)
            {
                looks += shard.sweep(LOOKS - looks, now);
                if looks == LOOKS {
                    return number + 1;
                }
            }
        }
        numbers.end
    }
}

#[cold]
fn full() -> StoreError {
    StoreError::new(
        "memory",
        ErrorKind::Full,
        "there is no room for another key; raise `max_keys`, or let the store evict",
    )
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("config", &self.config).field("len", &self.len()).finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl CounterStore for MemoryStore {
    fn promises(&self) -> Promises {
        Promises { decisions: Decisions::Exact, time: Time::Caller }
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.claim_now(claims)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        slices.iter().map(|claims| self.claim_now(*claims)).collect()
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.refund_now(now, refunds);
        Ok(())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.reset_now(claims);
        Ok(())
    }
}

impl SyncCounterStore for MemoryStore {
    fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        match &*claims {
            [claim] => {
                let (now, mode) = (claims.now(), claims.mode());
                let (admitted, verdict) =
                    self.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter, |decided| decided)?;
                let charged = admitted && mode != Mode::Peek;
                Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_iter([verdict]) })
            }
            _ => self.claim_all(claims),
        }
    }

    #[inline]
    fn claim_one_now<R>(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let print = self.prints.of(id);
        let lot = self.lots.lot_of(print);
        // Made for each of them: one for all, of which the rare ways take the address, would be kept in memory.
        let ask = || Ask { cost, meter, now, mode };
        if let Some(verdict) = lot.refuses(print, mode, ask) {
            return then(Ok((false, verdict)));
        }
        let mut shard = self.lots.hold(lot);
        // Each way by itself up to the end, so that the verdict stays in registers.
        match shard.find_here(print, meter) {
            Ok((place, slot, Way::Window(window))) => {
                let decided = slot.claim_window(window, ask());
                self.claimed(shard, place, decided, ask(), then)
            }
            Ok((place, slot, Way::Bucket(bucket))) => {
                let decided = slot.claim_bucket(bucket, ask());
                self.claimed(shard, place, decided, ask(), then)
            }
            Err(place) => self.claim_unusual(shard, print, place, ask(), then),
        }
    }

    fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
        for refund in refunds {
            let print = self.prints.of(&refund.id);
            self.lots.hold(self.lots.lot_of(print)).refund(print, refund, now);
        }
    }

    fn reset_now(&self, claims: Claims<'_>) {
        for claim in claims.iter() {
            let print = self.prints.of(&claim.id);
            self.lots.hold(self.lots.lot_of(print)).reset(print);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::{Limit, ManualClock, RateLimiter};

    use super::*;

    fn limiter(limit: &str) -> RateLimiter<MemoryStore, ManualClock> {
        let limit: Limit = limit.parse().unwrap();
        RateLimiter::new(MemoryStore::new(), limit).with_clock(ManualClock::at(Timestamp::from_secs(1_000)))
    }

    #[test]
    fn who_is_refused_again_takes_no_lock() {
        for limit in ["1/min fixed", "1/min", "1/min burst 1"] {
            let limiter = limiter(limit);
            assert!(limiter.check_now("k").unwrap().allowed());
            let [first, _] = [(); 2].map(|()| limiter.check_now("k").unwrap());
            let lots = &limiter.store().lots;
            let held: Vec<Held<'_>> = (0..lots.count()).map(|number| lots.lock(number)).collect();
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(send.send(limiter.check_now("k").unwrap()).is_ok()));
                let again = receive.recv_timeout(std::time::Duration::from_secs(10));
                drop(held); // or the other thread would never end
                let again = again.expect("it waits for a lock");
                assert_eq!((again.allowed(), again), (false, first), "{limit}");
            });
        }
    }

    #[test]
    fn what_has_changed_is_decided_anew() {
        let limiter = limiter("2/min burst 2");
        let charged = limiter.check_now("k").unwrap();
        let refused = |limiter: &RateLimiter<MemoryStore, ManualClock>| {
            assert!(limiter.check_now("k").unwrap().allowed());
            let refused = limiter.check_now("k").unwrap();
            assert!(!refused.allowed() && !limiter.check_now("k").unwrap().allowed());
            refused.retry_after().unwrap()
        };
        refused(&limiter);
        limiter.refund_now(&charged);
        let wait = refused(&limiter);
        limiter.clock().advance(wait - std::time::Duration::from_nanos(1));
        assert!(!limiter.check_now("k").unwrap().allowed());
        limiter.clock().advance(std::time::Duration::from_nanos(1));
        refused(&limiter);
        // What is forgotten starts anew, also if it was refused last.
        limiter.reset_now("k").unwrap();
        assert!(limiter.check_now("k").unwrap().allowed());
        refused(&limiter);
        let store = MemoryStore::with_config(MemoryConfig { max_keys: Some(1), ..MemoryConfig::default() });
        let bounded = RateLimiter::new(store, "1/min burst 1".parse::<Limit>().unwrap());
        for (key, allowed) in
            [("one", "+---"), ("other", "+"), ("one", "+---"), ("other", "+---"), ("one", "+-")]
        {
            for mark in allowed.chars() {
                assert_eq!(bounded.check_now(key).unwrap().allowed(), mark == '+', "{key}");
            }
        }
    }
}
