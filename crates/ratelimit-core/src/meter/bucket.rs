//! The bucket meter: one instant, the theoretical arrival time (TAT) of the generic cell rate algorithm.

use super::divisor::Divisor;
use super::{Charged, MAX_UNITS, check_period, check_units};
use crate::{LimitError, Mode, Timestamp, Verdict};

/// The longest `burst x interval`: 2<sup>61</sup> ns, about 73 years.
const MAX_TOLERANCE: u64 = 1 << 61;

/// The longest debt that forced charges can run up: 2<sup>62</sup> - 1 ns, about 146 years.
const MAX_DEBT: u64 = (1 << 62) - 1;

/// A rate that is off by more than one part in this many is refused when the limit is built.
const PRECISION: u128 = 1_000;

/// Counts units as time: each takes `interval` nanoseconds to drain, and `burst` of them may be there at once.
///
/// A claim is admitted iff `max(tat, now) + cost x interval <= now + burst x interval` (the generic cell rate
/// algorithm of ITU-T I.371, as a virtual schedule). Token bucket, leaky bucket as a meter and leaky bucket as a queue
/// are this one meter; in the queue form an admitted claim is told to wait for its turn, `max(tat, now)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    interval: Divisor,
    burst: u64,
    queue: bool,
}

/// What is kept of a [`Bucket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The newest instant at which it was charged.
    pub at: Timestamp,
    /// When all that was charged will have drained.
    pub tat: Timestamp,
    /// The interval that `tat` was worked out with, in nanoseconds.
    pub interval: u64,
}

impl Bucket {
    /// A bucket meter for `quota` units a `period` (nanoseconds), of which `burst` may come at once.
    ///
    /// The interval is rounded up to whole nanoseconds, so the rate is never exceeded in the long run.
    ///
    /// # Errors
    /// A zero or a number beyond its bound; a rate that whole nanoseconds cannot keep within 0.1 %; a burst that
    /// would take longer than 73 years to drain.
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

    /// A bucket meter that drains one unit each `interval` nanoseconds.
    ///
    /// # Errors
    /// A zero or a number beyond its bound; a burst that would take longer than 73 years to drain.
    pub fn with_interval(interval: u64, burst: u64, queue: bool) -> Result<Self, LimitError> {
        check_period("period", interval)?;
        check_units("burst", burst, MAX_UNITS)?;
        if interval.checked_mul(burst).is_none_or(|tolerance| tolerance > MAX_TOLERANCE) {
            return Err(LimitError::BurstTooLong);
        }
        Ok(Self { interval: Divisor::new(interval), burst, queue })
    }

    /// How long one unit takes to drain, in nanoseconds.
    pub fn interval(&self) -> u64 {
        self.interval.get()
    }

    /// The most units at once.
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

    pub(super) fn fresh(&self) -> BucketState {
        BucketState { at: Timestamp::EPOCH, tat: Timestamp::EPOCH, interval: self.interval() }
    }

    /// What `units` take to drain, at most [`MAX_DEBT`].
    fn drain_time(&self, units: u64) -> u64 {
        self.interval().saturating_mul(units).min(MAX_DEBT)
    }

    /// The instant of the decision, and the debt that has not drained by then, in nanoseconds.
    ///
    /// If the interval has changed since the state was written, the *units* of that time are kept: those begun count
    /// whole, and no more than the bucket now holds (a limit that is lowered leaves an empty bucket, not one that owes).
    /// They drain at the new rate, as if it had been in force since the state was written, and are gone at the latest
    /// when they would have been at the old one: then the state may be forgotten, so it must not count any more.
    #[inline]
    fn debt(&self, state: &BucketState, now: Timestamp) -> (u64, u64) {
        let now = now.max(state.at).as_nanos();
        let debt = state.tat.as_nanos().saturating_sub(now);
        if state.interval == self.interval() || debt == 0 {
            return (now, debt);
        }
        let at = state.at.as_nanos();
        let units = (state.tat.as_nanos() - at).div_ceil(state.interval.max(1)).min(self.burst);
        (now, (at + units * self.interval()).saturating_sub(now))
    }

    /// An instant by which enough has drained, unless all has drained sooner: see [`Bucket::debt`].
    fn drained_at(&self, state: &BucketState, instant: u64) -> Timestamp {
        if state.interval == self.interval() {
            return Timestamp::derived(instant);
        }
        Timestamp::derived(instant).min(state.tat)
    }

    /// When a claim that comes `now`, and has `seen` this debt, may go on: in a queue, when all before it has drained.
    fn turn(&self, state: &BucketState, now: Timestamp, (seen, debt): (u64, u64)) -> Timestamp {
        if self.queue && debt > 0 { self.drained_at(state, seen + debt) } else { now }
    }

    pub(super) fn fits(&self, state: &BucketState, cost: u64, now: Timestamp) -> bool {
        cost == 0 || self.debt_fits(self.debt(state, now).1, cost)
    }

    #[inline]
    fn debt_fits(&self, debt: u64, cost: u64) -> bool {
        cost <= self.burst && debt <= (self.burst - cost) * self.interval()
    }

    /// One claim from end to end, on a state that is kept in a form of one's own: whether it is admitted, and the verdict.
    ///
    /// ```
    /// use ratelimit_core::{Bucket, BucketState, Mode, Timestamp};
    ///
    /// let bucket = Bucket::new(60, 60_000_000_000, 2, false)?; // one a second, two at once
    /// let mut state = BucketState { at: Timestamp::EPOCH, tat: Timestamp::EPOCH, interval: bucket.interval() };
    /// let mut claim = || bucket.claim(&mut state, 1, Timestamp::from_secs(30), Mode::Charge).0;
    /// assert_eq!([claim(), claim(), claim()], [true, true, false]);
    /// assert_eq!(state.tat, Timestamp::from_secs(32));
    /// # Ok::<(), ratelimit_core::LimitError>(())
    /// ```
    #[inline(always)]
    pub fn claim(&self, state: &mut BucketState, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
        let seen = self.debt(state, now);
        let admitted = cost == 0 || mode == Mode::Force || self.debt_fits(seen.1, cost);
        if admitted && cost > 0 && mode != Mode::Peek {
            let (charged, debt) = self.charge_seen(state, cost, now, seen, mode);
            return (true, self.verdict_charged(now, charged, debt, state.tat));
        }
        (admitted, self.verdict_seen(state, cost, now, seen))
    }

    pub(super) fn charge(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Charged {
        self.charge_seen(state, cost, now, self.debt(state, now), Mode::Force).0
    }

    /// Charges a bucket that has been looked at; gives its debt then, which is not zero.
    #[inline]
    fn charge_seen(
        &self,
        state: &mut BucketState,
        cost: u64,
        now: Timestamp,
        seen: (u64, u64),
        mode: Mode,
    ) -> (Charged, u64) {
        let ready_at = self.turn(state, now, seen);
        let (now, debt) = seen;
        // What fits is within the tolerance; only what is charged by force can be too much.
        let after = match mode {
            Mode::Force => (debt + self.drain_time(cost)).min(MAX_DEBT),
            Mode::Charge | Mode::Peek => debt + self.interval() * cost,
        };
        *state = BucketState {
            at: Timestamp::derived(now),
            tat: Timestamp::derived(now + after),
            interval: self.interval(),
        };
        (Charged { receipt: state.tat, ready_at }, after)
    }

    /// `receipt` is the TAT that the charge led to. Units drain in the order in which they came, so what of this
    /// charge has not drained lies before its receipt.
    pub(super) fn refund(&self, state: &mut BucketState, cost: u64, receipt: Timestamp, now: Timestamp) {
        let (now, debt) = self.debt(state, now);
        let left = self.drain_time(cost).min(receipt.as_nanos().saturating_sub(now));
        if left > 0 && debt > 0 {
            state.tat = Timestamp::derived(now + debt.saturating_sub(left));
            state.interval = self.interval();
        }
    }

    pub(super) fn verdict(
        &self,
        state: &BucketState,
        cost: u64,
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let seen = self.debt(state, now);
        match charged {
            Some(charged) => self.verdict_charged(now, charged, seen.1, self.reset_at(state, now, seen)),
            None => self.verdict_seen(state, cost, now, seen),
        }
    }

    /// The verdict on a charge of some units, which has left this debt.
    #[inline]
    fn verdict_charged(&self, now: Timestamp, charged: Charged, debt: u64, reset_at: Timestamp) -> Verdict {
        Verdict {
            fits: true,
            limit: self.burst,
            remaining: self.remaining(debt),
            fits_at: Some(now),
            reset_at,
            ready_at: charged.ready_at,
            receipt: charged.receipt,
        }
    }

    /// The verdict where nothing is charged.
    #[inline]
    fn verdict_seen(
        &self,
        state: &BucketState,
        cost: u64,
        now: Timestamp,
        (seen, debt): (u64, u64),
    ) -> Verdict {
        let fits = cost == 0 || self.debt_fits(debt, cost);
        let fits_at = if fits {
            Some(now)
        } else {
            let room = self.burst.checked_sub(cost).map(|units| units * self.interval());
            room.map(|room| self.drained_at(state, seen + debt.saturating_sub(room)))
        };
        Verdict {
            fits,
            limit: self.burst,
            remaining: self.remaining(debt),
            fits_at,
            reset_at: self.reset_at(state, now, (seen, debt)),
            ready_at: self.turn(state, now, (seen, debt)),
            receipt: now,
        }
    }

    /// How many whole units fit beside this debt.
    #[inline]
    fn remaining(&self, debt: u64) -> u64 {
        self.interval.divide(self.tolerance().saturating_sub(debt)).0
    }

    /// When all will have drained.
    fn reset_at(&self, state: &BucketState, now: Timestamp, (seen, debt): (u64, u64)) -> Timestamp {
        if debt > 0 { self.drained_at(state, seen + debt) } else { now }
    }
}

impl BucketState {
    /// When all that was charged has drained, and not before the newest instant that late claims are decided as of.
    pub(super) fn forget_at(&self) -> Timestamp {
        self.tat.max(self.at)
    }
}
