//! The bucket meter: one instant, the theoretical arrival time (TAT) of the generic cell rate algorithm.

use std::slice::from_ref;

use smallvec::SmallVec;

use super::bucket_state::{BucketState, Debt, Owed, drain_time, latest, left_of};
use super::charged::Charged;
use super::check::{check_period, check_units};
use super::divisor::Divisor;
use crate::{LimitError, MAX_RATES, MAX_UNITS, Mode, Receipt, Timestamp, Verdict};

/// The maximum of `burst x interval`: 2<sup>61</sup> ns, about 73 years.
const MAX_TOLERANCE: u64 = 1 << 61;

/// The step of a bucket from which nothing drains.
const NEVER: u64 = i64::MAX as u64;

/// The immediate units of a bucket that is not a queue.
const ALL: u64 = u64::MAX;

/// A limit cannot be built if its rate is off by more than one part in this many.
const PRECISION: u128 = 1_000;

/// Counts units as time: each takes `interval` nanoseconds to drain, and up to `burst` of them may be in the bucket.
///
/// A claim is admitted if and only if `max(tat, now) + cost x interval <= now + burst x interval` (the generic cell
/// rate algorithm of ITU-T I.371, as a virtual schedule). Token bucket, leaky bucket as a meter and leaky bucket as a
/// queue are all this meter.
///
/// In a [queue](Self::with_immediate), some units of the burst are immediate. An admitted claim has to wait for its turn:
/// until the bucket has drained so far that its units fit into the immediate ones.
///
/// A bucket [in steps](Self::in_steps) is decided as of the beginning of the current step. So its units drain at the ends
/// of steps, all units of a step at once. Steps are counted from the charge that found the bucket empty.
///
/// If limits of several rates charge one bucket, each unit drains at the rate of the limit that it was charged under,
/// and every limit counts all units in the bucket; see [`BucketState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    interval: Divisor,
    burst: u64,
    /// How many units may be used at once, without waiting for a turn; `ALL` if this is not a queue.
    immediate: u64,
    /// The length of a step in nanoseconds; zero if units drain continuously.
    step: u64,
}

impl Bucket {
    /// Creates a bucket meter for `quota` units per `period` (nanoseconds), which admits up to `burst` at once.
    ///
    /// The interval is rounded up to whole nanoseconds, so the rate is never exceeded in the long run.
    ///
    /// # Errors
    /// If a number is zero or beyond its bound, if whole nanoseconds cannot represent the rate within 0.1 %, or if the
    /// burst would take more than 73 years to drain.
    pub fn new(quota: u64, period: u64, burst: u64) -> Result<Self, LimitError> {
        check_units("quota", quota, MAX_UNITS)?;
        check_units("burst", burst, MAX_UNITS)?;
        check_period("period", period)?;
        let interval = period.div_ceil(quota);
        let rounded_by = u128::from(interval) * u128::from(quota) - u128::from(period);
        if rounded_by * PRECISION > u128::from(period) {
            return Err(LimitError::RateTooHigh);
        }
        Self::with_interval(interval, burst)
    }

    /// Creates a bucket meter that drains one unit every `interval` nanoseconds.
    ///
    /// # Errors
    /// If a number is zero or beyond its bound, or if the burst would take more than 73 years to drain.
    pub fn with_interval(interval: u64, burst: u64) -> Result<Self, LimitError> {
        check_period("period", interval)?;
        check_units("burst", burst, MAX_UNITS)?;
        if interval.checked_mul(burst).is_none_or(|tolerance| tolerance > MAX_TOLERANCE) {
            return Err(LimitError::BurstTooLong);
        }
        Ok(Self { interval: Divisor::new(interval), burst, immediate: ALL, step: 0 })
    }

    /// Makes this meter a queue: up to `units` units may be used at once, and the rest of the burst waits for its turn.
    /// Zero counts as one; with `u64::MAX` the meter is not a queue.
    ///
    /// A claim that costs more than `units` waits until all units before it have drained.
    ///
    /// ```
    /// use ratelimit_core::Timestamp;
    /// use ratelimit_core::meter::Bucket;
    /// use ratelimit_core::store::Mode;
    ///
    /// let bucket = Bucket::new(60, 60_000_000_000, 4)?.with_immediate(2); // one a second, two at once, two may wait
    /// let (mut at, mut tat) = (Timestamp::EPOCH, Timestamp::EPOCH);
    /// let now = Timestamp::from_secs(30);
    /// let mut claim = || bucket.claim(&mut at, &mut tat, 1, now, Mode::Charge);
    /// let delay = |(admitted, verdict): (bool, ratelimit_core::store::Verdict)| admitted.then(|| verdict.ready_at.since(now).as_secs());
    /// assert_eq!([(); 5].map(|()| delay(claim())), [Some(0), Some(0), Some(1), Some(2), None]);
    /// # Ok::<(), ratelimit_core::LimitError>(())
    /// ```
    #[must_use]
    pub fn with_immediate(self, units: u64) -> Self {
        Self { immediate: units.max(1), ..self }
    }

    /// Creates a bucket meter whose units drain in steps: `units` of them at the end of each `step` (nanoseconds),
    /// counted from the charge that found the bucket empty. With a burst of `units`, this is a fixed window that begins
    /// with the first charge.
    ///
    /// If the burst is larger than `units`, the step is rounded up to a multiple of `units` nanoseconds.
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn in_steps(units: u64, step: u64, burst: u64) -> Result<Self, LimitError> {
        let bucket = Self::new(units, step, burst)?;
        if burst > units {
            return Ok(Self { step: bucket.interval() * units, ..bucket });
        }
        // The whole burst drains in one step, so the interval may be rounded down. Then the step is the same for each number
        // of units, and what one limit has charged has drained when the step of another ends.
        if u128::from(step % units) * PRECISION > u128::from(step) {
            return Err(LimitError::RateTooHigh);
        }
        Ok(Self { step, ..Self::with_interval(step / units, burst)? })
    }

    /// Creates a bucket meter from which nothing drains: it admits `units` in total.
    ///
    /// # Errors
    /// If the number is zero or beyond its bound.
    pub fn in_total(units: u64) -> Result<Self, LimitError> {
        check_units("quota", units, MAX_UNITS)?;
        Ok(Self { step: NEVER, ..Self::with_interval(1, units)? })
    }

    /// Creates a bucket meter with a burst of zero: a gate. A claim of cost zero fits if and only if the bucket is empty,
    /// and nothing else fits. Use it to test a bucket that other claims charge, as bans do.
    ///
    /// # Errors
    /// If the interval is zero or longer than ten years.
    pub fn gate(interval: u64) -> Result<Self, LimitError> {
        check_period("period", interval)?;
        Ok(Self { interval: Divisor::new(interval), burst: 0, immediate: ALL, step: 0 })
    }

    /// How long one unit takes to drain, in nanoseconds.
    pub fn interval(&self) -> u64 {
        self.interval.get()
    }

    /// The maximum number of units at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// How many units may be used at once, without waiting for a turn. `u64::MAX` if this is not a queue.
    pub fn immediate(&self) -> u64 {
        self.immediate
    }

    /// Whether an admitted claim may have to wait for its turn.
    #[inline]
    pub fn is_queue(&self) -> bool {
        self.immediate != ALL
    }

    /// The length of a [step](Self::in_steps) in nanoseconds; zero if units drain continuously, 2<sup>63</sup> - 1 if they
    /// [never](Self::in_total) do.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the same meter with another interval and burst; its step and its immediate units stay.
    ///
    /// # Errors
    /// Like [`with_interval`](Self::with_interval).
    pub fn with_rate(&self, interval: u64, burst: u64) -> Result<Self, LimitError> {
        Ok(Self { step: self.step, immediate: self.immediate, ..Self::with_interval(interval, burst)? })
    }

    /// The same meter with the largest burst that it can have, and not as a queue.
    pub(super) fn widest(&self) -> Self {
        let burst = (MAX_TOLERANCE / self.interval()).min(MAX_UNITS);
        Self { burst, immediate: ALL, ..*self }
    }

    /// How long a full bucket takes to drain, in nanoseconds.
    pub fn tolerance(&self) -> u64 {
        self.interval() * self.burst // bounded when it was built
    }

    pub(super) fn fresh() -> BucketState {
        BucketState { at: Timestamp::EPOCH, debts: SmallVec::new() }
    }

    /// Decides one claim on a bucket with one debt that drains at this meter's interval, and charges it if it is admitted
    /// and `mode` is not [`Mode::Peek`]. Returns whether it is admitted, and the verdict.
    ///
    /// `at` and `tat` are those of the bucket's [`BucketState`]; for a fresh bucket, any instants in the past.
    ///
    /// ```
    /// use ratelimit_core::Timestamp;
    /// use ratelimit_core::meter::Bucket;
    /// use ratelimit_core::store::Mode;
    ///
    /// let bucket = Bucket::new(60, 60_000_000_000, 2)?; // one a second, two at once
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
        let mut debt = Debt::only(*tat, self.interval());
        let seen = self.seen(*at, from_ref(&debt), now);
        let fits = self.has_room(from_ref(&debt), cost, seen);
        let admitted = fits || mode == Mode::Force;
        if !admitted || cost == 0 || mode == Mode::Peek {
            return (admitted, self.figures(*at, from_ref(&debt), seen, (cost, fits), now, None));
        }
        let ready_at = self.turn(*at, from_ref(&debt), cost, seen, now);
        debt.restart_if_drained(seen);
        debt.add(&[], cost, seen);
        let receipt = Receipt::at(debt.lengthen_line(cost, seen));
        (*at, *tat) = (Timestamp::derived(seen), debt.tat);
        let charged = Some(Charged { receipt, ready_at });
        (true, self.figures(*at, from_ref(&debt), seen, (cost, true), now, charged))
    }

    /// The instant as of which a bucket in steps is decided: the beginning of the step, or `now` if it is empty then.
    /// `tat` is the latest one of its debts.
    #[inline(never)]
    fn step_begin(&self, at: Timestamp, tat: Timestamp, now: Timestamp) -> Timestamp {
        let now = now.max(at);
        let begin = now.as_nanos() - (now.as_nanos() - at.as_nanos()) % self.step;
        if tat.as_nanos() > begin { Timestamp::derived(begin) } else { now }
    }

    /// The end of the step that contains an instant, if steps are counted from `at`; `None` if it does not end.
    #[inline(never)]
    fn step_end(&self, at: Timestamp, instant: Timestamp) -> Option<Timestamp> {
        let steps = instant.as_nanos().saturating_sub(at.as_nanos()).div_ceil(self.step);
        let end = steps.checked_mul(self.step)?.checked_add(at.as_nanos())?;
        (end < NEVER).then(|| Timestamp::derived(end))
    }

    /// When the units of a debt have drained that ends at `instant`: then, or in a bucket in steps at the end of that step.
    /// `None` if they never do.
    fn drained(&self, at: Timestamp, instant: Timestamp) -> Option<Timestamp> {
        if self.step > 0 { self.step_end(at, instant) } else { Some(instant) }
    }

    /// The instant as of which a claim at `now` is decided.
    #[inline(always)]
    fn seen(&self, at: Timestamp, debts: &[Debt], now: Timestamp) -> u64 {
        if self.step > 0 {
            return self.step_begin(at, latest(debts).unwrap_or(Timestamp::EPOCH), now).as_nanos();
        }
        now.max(at).as_nanos()
    }

    /// Whether [`Bucket::claim`] can decide on this state.
    pub(super) fn has_one_rate_in(&self, state: &BucketState) -> bool {
        state.only_debt().is_some_and(|debt| debt.interval == self.interval())
    }

    pub(super) fn fits(&self, state: &BucketState, cost: u64, now: Timestamp) -> bool {
        self.has_room(&state.debts, cost, self.seen(state.at, &state.debts, now))
    }

    /// Whether this cost fits beside these debts. A cost of zero always does, except at a gate.
    #[inline(always)]
    fn has_room(&self, debts: &[Debt], cost: u64, seen: u64) -> bool {
        if cost == 0 && self.burst > 0 {
            return true;
        }
        let Some(room) = self.burst.checked_sub(cost) else { return false };
        debts.iter().all(|debt| debt.left(seen) <= room.saturating_mul(debt.interval))
    }

    pub(super) fn charge(&self, state: &mut BucketState, cost: u64, now: Timestamp) -> Charged {
        let seen = self.seen(state.at, &state.debts, now);
        let ready_at = self.turn(state.at, &state.debts, cost, seen, now);
        state.at = Timestamp::derived(seen);
        state.debts.retain(|debt| debt.left(seen) > 0);
        let debt_place = state.place(self.interval()).unwrap_or_else(|place| {
            state.debts.insert(place, Debt::only(state.at, self.interval()));
            place
        });
        for place in 0..=debt_place {
            if let [debt, slower @ ..] = &mut state.debts[place..] {
                debt.add(slower, cost, seen);
            }
        }
        let receipt = Receipt::at(state.debts[debt_place].lengthen_line(cost, seen));
        if state.debts.len() > MAX_RATES {
            // The units of the removed debt are in the first debt as well, and drain at the rate of that one.
            state.debts.remove(1);
        }
        Charged { receipt, ready_at }
    }

    /// When units that are claimed `now` may be used. In a queue, this is when they fit into the immediate units; if
    /// there are more of them, when all units before them have drained. Units of slower rates count as draining at this
    /// meter's rate. A cost of zero needs no turn.
    #[inline(always)]
    fn turn(&self, at: Timestamp, debts: &[Debt], cost: u64, seen: u64, now: Timestamp) -> Timestamp {
        if self.is_queue() && cost > 0 { self.turn_in_queue(at, debts, cost, seen, now) } else { now }
    }

    #[inline(never)]
    fn turn_in_queue(
        &self,
        at: Timestamp,
        debts: &[Debt],
        cost: u64,
        seen: u64,
        now: Timestamp,
    ) -> Timestamp {
        let (faster, rest) = debts.split_at(debts.partition_point(|debt| debt.interval < self.interval()));
        let faster = faster.iter().map(|debt| self.wait(debt.left(seen), debt.interval, cost)).max();
        let wait_for_rest = self.wait(left_of(rest, self.interval(), seen), self.interval(), cost);
        let wait = wait_for_rest.max(faster.unwrap_or(0));
        if wait == 0 {
            return now;
        }
        self.drained(at, Timestamp::derived(seen + wait)).unwrap_or(Timestamp::MAX)
    }

    /// How long a claim waits until it fits into the immediate units beside a debt of this interval.
    fn wait(&self, left: u64, interval: u64, cost: u64) -> u64 {
        left.saturating_sub(drain_time(self.immediate.saturating_sub(cost), interval))
    }

    /// The largest debt, in nanoseconds, with which nobody is waiting for a turn; `u64::MAX` if this is not a queue.
    ///
    /// With a larger debt, a [refund](super::Meter::refund) returns nothing if units were charged after those that it
    /// refunds. Requests that wait keep their turns, so the returned units would admit another request at the same time
    /// as one of them. If a queue has units of several rates, a refund never returns any.
    pub fn unqueued(&self) -> u64 {
        if self.is_queue() { drain_time(self.immediate, self.interval()) } else { u64::MAX }
    }

    /// Whether a refund would give away turns of other requests. `since` is the drain time of the units that were charged
    /// at this rate after those to refund.
    fn has_turns(&self, state: &BucketState, since: u64, seen: u64) -> bool {
        match &state.debts[..] {
            [debt] => since > 0 && debt.left(seen) > self.unqueued(),
            _ => self.is_queue(),
        }
    }

    /// Units of one rate drain in the order in which they were charged: they form a line. So the part of a charge that
    /// has not drained is what the line still has before the receipt of the charge.
    ///
    /// In a bucket in steps, the request that began the step may be the one that is refunded. The units behind it may have
    /// come at any time up to `now`, so the step begins anew at `now`.
    pub(super) fn refund(&self, state: &mut BucketState, cost: u64, receipt: Receipt, now: Timestamp) {
        let Ok(debt_place) = state.place(self.interval()) else { return };
        let seen = self.seen(state.at, &state.debts, now);
        let line = state.debts[debt_place].receipt.as_nanos();
        let there = state.left_at_rate(debt_place, seen);
        let since = line.saturating_sub(receipt.instant().as_nanos());
        let before = there.saturating_sub(since);
        let back = Owed { time: drain_time(cost, self.interval()).min(before), interval: self.interval() };
        if back.time == 0 || self.has_turns(state, since, seen) {
            return;
        }
        for debt in &mut state.debts[..=debt_place] {
            let left = debt.left(seen).saturating_sub(back.whole_nanos(debt.interval));
            debt.tat = Timestamp::derived(seen + left);
        }
        let ends = self.step > 0 && self.step < NEVER;
        if ends && back.time == before && state.tat().is_some_and(|tat| tat.as_nanos() > seen) {
            // The line stays as long as if the refunded units had drained, so the receipts of those behind them hold.
            let begin = now.max(state.at);
            for debt in &mut state.debts {
                debt.tat = Timestamp::derived(begin.as_nanos() + debt.left(seen));
            }
            state.at = begin;
        } else {
            state.debts[debt_place].receipt = Timestamp::derived(line.saturating_sub(back.time));
        }
    }

    pub(super) fn verdict(
        &self,
        state: &BucketState,
        cost: u64,
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let seen = self.seen(state.at, &state.debts, now);
        let fits = charged.is_some() || self.has_room(&state.debts, cost, seen);
        self.figures(state.at, &state.debts, seen, (cost, fits), now, charged)
    }

    /// Computes the figures of an answer from the state after the decision.
    #[inline(always)]
    fn figures(
        &self,
        at: Timestamp,
        debts: &[Debt],
        seen: u64,
        (cost, fits): (u64, bool),
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let fits_at = || {
            let room = self.burst.checked_sub(cost)?;
            let fits_at =
                |debt: &Debt| debt.tat.as_nanos().saturating_sub(room.saturating_mul(debt.interval));
            let instant = debts.iter().map(fits_at).max().map(Timestamp::derived)?;
            self.drained(at, instant)
        };
        let units = debts.iter().map(|debt| self.units(debt, seen)).fold(0, u64::max);
        Verdict {
            fits,
            limit: self.burst,
            remaining: self.burst.saturating_sub(units),
            fits_at: if fits { Some(now) } else { fits_at() },
            reset_at: match latest(debts).filter(|tat| tat.as_nanos() > seen) {
                Some(tat) => self.drained(at, tat).unwrap_or(Timestamp::MAX),
                None => now,
            },
            ready_at: charged
                .map_or_else(|| self.turn(at, debts, cost, seen, now), |charged| charged.ready_at),
            receipt: charged.map_or(Receipt::at(now), |charged| charged.receipt),
        }
    }

    /// The number of units in this debt, counting one that has partly drained in full.
    #[inline(always)]
    fn units(&self, debt: &Debt, seen: u64) -> u64 {
        let left = debt.left(seen);
        if debt.interval != self.interval() {
            return left.div_ceil(debt.interval);
        }
        let (whole, part) = self.interval.divide(left);
        whole + u64::from(part > 0)
    }

    /// When all units have drained, but not before `at`, because older claims are decided as of `at`.
    pub(super) fn forget_at(&self, state: &BucketState) -> Timestamp {
        let Some(tat) = state.tat().filter(|tat| *tat > state.at) else { return state.at };
        self.drained(state.at, tat).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests;
