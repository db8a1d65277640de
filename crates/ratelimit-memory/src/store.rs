//! The store: shards of meters, chosen by a hash of the name.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{
    Answer, Claims, Decisions, MeterId, Mode, Promises, Refund, Time, Verdict, Verdicts,
};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, SyncCounterStore, Timestamp, kit};

use crate::kit::{Demand, Fingerprints};
use crate::shard::Bound;
use crate::shards::{ShardGuard, Shards};
use crate::slice::Slice;
use crate::{MemoryConfig, WhenFull};

/// A store in the memory of this process.
///
/// Share it between threads, and between limiters with different namespaces, behind an [`Arc`](std::sync::Arc) or by
/// reference.
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
/// - Decisions are exact. Several claims are decided together as one step.
/// - Time is the caller's, and a meter remembers the latest instant at which it was charged.
/// - A check under up to four limits does not allocate if the key has a meter and at most 48 bytes, and neither does a
///   refusal. The exceptions are sliding logs while they grow, periods of the calendar, and refusals that count for a ban.
/// - Peeks, refusals and costs of zero store nothing.
/// - A check waits only for other checks on the same shard, and never panics because another thread did. Repeated
///   refusals of one key under one limit wait for nothing and write nothing (those of logs and segmented windows do wait).
///
/// # Removal of expired meters
/// No thread removes them, and no check visits all meters. Each charge of a new key, and one in 32 of the others, visits
/// up to eight meters, in a sweep that goes around the whole store, and removes those that have been irrelevant for
/// [`CLOCK_SLACK`](ratelimit_core::store::CLOCK_SLACK). It skips parts of the store without any of these. So under any traffic
/// there are at most about a seventh more meters than live ones, plus a few hundred; without traffic nothing is removed,
/// and nothing grows.
///
/// The store keeps the memory of removed meters and reuses it. Allocators return memory to the system tens of megabytes
/// at a time, and a check would wait several milliseconds for that. After a flood of keys, call
/// [`shrink_to_fit`](Self::shrink_to_fit) to free it.
///
/// "Now" is the `now` of the claim: the store has no clock. **All limiters on one store should therefore use the same
/// clock.** A claim whose `now` is far ahead of the others would remove their meters as expired, but only up to eight
/// that it visits, because the store does not remember its time. [`SystemClock`](ratelimit_core::SystemClock) never
/// jumps.
///
/// # Memory
/// A meter takes 40 bytes, however long its key, in a table that is 88 to 97 % full: about 47 bytes in total with a
/// million meters. With fewer than about 650,000 (650 per shard), the table may be down to 58 % full, because it moves
/// its meters less often. A segmented window takes eight more bytes per segment, a sliding log eight to nine per unit,
/// and after a burst up to four times as much. A shard with one meter has room for 56, in 2 kB; if there will always be
/// few meters, configure fewer [`shards`](MemoryConfig::shards). [`MemoryConfig::max_keys`] limits the number of meters;
/// [`WhenFull`](crate::WhenFull) says which of them stay when it is reached.
///
/// Instead of keys, the store compares fingerprints of 96 bits, keyed with secrets that never leave the process. The
/// probability that two of ten million meters share a fingerprint is 10<sup>-15</sup>; those two would count together.
#[repr(C)] // what each claim needs is side by side
pub struct MemoryStore {
    pub(crate) shards: Shards,
    pub(crate) fingerprints: Fingerprints,
    pub(crate) bound: Bound,
    config: MemoryConfig,
    walk: Walk,
    evicted: Evicted,
}

/// The number of the shard that is swept next. On its own cache lines, because it changes all the time and the rest of the
/// store never does.
#[derive(Default)]
#[repr(align(128))]
struct Walk(AtomicUsize);

/// The number of evicted meters that still counted. On its own cache lines, because of floods of new keys.
#[derive(Default)]
#[repr(align(128))]
struct Evicted(AtomicU64);

/// One in this many charges of a known key continues the sweep.
pub(crate) const TIDY_EVERY: u32 = 32;

/// How many meters one step of the sweep visits.
const LOOKS: usize = 8;

/// How many shards one step of the sweep visits at most. If it visits several, most of them are empty.
const VISITS: usize = 16;

impl MemoryStore {
    /// Creates an empty store without a bound.
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// Creates an empty store.
    pub fn with_config(config: MemoryConfig) -> Self {
        let config = config.settled();
        if config.max_keys.is_some() && config.when_full == WhenFull::Evict {
            kit::count_evicted(NAME, 0);
        }
        Self {
            shards: Shards::new(config.shards),
            fingerprints: Fingerprints::new(),
            bound: Bound { most: config.share(), evict: config.when_full == WhenFull::Evict },
            config,
            walk: Walk::default(),
            evicted: Evicted::default(),
        }
    }

    /// The store's configuration, with the actual number of shards.
    pub fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// The number of stored meters, including expired ones that have not been removed yet.
    ///
    /// One key under three limits has three meters. Takes no lock. The number is exact if no other thread uses the store.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether the store has no meters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of meters that were evicted although they still counted, since the store was created. Their keys have
    /// begun anew, with a full quota. If it rises, raise [`max_keys`](MemoryConfig::max_keys).
    ///
    /// Meters that were empty, or whose time was over, are not among them. A meter whose time has just ended may count for
    /// up to a second more. With the feature `metrics` of [`ratelimit_core`], which that of `ratelimit-tower` enables, this is
    /// also the metric `ratelimit_evicted_total{store="memory"}`.
    ///
    /// ```
    /// use ratelimit_memory::{Limit, MemoryConfig, MemoryStore, RateLimiter};
    ///
    /// let store = MemoryStore::with_config(MemoryConfig::default().max_keys(1_000));
    /// let limiter = RateLimiter::new(store, "10/min".parse::<Limit>()?);
    /// for user in 0..1_500 {
    ///     limiter.check_now(&*format!("user:{user}"))?;
    /// }
    /// assert!(limiter.store().evicted() >= 500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evicted(&self) -> u64 {
        self.evicted.0.load(Ordering::Relaxed)
    }

    /// Records that meters were evicted that still counted. The caller must hold no lock: what the program has installed for
    /// its metrics runs in this call.
    #[cold]
    pub(crate) fn has_evicted(&self, meters: u64) {
        self.evicted.0.fetch_add(meters, Ordering::Relaxed);
        kit::count_evicted(NAME, meters);
    }

    /// Frees the memory that the current meters do not need. The allocator decides how much of it is returned to the
    /// system.
    ///
    /// Checks continue meanwhile; only those on one shard at a time wait, for some dozen microseconds. This removes no
    /// meters. So call it when the keys of a flood have expired and later checks have removed them, or every hour.
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
        for number in 0..self.shards.count() {
            let idle = self.shards.lock(number).shrink_to_fit();
            drop(idle); // after the lock is released
        }
    }

    /// Releases a shard, and continues the sweep if it is time.
    #[inline(always)]
    pub(crate) fn release(&self, shard: ShardGuard<'_>, tidy: bool, now: Timestamp) {
        drop(shard);
        if tidy {
            self.tidy(now);
        }
    }

    fn claim_all(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answer =
            Answer { admitted: false, charged: false, now: claims.now(), verdicts: Verdicts::new() };
        let mut slice = Slice::new(claims);
        slice.lock(&self.shards, &self.fingerprints);
        answer.admitted = slice.decide(&mut answer.verdicts);
        answer.charged = answer.admitted && claims.mode() != Mode::Peek;
        if !answer.charged {
            return Ok(answer);
        }
        let room = slice.make_room(self.bound);
        let tidy = room.is_made && slice.charge(&mut answer.verdicts, TIDY_EVERY);
        drop(slice);
        if room.evicted > 0 {
            self.has_evicted(room.evicted);
        }
        if !room.is_made {
            return Err(full());
        }
        if tidy {
            self.tidy(claims.now());
        }
        Ok(answer)
    }

    /// Continues the sweep by one step. The caller must hold no lock; this does not wait for any.
    #[cold]
    fn tidy(&self, now: Timestamp) {
        // Threads that sweep concurrently may visit the same shards; the sweep makes progress all the same.
        let start = self.walk.0.load(Ordering::Relaxed);
        let visits = start..(start + VISITS).min(self.shards.count());
        let next = match self.shards.may_forget(visits.clone(), now) {
            true => self.sweep(visits, now),
            false => visits.end,
        };
        self.walk.0.store(if next < self.shards.count() { next } else { 0 }, Ordering::Relaxed);
    }

    /// Visits some of the meters of these shards, and returns the shard that comes next.
    #[cold]
    fn sweep(&self, numbers: Range<usize>, now: Timestamp) -> usize {
        let mut looks = 0;
        for number in numbers.clone() {
            if self.shards.may_forget(number..number + 1, now)
                && let Some(mut shard) = self.shards.try_lock(number)
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

/// The store's name in errors and metrics.
const NAME: &str = "memory";

#[cold]
pub(crate) fn full() -> StoreError {
    StoreError::new(
        NAME,
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

impl CounterStore for MemoryStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.claim_now(claims)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        for refund in refunds {
            let fingerprint = self.fingerprints.of(&refund.id);
            self.shards.lock_cell(self.shards.cell_of(fingerprint)).refund(fingerprint, refund, now);
        }
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
                    self.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter)?;
                let charged = admitted && mode != Mode::Peek;
                Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_iter([verdict]) })
            }
            _ => self.claim_all(claims),
        }
    }

    #[inline]
    fn claim_one_now(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
    ) -> Result<(bool, Verdict), StoreError> {
        self.claim_one(self.fingerprints.of(id), Demand { cost, meter, now, mode })
    }

    fn reset_now(&self, claims: Claims<'_>) {
        for claim in claims.iter() {
            let fingerprint = self.fingerprints.of(&claim.id);
            self.shards.lock_cell(self.shards.cell_of(fingerprint)).reset(fingerprint);
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
    fn repeated_refusals_take_no_lock() {
        for limit in ["1/min fixed", "1/min", "1/min burst 1"] {
            let limiter = limiter(limit);
            assert!(limiter.check_now("k").unwrap().allowed());
            let [first, _] = [(); 2].map(|()| limiter.check_now("k").unwrap());
            let shards = &limiter.store().shards;
            let held: Vec<ShardGuard<'_>> = (0..shards.count()).map(|number| shards.lock(number)).collect();
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
    fn refunds_resets_time_and_evictions_end_a_cached_refusal() {
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
        // A removed meter starts anew, even if it was the last one that refused.
        limiter.reset_now("k").unwrap();
        assert!(limiter.check_now("k").unwrap().allowed());
        refused(&limiter);
        let store = MemoryStore::with_config(MemoryConfig::default().max_keys(1));
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
