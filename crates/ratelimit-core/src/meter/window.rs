//! The window meter: a count for each segment of time.

use smallvec::SmallVec;

use super::charged::Charged;
use super::check::{check_most, check_period};
use super::divisor::Divisor;
use crate::{LimitError, MAX_SEGMENTS, MAX_UNITS, Mode, Receipt, Timestamp, Verdict};

/// Counts units per segment of time. A claim fits if its units, those of the current segment and those of the *carried*
/// segments, which are the ones before it, are together within the limit.
///
/// | carried segments | algorithm |
/// |---|---|
/// | 0 | fixed window: a segment is the window |
/// | 1 | sliding-window counter: the previous window counts by the fraction of it that is still covered |
/// | p | segmented sliding window of p segments |
///
/// The oldest carried segment is weighted by its overlap with the window that ends now. In the `strict` form it counts
/// in full, so that never more than the limit is admitted in *any* span of p segments.
///
/// Segments begin `offset` before the whole multiples of their length since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    limit: u64,
    segment: Divisor,
    offset: u64,
    carried: u32,
    /// How many of the carried segments are weighted by overlap: the oldest, or in the strict form none.
    partial: u32,
}

/// The state of a [`Window`]: when it was last charged, and the counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// The latest instant at which it was charged.
    pub at: Timestamp,
    /// Units by age: first those of the segment that contains `at`, last those of the oldest carried one.
    pub counts: SmallVec<[u64; 2]>,
}

/// A window at one instant.
#[derive(Clone, Copy)]
struct Sight {
    /// The instant: the claim's, or the latest at which the window was charged.
    now: Timestamp,
    /// The segment that contains `now`.
    index: u64,
    /// Nanoseconds since that segment began.
    elapsed: u64,
    /// How many segments have begun since the state was written; at most one more than are carried, when no count is left.
    aged: u64,
    /// Units that count in full.
    whole: u64,
    /// Units of the oldest segment, which are weighted by overlap.
    oldest: u64,
    /// The weight of the oldest segment at this instant: `ceil(oldest * (S - elapsed) / S)`.
    weighted: u64,
}

impl Window {
    /// Creates a window meter; `segment` and `offset` in nanoseconds. A limit of zero admits nothing.
    ///
    /// # Errors
    /// If the segment is zero, if it or the limit is beyond its bound, if a segment or offset is not a whole number of
    /// microseconds (the resolution of every server's clock), if the offset is not shorter than the segment, or if there
    /// are too many segments.
    pub fn new(
        limit: u64,
        segment: u64,
        carried: u32,
        strict: bool,
        offset: u64,
    ) -> Result<Self, LimitError> {
        check_most("quota", limit, MAX_UNITS)?;
        check_period("period", segment)?;
        if !segment.is_multiple_of(1_000) || !offset.is_multiple_of(1_000) {
            return Err(LimitError::NotMicroseconds);
        }
        if offset >= segment {
            return Err(LimitError::OffsetTooLong);
        }
        if carried > MAX_SEGMENTS {
            return Err(LimitError::TooManySegments);
        }
        check_period("period", segment.saturating_mul(u64::from(carried.max(1))))?;
        // A fixed window carries nothing, so nothing is weighted: it is always strict.
        let partial = u32::from(!strict && carried > 0);
        Ok(Self { limit, segment: Divisor::new(segment), offset, carried, partial })
    }

    /// The maximum number of units in a window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of a segment in nanoseconds, a multiple of 1,000.
    pub fn segment(&self) -> u64 {
        self.segment.get()
    }

    /// How long before a multiple of their length the segments begin, in nanoseconds; a multiple of 1,000.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many earlier segments are carried in addition to the current one.
    pub fn carried(&self) -> u32 {
        self.carried
    }

    /// Whether the oldest carried segment counts in full. Always so if none is carried.
    pub fn strict(&self) -> bool {
        self.partial == 0
    }

    /// Returns the number of the segment that contains `instant`, and the nanoseconds since that segment began.
    #[inline]
    pub fn place(&self, instant: Timestamp) -> (u64, u64) {
        self.segment.divide(instant.as_nanos() + self.offset)
    }

    /// Returns the instant at which `elapsed` nanoseconds of segment `index` have passed: the inverse of
    /// [`Window::place`]. Instants before the epoch become the epoch.
    #[inline]
    pub fn instant(&self, index: u64, elapsed: u64) -> Timestamp {
        Timestamp::derived(
            index.saturating_mul(self.segment()).saturating_add(elapsed).saturating_sub(self.offset),
        )
    }

    /// The same window, with segments that begin at a point chosen by `hash`.
    pub(crate) fn staggered(self, hash: u64) -> Self {
        Self { offset: hash % (self.segment() / 1_000) * 1_000, ..self }
    }

    /// The state of a window that has counted nothing.
    pub(super) fn fresh(&self) -> WindowState {
        WindowState { at: Timestamp::EPOCH, counts: SmallVec::from_elem(0, self.carried as usize + 1) }
    }

    pub(super) fn owns(&self, state: &WindowState) -> bool {
        state.counts.len() == self.carried as usize + 1
    }

    #[inline(always)]
    fn sight(&self, at: Timestamp, counts: &[u64], now: Timestamp) -> Sight {
        let now = now.max(at);
        let (index, elapsed) = self.place(now);
        let passed = now.as_nanos() - at.as_nanos();
        let aged = if passed <= elapsed { 0 } else { self.begun_in(passed - elapsed) };
        let (whole, oldest) = self.seen(counts, aged);
        Sight { now, index, elapsed, aged, whole, oldest, weighted: self.weighted(oldest, elapsed) }
    }

    /// Units that count in full, and those of the oldest segment, which are weighted by overlap.
    #[inline(always)]
    fn seen(&self, counts: &[u64], aged: u64) -> (u64, u64) {
        if self.carried == 1 && self.partial == 1 {
            // The general case, specialised for the most common windows.
            let count = |place: usize| counts.get(place).copied().unwrap_or(0);
            return match aged {
                0 => (count(0), count(1)),
                1 => (0, count(0)),
                _ => (0, 0),
            };
        }
        self.seen_by_age(counts, aged)
    }

    #[inline(never)]
    fn seen_by_age(&self, counts: &[u64], aged: u64) -> (u64, u64) {
        // The ages that still count are `aged` and up; there may be more counts.
        let ages = usize::try_from(u64::from(self.carried) + 1 - aged).unwrap_or(usize::MAX);
        let seen = &counts[..ages.min(counts.len())];
        match seen.split_last() {
            Some((oldest, others)) if !self.strict() && seen.len() == ages => (others.iter().sum(), *oldest),
            _ => (seen.iter().sum(), 0),
        }
    }

    /// How many segments begin within `nanos` before the beginning of a segment, including that one: at least one.
    fn begun_in(&self, nanos: u64) -> u64 {
        let (whole, rest) = self.segment.divide(nanos);
        (whole + u64::from(rest > 0)).min(u64::from(self.carried) + 1)
    }

    /// The weight of `oldest` when `elapsed` nanoseconds of a segment have passed.
    #[inline]
    fn weighted(&self, oldest: u64, elapsed: u64) -> u64 {
        if oldest == 0 {
            return 0;
        }
        let covered = self.segment() - elapsed;
        match oldest.checked_mul(covered) {
            Some(product) => {
                let (whole, part) = self.segment.divide(product);
                whole + u64::from(part > 0)
            }
            None => self.weighted_in_full(oldest, covered),
        }
    }

    #[cold]
    fn weighted_in_full(&self, oldest: u64, covered: u64) -> u64 {
        let product = u128::from(oldest) * u128::from(covered);
        // At most `oldest`, since `covered` is at most `segment`.
        u64::try_from(product.div_ceil(u128::from(self.segment()))).unwrap_or(oldest)
    }

    pub(super) fn fits(&self, state: &WindowState, cost: u64, now: Timestamp) -> bool {
        cost <= self.remaining(&self.sight(state.at, &state.counts, now))
    }

    /// Decides one claim on counts that you store yourself, and charges it if it is admitted and `mode` is not
    /// [`Mode::Peek`]. Returns whether it is admitted, and the verdict.
    ///
    /// `at` and `counts` are those of a [`WindowState`] that this window [owns](crate::meter::Meter::owns). `counts` may have
    /// further places, which do not count.
    ///
    /// ```
    /// use ratelimit_core::Timestamp;
    /// use ratelimit_core::meter::Window;
    /// use ratelimit_core::store::Mode;
    ///
    /// let window = Window::new(2, 60_000_000_000, 1, false, 0)?; // two in a minute, one segment carried
    /// let (mut at, mut counts) = (Timestamp::EPOCH, [0, 0]);
    /// let mut claim = || window.claim(&mut at, &mut counts, 1, Timestamp::from_secs(30), Mode::Charge).0;
    /// assert_eq!([claim(), claim(), claim()], [true, true, false]);
    /// assert_eq!((at, counts), (Timestamp::from_secs(30), [2, 0]));
    /// # Ok::<(), ratelimit_core::LimitError>(())
    /// ```
    #[inline(always)]
    pub fn claim(
        &self,
        at: &mut Timestamp,
        counts: &mut [u64],
        cost: u64,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let mut sight = self.sight(*at, counts, now);
        let admitted = cost <= self.remaining(&sight) || mode == Mode::Force;
        if admitted && cost > 0 && mode != Mode::Peek {
            let charged = self.charge_seen(at, counts, &mut sight, cost, now, mode);
            return (true, self.verdict_charged(&sight, now, charged));
        }
        (admitted, self.verdict_seen(counts, &sight, cost, now))
    }

    pub(super) fn charge(&self, state: &mut WindowState, cost: u64, now: Timestamp) -> Charged {
        let WindowState { at, counts } = state;
        let mut sight = self.sight(*at, counts, now);
        self.charge_seen(at, counts, &mut sight, cost, now, Mode::Force)
    }

    /// Charges a window whose counts have been read, and updates `sight` accordingly.
    #[inline]
    fn charge_seen(
        &self,
        at: &mut Timestamp,
        counts: &mut [u64],
        sight: &mut Sight,
        cost: u64,
        asked_at: Timestamp,
        mode: Mode,
    ) -> Charged {
        if sight.aged > 0 {
            let shift = usize::try_from(sight.aged).unwrap_or(usize::MAX).min(counts.len());
            counts.rotate_right(shift);
            counts[..shift].fill(0);
            sight.aged = 0;
        }
        if let [newest, ..] = counts {
            let before = *newest;
            // What fits is within the limit; only a forced charge can be too large to count.
            *newest = match mode {
                Mode::Force => before.saturating_add(cost).min(MAX_UNITS),
                Mode::Charge | Mode::Peek => before + cost,
            };
            sight.whole += *newest - before;
        }
        *at = sight.now;
        Charged { receipt: Receipt::at(sight.now), ready_at: asked_at }
    }

    pub(super) fn refund(&self, state: &mut WindowState, cost: u64, receipt: Receipt) {
        let age = self.place(state.at).0.checked_sub(self.place(receipt.instant()).0);
        let age = age.and_then(|age| usize::try_from(age).ok());
        if let Some(count) = age.and_then(|age| state.counts.get_mut(age)) {
            *count = count.saturating_sub(cost);
        }
    }

    pub(super) fn verdict(
        &self,
        state: &WindowState,
        cost: u64,
        now: Timestamp,
        charged: Option<Charged>,
    ) -> Verdict {
        let WindowState { at, counts } = state;
        let sight = self.sight(*at, counts, now);
        match charged {
            Some(charged) => Verdict {
                reset_at: self.resets(counts, &sight, now),
                ..self.verdict_charged(&sight, now, charged)
            },
            None => self.verdict_seen(counts, &sight, cost, now),
        }
    }

    /// The verdict on a charge, from the counts after it.
    #[inline]
    fn verdict_charged(&self, sight: &Sight, now: Timestamp, charged: Charged) -> Verdict {
        Verdict {
            fits: true,
            limit: self.limit,
            remaining: self.remaining(sight),
            fits_at: Some(now),
            reset_at: Timestamp::derived(sight.now.as_nanos() + self.memory() - sight.elapsed),
            ready_at: charged.ready_at,
            receipt: charged.receipt,
        }
    }

    /// The verdict if nothing is charged.
    #[inline]
    fn verdict_seen(&self, counts: &[u64], sight: &Sight, cost: u64, now: Timestamp) -> Verdict {
        let remaining = self.remaining(sight);
        let fits = cost <= remaining;
        Verdict {
            fits,
            limit: self.limit,
            remaining,
            fits_at: if fits { Some(now) } else { self.fits_at(counts, *sight, cost) },
            reset_at: self.resets(counts, sight, now),
            ready_at: now,
            receipt: Receipt::at(now),
        }
    }

    /// What fits: `L - whole - ceil(oldest * (S - e) / S)`, at least zero. Since room is a whole number, `oldest * (S -
    /// e) <= room * S` is equivalent to `ceil(oldest * (S - e) / S) <= room`.
    #[inline]
    fn remaining(&self, sight: &Sight) -> u64 {
        self.limit.saturating_sub(sight.whole + sight.weighted)
    }

    /// How long a unit counts after the beginning of its segment.
    #[inline]
    fn memory(&self) -> u64 {
        self.segment() * (u64::from(self.carried) + 1)
    }

    /// The earliest instant at which `cost` fits: segments leave one by one, the oldest first, and within a segment the
    /// weight of the oldest falls evenly.
    fn fits_at(&self, counts: &[u64], sight: Sight, cost: u64) -> Option<Timestamp> {
        let for_others = self.limit.checked_sub(cost)?;
        let last = u64::from(self.carried);
        let count_of_age = |age: u64| {
            let place = age.checked_sub(sight.aged).and_then(|age| usize::try_from(age).ok());
            place.and_then(|place| counts.get(place)).copied().unwrap_or(0)
        };
        let (mut whole, mut oldest) = (sight.whole, sight.oldest);
        for passed in 0..=last + 1 {
            let begin = if passed == 0 { sight.elapsed } else { 0 };
            if passed > 0 && self.strict() {
                whole -= count_of_age(last + 1 - passed);
            } else if passed > 0 {
                oldest = count_of_age(last - passed);
                whole -= oldest;
            }
            if let Some(room) = for_others.checked_sub(whole) {
                let elapsed = begin.max(self.elapsed_until(oldest, room));
                return Some(self.instant(sight.index + passed, elapsed));
            }
        }
        None // not reached: with all segments gone, every cost up to the limit fits
    }

    /// The earliest point of a segment at which `oldest`, weighted, is at most `room`: `S - floor(room * S / oldest)`.
    fn elapsed_until(&self, oldest: u64, room: u64) -> u64 {
        if oldest <= room {
            return 0;
        }
        let segment = self.segment();
        let covered = match room.checked_mul(segment) {
            Some(product) => product / oldest,
            None => {
                let covered = u128::from(room) * u128::from(segment) / u128::from(oldest);
                u64::try_from(covered).unwrap_or(segment)
            }
        };
        segment - covered
    }

    /// When the latest segment with a count has left, as seen at `now`; `now` if no segment has a count.
    #[inline]
    fn resets(&self, counts: &[u64], sight: &Sight, now: Timestamp) -> Timestamp {
        let age = (sight.aged..).zip(counts).find(|(_, count)| **count > 0).map(|(age, _)| age);
        match age.and_then(|age| (u64::from(self.carried) + 1).checked_sub(age)) {
            Some(left) => self.instant(sight.index + left, 0).max(now),
            None => now,
        }
    }

    /// When the latest segment with a count has left. From then on the meter is as good as new.
    pub(super) fn reset_at(&self, state: &WindowState) -> Timestamp {
        let Some(age) = state.counts.iter().position(|count| *count > 0) else {
            return Timestamp::EPOCH;
        };
        let newest = self.place(state.at).0.saturating_sub(age as u64);
        self.instant(newest + u64::from(self.carried) + 1, 0)
    }
}
