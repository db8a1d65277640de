//! The bucket meter: one instant, the theoretical arrival time (TAT) of the generic cell rate algorithm.

use smallvec::SmallVec;

use super::charged::Charged;
use super::check::{check_period, check_units};
use super::divisor::Divisor;
use crate::{LimitError, MAX_PERIOD_NANOS, MAX_RATES, MAX_UNITS, Mode, Timestamp, Verdict};

/// The maximum of `burst x interval`: 2<sup>61</sup> ns, about 73 years.
const MAX_TOLERANCE: u64 = 1 << 61;

/// The maximum debt that forced charges can create: 2<sup>62</sup> - 1 ns, about 146 years.
const MAX_DEBT: u64 = (1 << 62) - 1;

/// A limit cannot be built if its rate is off by more than one part in this many.
const PRECISION: u128 = 1_000;

/// Counts units as time: each takes `interval` nanoseconds to drain, and up to `burst` of them may be in the bucket.
///
/// A claim is admitted if and only if `max(tat, now) + cost x interval <= now + burst x interval` (the generic cell
/// rate algorithm of ITU-T I.371, as a virtual schedule). Token bucket, leaky bucket as a meter and leaky bucket as a
/// queue are all this meter; in the queue form an admitted claim has to wait for its turn, `max(tat, now)`.
///
/// If limits of several rates charge one bucket, each unit drains at the rate of the limit that it was charged under,
/// and every limit counts all units in the bucket; see [`BucketState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    interval: Divisor,
    burst: u64,
    queue: bool,
}

/// The state of a [`Bucket`].
///
/// Nearly always there is one debt. There are several while the bucket has units that were charged under limits of
/// different rates: because a limit has changed, or because several limits share the bucket. Then there is a debt for
/// each rate. It contains the units of that rate and of all slower ones, and drains at that rate. The bucket owes the
/// largest of them, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The latest instant at which it was charged.
    pub at: Timestamp,
    /// A debt for each rate, by rising interval: the first one contains all units.
    pub debts: SmallVec<[Debt; 1]>,
}

/// Units of a [`BucketState`] that drain one after another.
///
/// As numbers, in stores and in [`State::to_bytes`](crate::State::to_bytes), a bucket with one debt is `at`, `tat`,
/// `interval`; any other is `at`, and `tat`, `interval`, `receipt` of each debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// When all of its units will have drained: the theoretical arrival time.
    pub tat: Timestamp,
    /// How long one unit takes to drain, in nanoseconds.
    pub interval: u64,
    /// The receipt of the latest charge of exactly this rate: the end of the line of its units, on a clock that runs
    /// only while they drain. If there is one debt, this is `tat`.
    pub receipt: Timestamp,
}

impl Bucket {
    /// Creates a bucket meter for `quota` units per `period` (nanoseconds), which admits up to `burst` at once.
    ///
    /// The interval is rounded up to whole nanoseconds, so the rate is never exceeded in the long run.
    ///
    /// # Errors
    /// If a number is zero or beyond its bound, if whole nanoseconds cannot represent the rate within 0.1 %, or if the
    /// burst would take more than 73 years to drain.
    pub fn new(quota: u64, period: u64, burst: u64, queue: bool) -> Result<Self, LimitError> {
        check_units("quota", quota, MAX_UNITS)?;
        check_units("burst", burst, MAX_UNITS)?;
        check_period("period", period)?;
        let interval = period.div_ceil(quota);
        let rounded_by = u128::from(interval) * u128::from(quota) - u128::from(period);
        if rounded_by * PRECISION > u128::from(period) {
            return Err(LimitError::RateTooHigh);
        }
        Self::with_interval(interval, burst, queue)
    }

    /// Creates a bucket meter that drains one unit every `interval` nanoseconds.
    ///
    /// # Errors
    /// If a number is zero or beyond its bound, or if the burst would take more than 73 years to drain.
    pub fn with_interval(interval: u64, burst: u64, queue: bool) -> Result<Self, LimitError> {
        check_period("period", interval)?;
        check_units("burst", burst, MAX_UNITS)?;
        if interval.checked_mul(burst).is_none_or(|tolerance| tolerance > MAX_TOLERANCE) {
            return Err(LimitError::BurstTooLong);
        }
        Ok(Self { interval: Divisor::new(interval), burst, queue })
    }

    /// Creates a bucket meter with a burst of zero: a gate. A claim of cost zero fits if and only if the bucket is empty, and
    /// nothing else fits. So it reads a bucket that others charge, as bans do.
    ///
    /// # Errors
    /// If the interval is zero or longer than ten years.
    pub fn gate(interval: u64) -> Result<Self, LimitError> {
        check_period("period", interval)?;
        Ok(Self { interval: Divisor::new(interval), burst: 0, queue: false })
    }

    /// How long one unit takes to drain, in nanoseconds.
    pub fn interval(&self) -> u64 {
        self.interval.get()
    }

    /// The maximum number of units at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Whether an admitted claim has to wait for its turn.
    pub fn queue(&self) -> bool {
        self.queue
    }

    /// How long a full bucket takes to drain, in nanoseconds.
    pub fn tolerance(&self) -> u64 {
        self.interval() * self.burst // bounded when it was built
    }

    pub(super) fn fresh() -> BucketState {
        BucketState { at: Timestamp::EPOCH, debts: SmallVec::new() }
    }

    /// The time that `units` take to drain.
    fn drain_time(&self, units: u64) -> u64 {
        drain_time(units, self.interval())
    }

    /// Decides one claim on a bucket with one debt that drains at this meter's interval. Returns whether it is admitted,
    /// and the verdict. `at` and `tat` are those of its [`BucketState`]; for a fresh bucket, any instants in the past.
    ///
    /// ```
    /// use ratelimit_core::{Bucket, Mode, Timestamp};
    ///
    /// let bucket = Bucket::new(60, 60_000_000_000, 2, false)?; // one a second, two at once
    /// let (mut at, mut tat) = (Timestamp::EPOCH, Timestamp::EPOCH);
    /// let mut claim = || bucket.claim(&mut at, &mut tat, 1, Timestamp::from_secs(30), Mode::Charge).0;
    /// assert_eq!([claim(), claim(), claim()], [true, true, false]);
    /// assert_eq!(tat, Timestamp::from_secs(32));
    /// # Ok::<(), ratelimit_core::LimitError>(())
    /// ```
    #[inline(always)]
    pub fn claim(
        &self,
        at: &mut Timestamp,
        tat: &mut Timestamp,
        cost: u64,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let seen = now.max(*at).as_nanos();
        let debt = tat.as_nanos().saturating_sub(seen);
        let ready_at = if self.queue && debt > 0 { *tat } else { now };
        let fits =
            (cost <= self.burst && debt <= (self.burst - cost) * self.interval()) || self.is_free(cost);
        if cost > 0 && mode != Mode::Peek && (fits || mode == Mode::Force) {
            // What fits is within the tolerance; only a forced charge can exceed it.
            let after = match mode {
                Mode::Force => (debt + self.drain_time(cost)).min(MAX_DEBT),
                Mode::Charge | Mode::Peek => debt + self.interval() * cost,
            };
            *at = Timestamp::derived(seen);
            *tat = Timestamp::derived(seen + after);
            let verdict = Verdict {
                fits: true,
                limit: self.burst,
                remaining: self.remaining(after),
                fits_at: Some(now),
                reset_at: *tat,
                ready_at,
                receipt: *tat,
            };
            return (true, verdict);
        }
        let room = || self.burst.checked_sub(cost).map(|units| units * self.interval());
        let verdict = Verdict {
            fits,
            limit: self.burst,
            remaining: self.remaining(debt),
            fits_at: if fits { Some(now) } else { room().map(|room| Timestamp::derived(seen + debt - room)) },
            reset_at: if debt > 0 { *tat } else { now },
            ready_at,
            receipt: now,
        };
        (fits || mode == Mode::Force, verdict)
    }

    /// Whether this cost always fits: zero, except at a gate.
    #[inline(always)]
    fn is_free(&self, cost: u64) -> bool {
        cost == 0 && self.burst > 0
    }

    /// Whether [`Bucket::claim`] can decide on this state.
    pub(super) fn is_only_rate_of(&self, state: &BucketState) -> bool {
        state.only_debt().is_some_and(|debt| debt.interval == self.interval())
    }

    /// The number of whole units that fit beside this debt.
    #[inline]
    fn remaining(&self, debt: u64) -> u64 {
        self.interval.divide(self.tolerance().saturating_sub(debt)).0
    }

    pub(super) fn fits(&self, state: &BucketState, cost: u64, now: Timestamp) -> bool {
        let seen = state.seen(now);
        let fits = |units| state.debts.iter().all(|debt| debt.left(seen) <= drain_time(units, debt.interval));
        self.is_free(cost) || self.burst.checked_sub(cost).is_some_and(fits)
    }

    /// Adds the units to the debts of this rate and of all faster ones. If those had drained below the units of slower
    /// rates, they start from these: a unit that drains slowly stays until it has drained.
    pub(super) fn charge(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Charged {
        let seen = state.seen(now);
        let ready_at = self.turn(state, now);
        state.at = Timestamp::derived(seen);
        state.debts.retain(|debt| debt.left(seen) > 0);
        let own = state.place(self.interval()).unwrap_or_else(|place| {
            state.debts.insert(place, Debt::only(state.at, self.interval()));
            place
        });
        let line = state.debts[own].receipt.as_nanos();
        let receipt = Timestamp::derived((line + self.drain_time(cost)).min(seen + MAX_DEBT));
        state.debts[own].receipt = receipt;
        for place in 0..=own {
            let interval = state.debts[place].interval;
            let left = state.left_from(place, interval, seen);
            let after = left.saturating_add(drain_time(cost, interval)).min(MAX_DEBT);
            state.debts[place].tat = Timestamp::derived(seen + after);
        }
        if state.debts.len() > MAX_RATES {
            // Its units are in the first debt as well, and drain at the rate of that.
            state.debts.remove(1);
        }
        Charged { receipt, ready_at }
    }

    /// When a claim that arrives `now` may proceed. In a queue, this is when all units before it have drained, if those
    /// of slower rates drain at this rate.
    fn turn(&self, state: &BucketState, now: Timestamp) -> Timestamp {
        if !self.queue {
            return now;
        }
        let seen = state.seen(now);
        let (Ok(own) | Err(own)) = state.place(self.interval());
        let faster = state.debts[..own].iter().map(|debt| debt.left(seen)).max().unwrap_or(0);
        let left = faster.max(state.left_from(own, self.interval(), seen));
        if left > 0 { Timestamp::derived(seen + left) } else { now }
    }

    /// Units of one rate drain in the order in which they were charged. So what has not drained of this charge is what
    /// lies before its receipt in their line.
    pub(super) fn refund(&self, state: &mut BucketState, cost: u64, receipt: Timestamp, now: Timestamp) {
        let Ok(own) = state.place(self.interval()) else { return };
        let seen = state.seen(now);
        let line = state.debts[own].receipt.as_nanos();
        let there = state.own(own, seen);
        let before = there.saturating_sub(line.saturating_sub(receipt.as_nanos()));
        let back = Owed { time: self.drain_time(cost).min(before), interval: self.interval() };
        if back.time == 0 {
            return;
        }
        state.debts[own].receipt = Timestamp::derived(line.saturating_sub(back.time));
        for place in 0..=own {
            let interval = state.debts[place].interval;
            let left = state.left_from(place, interval, seen).saturating_sub(back.whole_nanos(interval));
            state.debts[place].tat = Timestamp::derived(seen + left);
        }
    }

    /// Computes the figures of an answer from the state after the decision.
    pub(super) fn verdict(
        &self,
        state: &BucketState,
        cost: u64,
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let seen = state.seen(now);
        let fits = charged.is_some() || self.fits(state, cost, now);
        let fits_at = || {
            let room = self.burst.checked_sub(cost)?;
            let fits_at = |debt: &Debt| debt.tat.as_nanos().saturating_sub(drain_time(room, debt.interval));
            state.debts.iter().map(fits_at).max().map(Timestamp::derived)
        };
        Verdict {
            fits,
            limit: self.burst,
            remaining: self.burst.saturating_sub(state.owed(now)),
            fits_at: if fits { Some(now) } else { fits_at() },
            reset_at: state.tat().filter(|tat| tat.as_nanos() > seen).unwrap_or(now),
            ready_at: charged.map_or_else(|| self.turn(state, now), |charged| charged.ready_at),
            receipt: charged.map_or(now, |charged| charged.receipt),
        }
    }
}

impl BucketState {
    /// Returns this state as numbers, for a store that keeps numbers; see [`Debt`].
    pub fn numbers(&self) -> SmallVec<[u64; 4]> {
        let mut numbers: SmallVec<[u64; 4]> = SmallVec::from_slice(&[self.at.as_nanos()]);
        if let Some(debt) = self.only_debt() {
            numbers.extend([debt.tat.as_nanos(), debt.interval]);
            return numbers;
        }
        for debt in &self.debts {
            numbers.extend([debt.tat.as_nanos(), debt.interval, debt.receipt.as_nanos()]);
        }
        numbers
    }

    /// Returns the state that these numbers represent, or `None` if they are not valid.
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (at, debts) = numbers.split_first()?;
        let instant = |nanos: u64| (nanos <= i64::MAX as u64).then(|| Timestamp::derived(nanos));
        let debts: SmallVec<[Debt; 1]> = match debts {
            [tat, interval] => SmallVec::from([Debt::only(instant(*tat)?, *interval)]),
            _ => {
                let (debts, []) = debts.as_chunks() else { return None };
                let debt = |[tat, interval, receipt]: &[u64; 3]| {
                    Some(Debt { tat: instant(*tat)?, interval: *interval, receipt: instant(*receipt)? })
                };
                debts.iter().map(debt).collect::<Option<_>>()?
            }
        };
        let sound = debts.is_sorted_by(|one, other| one.interval < other.interval)
            && debts.iter().all(|debt| (1..=MAX_PERIOD_NANOS).contains(&debt.interval))
            && debts.len() <= MAX_RATES
            && *at <= Timestamp::MAX.as_nanos();
        sound.then(|| Self { at: Timestamp::derived(*at), debts })
    }

    /// The instant as of which a claim at `now` is decided.
    fn seen(&self, now: Timestamp) -> u64 {
        now.max(self.at).as_nanos()
    }

    /// The index of the debt of this interval; `Err` with where it would be, after all faster ones.
    fn place(&self, interval: u64) -> Result<usize, usize> {
        self.debts.binary_search_by_key(&interval, |debt| debt.interval)
    }

    /// The drain time of the units of exactly this debt's rate, without those of slower rates.
    fn own(&self, place: usize, seen: u64) -> u64 {
        let Debt { interval, .. } = self.debts[place];
        let slower = self.debts[place + 1..].iter().map(|debt| debt.owed(seen).whole_nanos(interval)).max();
        self.left_from(place, interval, seen).saturating_sub(slower.unwrap_or(0))
    }

    /// The drain time of the debts from this place on, at an interval not longer than theirs. A part of a nanosecond is
    /// rounded up, which does not change the number of units.
    fn left_from(&self, place: usize, interval: u64, seen: u64) -> u64 {
        self.debts[place..].iter().map(|debt| debt.owed(seen).at(interval)).max().unwrap_or(0)
    }

    /// Returns the only debt, if there is exactly one without a separate receipt: a store may keep this in three numbers.
    pub fn only_debt(&self) -> Option<Debt> {
        match self.debts[..] {
            [debt] if debt.receipt == debt.tat => Some(debt),
            _ => None,
        }
    }

    /// Returns how many units have not drained by `now`, counting partly drained ones in full: the same under each limit.
    ///
    /// ```
    /// use ratelimit_core::{BucketState, Debt, Timestamp};
    ///
    /// let debt = Debt::only(Timestamp::from_secs(32), 1_000_000_000); // one a second
    /// let state = BucketState { at: Timestamp::from_secs(30), debts: [debt].into_iter().collect() };
    /// assert_eq!(state.owed(Timestamp::from_millis(30_500)), 2);
    /// assert_eq!(state.owed(Timestamp::from_secs(31)), 1);
    /// ```
    pub fn owed(&self, now: Timestamp) -> u64 {
        let seen = self.seen(now);
        self.debts.iter().map(|debt| debt.left(seen).div_ceil(debt.interval)).max().unwrap_or(0)
    }

    /// Returns how far the line of this rate's units has drained, on the clock of their receipts; `None` if there is none. A
    /// [`refund`](super::Meter::refund) whose receipt is later by some time returns at most what takes that time to drain.
    ///
    /// ```
    /// use ratelimit_core::{BucketState, Debt, Timestamp};
    ///
    /// let debt = Debt::only(Timestamp::from_secs(32), 1_000_000_000); // one a second
    /// let state = BucketState { at: Timestamp::from_secs(30), debts: [debt].into_iter().collect() };
    /// assert_eq!(state.drained_to(1_000_000_000, Timestamp::from_secs(31)), Some(Timestamp::from_secs(31)));
    /// ```
    pub fn drained_to(&self, interval: u64, now: Timestamp) -> Option<Timestamp> {
        let place = self.place(interval).ok()?;
        let own = self.own(place, self.seen(now));
        Some(Timestamp::derived(self.debts[place].receipt.as_nanos().saturating_sub(own)))
    }

    /// When all that was charged will have drained; `None` if nothing was charged.
    pub fn tat(&self) -> Option<Timestamp> {
        self.debts.iter().map(|debt| debt.tat).max()
    }

    /// When all that was charged has drained, but not before `at`, as of which late claims are decided.
    pub(super) fn forget_at(&self) -> Timestamp {
        self.tat().map_or(self.at, |tat| tat.max(self.at))
    }
}

impl Debt {
    /// The debt of a bucket that has only this one.
    pub fn only(tat: Timestamp, interval: u64) -> Self {
        Self { tat, interval, receipt: tat }
    }

    /// The time that is left until it has drained, in nanoseconds.
    fn left(&self, seen: u64) -> u64 {
        self.tat.as_nanos().saturating_sub(seen)
    }

    fn owed(&self, seen: u64) -> Owed {
        Owed { time: self.left(seen), interval: self.interval }
    }
}

/// Units, expressed as the time that they take to drain at an interval.
#[derive(Clone, Copy)]
struct Owed {
    time: u64,
    interval: u64,
}

impl Owed {
    /// The time at another interval, rounded up.
    fn at(self, interval: u64) -> u64 {
        if interval == self.interval {
            return self.time;
        }
        let product = u128::from(self.time) * u128::from(interval);
        u64::try_from(product.div_ceil(u128::from(self.interval))).unwrap_or(MAX_DEBT)
    }

    /// The same, rounded down.
    fn whole_nanos(self, interval: u64) -> u64 {
        let product = u128::from(self.time) * u128::from(interval);
        u64::try_from(product / u128::from(self.interval)).unwrap_or(MAX_DEBT)
    }
}

/// The time that `units`, at most [`MAX_UNITS`], take to drain at this interval, at most [`MAX_DEBT`].
fn drain_time(units: u64, interval: u64) -> u64 {
    units.min(MAX_UNITS).saturating_mul(interval).min(MAX_DEBT)
}
