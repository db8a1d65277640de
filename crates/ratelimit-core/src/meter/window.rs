//! The window meter: a count for each segment of time.

use smallvec::SmallVec;

use super::divisor::Divisor;
use super::{Charged, MAX_SEGMENTS, MAX_UNITS, check_period, check_units};
use crate::{LimitError, Mode, Timestamp, Verdict};

/// Counts units in segments of time, and admits what fits with the carried segments.
///
/// | carried segments | algorithm |
/// |---|---|
/// | 0 | fixed window: a segment is the window |
/// | 1 | sliding-window counter: the previous window counts by the fraction of it that is still covered |
/// | p | segmented sliding window of p segments |
///
/// The oldest carried segment is weighted by its overlap with the window that ends now; in the `strict` form it
/// counts whole, so that never more than the limit is admitted in *any* span of p segments.
///
/// Segments begin at whole multiples of their length since the epoch, moved back by `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    limit: u64,
    segment: Divisor,
    offset: u64,
    carried: u32,
    strict: bool,
}

/// What is kept of a [`Window`]: when it was last charged, and the counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// The newest instant at which it was charged.
    pub at: Timestamp,
    /// Units by age: first those of the segment that `at` lies in, last those of the oldest carried one.
    pub counts: SmallVec<[u64; 2]>,
}

/// A window as seen from one instant.
#[derive(Clone, Copy)]
struct Sight {
    /// The instant: the claim's, or the newest at which the window was charged.
    now: Timestamp,
    /// The segment that `now` lies in.
    index: u64,
    /// Nanoseconds since that segment began.
    elapsed: u64,
    /// How many segments have begun since the state was written; if all that was counted has left, one more than are
    /// carried.
    aged: u64,
    /// Units that count whole.
    whole: u64,
    /// Units of the oldest segment, which count by overlap.
    oldest: u64,
}

impl Window {
    /// A window meter; `segment` and `offset` in nanoseconds.
    ///
    /// # Errors
    /// A limit or segment of zero or beyond its bound, a segment or offset that is no whole number of microseconds
    /// (what every server's clock can tell), an offset that is not shorter than the segment, too many segments.
    pub fn new(
        limit: u64,
        segment: u64,
        carried: u32,
        strict: bool,
        offset: u64,
    ) -> Result<Self, LimitError> {
        check_units("quota", limit, MAX_UNITS)?;
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
        // A fixed window carries nothing, so nothing is weighted: it is strict by nature.
        Ok(Self { limit, segment: Divisor::new(segment), offset, carried, strict: strict || carried == 0 })
    }

    /// The most units in a window.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of a segment in nanoseconds, a multiple of 1,000.
    pub fn segment(&self) -> u64 {
        self.segment.get()
    }

    /// How far before a multiple of their length the segments begin, in nanoseconds; a multiple of 1,000.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many earlier segments are carried beside the current one.
    pub fn carried(&self) -> u32 {
        self.carried
    }

    /// Whether the oldest carried segment counts whole. Always so when none is carried.
    pub fn strict(&self) -> bool {
        self.strict
    }

    /// The number of the segment that `instant` lies in, and the nanoseconds since it began.
    #[inline]
    pub fn place(&self, instant: Timestamp) -> (u64, u64) {
        self.segment.divide(instant.as_nanos() + self.offset)
    }

    /// The instant at which the nanoseconds `elapsed` of segment `index` have passed: the inverse of
    /// [`Window::place`]. Instants before the epoch become the epoch.
    #[inline]
    pub fn instant(&self, index: u64, elapsed: u64) -> Timestamp {
        Timestamp::derived(
            index.saturating_mul(self.segment()).saturating_add(elapsed).saturating_sub(self.offset),
        )
    }

    /// The same window, its segments begun at a point that `hash` chooses.
    pub(crate) fn staggered(self, hash: u64) -> Self {
        Self { offset: hash % (self.segment() / 1_000) * 1_000, ..self }
    }

    /// A window without a count.
    pub(super) fn fresh(&self) -> WindowState {
        WindowState { at: Timestamp::EPOCH, counts: SmallVec::from_elem(0, self.carried as usize + 1) }
    }

    pub(super) fn owns(&self, state: &WindowState) -> bool {
        state.counts.len() == self.carried as usize + 1
    }

    #[inline]
    fn sight(&self, state: &WindowState, now: Timestamp) -> Sight {
        let now = now.max(state.at);
        let (index, elapsed) = self.place(now);
        let aged = self.aged(now.as_nanos() - state.at.as_nanos(), elapsed);
        let last = u64::from(self.carried);
        let (mut whole, mut oldest) = (0, 0);
        for (age, count) in (aged..=last).zip(&state.counts) {
            if age < last || self.strict {
                whole += count;
            } else {
                oldest = *count;
            }
        }
        Sight { now, index, elapsed, aged, whole, oldest }
    }

    /// How many segments begin in the `passed` nanoseconds up to an instant that lies `elapsed` nanoseconds in its own.
    #[inline]
    fn aged(&self, passed: u64, elapsed: u64) -> u64 {
        let Some(before) = passed.checked_sub(elapsed).filter(|before| *before > 0) else {
            return 0;
        };
        let (whole, rest) = self.segment.divide(before);
        (whole + u64::from(rest > 0)).min(u64::from(self.carried) + 1)
    }

    /// `oldest * (S - e) <= (L - whole - cost) * S`, in 128 bits.
    pub(super) fn fits(&self, state: &WindowState, cost: u64, now: Timestamp) -> bool {
        cost == 0 || self.sight_fits(&self.sight(state, now), cost)
    }

    #[inline]
    fn sight_fits(&self, sight: &Sight, cost: u64) -> bool {
        let Some(room) = self.limit.checked_sub(sight.whole).and_then(|room| room.checked_sub(cost)) else {
            return false;
        };
        let covered = self.segment() - sight.elapsed;
        u128::from(sight.oldest) * u128::from(covered) <= u128::from(room) * u128::from(self.segment())
    }

    /// One claim from end to end: whether it is admitted, and the verdict.
    #[inline]
    pub(super) fn claim(
        &self,
        state: &mut WindowState,
        cost: u64,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let mut sight = self.sight(state, now);
        let fits = cost == 0 || self.sight_fits(&sight, cost);
        let admitted = fits || mode == Mode::Force;
        if admitted && cost > 0 && mode != Mode::Peek {
            let charged = self.charge_seen(state, &mut sight, cost, now);
            return (true, self.verdict_charged(&sight, now, charged));
        }
        (admitted, self.verdict_seen(state, &sight, cost, now))
    }

    pub(super) fn charge(&self, state: &mut WindowState, cost: u64, now: Timestamp) -> Charged {
        let mut sight = self.sight(state, now);
        self.charge_seen(state, &mut sight, cost, now)
    }

    /// Charges a window that has been looked at; the sight becomes that of the charged window.
    #[inline]
    fn charge_seen(
        &self,
        state: &mut WindowState,
        sight: &mut Sight,
        cost: u64,
        asked_at: Timestamp,
    ) -> Charged {
        let counts = state.counts.as_mut_slice();
        if sight.aged > 0 {
            let shift = usize::try_from(sight.aged).unwrap_or(usize::MAX).min(counts.len());
            counts.rotate_right(shift);
            counts[..shift].fill(0);
            sight.aged = 0;
        }
        let before = counts[0];
        counts[0] = before.saturating_add(cost).min(MAX_UNITS);
        sight.whole += counts[0] - before;
        state.at = sight.now;
        Charged { receipt: sight.now, ready_at: asked_at }
    }

    pub(super) fn refund(&self, state: &mut WindowState, cost: u64, receipt: Timestamp) {
        let age = self.place(state.at).0.checked_sub(self.place(receipt).0);
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
        let sight = self.sight(state, now);
        match charged {
            Some(charged) => Verdict {
                reset_at: self.resets(state, &sight, now),
                ..self.verdict_charged(&sight, now, charged)
            },
            None => self.verdict_seen(state, &sight, cost, now),
        }
    }

    /// The verdict on a charge of some units, from what was seen after it.
    #[inline]
    fn verdict_charged(&self, sight: &Sight, now: Timestamp, charged: Charged) -> Verdict {
        Verdict {
            fits: true,
            limit: self.limit,
            remaining: self.remaining(sight),
            fits_at: Some(now),
            reset_at: self.instant(sight.index + u64::from(self.carried) + 1, 0).max(now),
            ready_at: charged.ready_at,
            receipt: charged.receipt,
        }
    }

    /// The verdict where nothing is charged.
    #[inline]
    fn verdict_seen(&self, state: &WindowState, sight: &Sight, cost: u64, now: Timestamp) -> Verdict {
        let fits = cost == 0 || self.sight_fits(sight, cost);
        Verdict {
            fits,
            limit: self.limit,
            remaining: self.remaining(sight),
            fits_at: if fits { Some(now) } else { self.fits_at(state, sight, cost) },
            reset_at: self.resets(state, sight, now),
            ready_at: now,
            receipt: now,
        }
    }

    /// `L - whole - ceil(oldest * (S - e) / S)`, at least zero.
    #[inline]
    fn remaining(&self, sight: &Sight) -> u64 {
        let rest = self.limit.saturating_sub(sight.whole);
        if sight.oldest == 0 {
            return rest;
        }
        let covered = self.segment() - sight.elapsed;
        let weighted = match sight.oldest.checked_mul(covered) {
            Some(product) => {
                let (whole, part) = self.segment.divide(product);
                whole + u64::from(part > 0)
            }
            None => {
                let product = u128::from(sight.oldest) * u128::from(covered);
                // At most `oldest`, since `covered` is at most `segment`.
                u64::try_from(product.div_ceil(u128::from(self.segment()))).unwrap_or(sight.oldest)
            }
        };
        rest.saturating_sub(weighted)
    }

    /// The earliest instant at which `cost` would fit: segments leave one by one, the oldest first, and within a
    /// segment the weight of the oldest falls evenly.
    fn fits_at(&self, state: &WindowState, sight: &Sight, cost: u64) -> Option<Timestamp> {
        let for_others = self.limit.checked_sub(cost)?;
        let last = u64::from(self.carried);
        let count_of_age = |age: u64| {
            let place = age.checked_sub(sight.aged).and_then(|age| usize::try_from(age).ok());
            place.and_then(|place| state.counts.get(place)).copied().unwrap_or(0)
        };
        let (mut whole, mut oldest) = (sight.whole, sight.oldest);
        for passed in 0..=last + 1 {
            let begin = if passed == 0 { sight.elapsed } else { 0 };
            if passed > 0 && self.strict {
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
        None // not reached: with all segments gone every cost up to the limit fits
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

    /// When the newest segment with a count has left, by what was seen at `now`; `now` if none has a count.
    #[inline]
    fn resets(&self, state: &WindowState, sight: &Sight, now: Timestamp) -> Timestamp {
        let age = (sight.aged..).zip(&state.counts).find(|(_, count)| **count > 0).map(|(age, _)| age);
        match age.and_then(|age| (u64::from(self.carried) + 1).checked_sub(age)) {
            Some(left) => self.instant(sight.index + left, 0).max(now),
            None => now,
        }
    }

    /// When the newest segment with a count has left: from then on the meter is as good as new.
    pub(super) fn reset_at(&self, state: &WindowState) -> Timestamp {
        let Some(age) = state.counts.iter().position(|count| *count > 0) else {
            return Timestamp::EPOCH;
        };
        let newest = self.place(state.at).0.saturating_sub(age as u64);
        self.instant(newest + u64::from(self.carried) + 1, 0)
    }
}
