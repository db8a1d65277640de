//! The window meter: a count for each segment of time.

mod general;
mod instants;
mod shape;
mod steps;

use smallvec::SmallVec;

use super::divisor::Divisor;
use crate::{MAX_UNITS, Mode, Receipt, Timestamp, Verdict};

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
struct View {
    /// The instant: the claim's, or the latest at which the window was charged.
    now: Timestamp,
    /// The segment that contains `now`.
    index: u64,
    /// Nanoseconds since that segment began.
    elapsed: u64,
    /// How many segments have begun since the state was written; at most one more than are carried, when no count is left.
    segments_since: u64,
    /// Units that count in full.
    whole: u64,
    /// Units of the oldest segment, which are weighted by overlap.
    oldest: u64,
    /// The weight of the oldest segment at this instant: `ceil(oldest * (S - elapsed) / S)`.
    weighted: u64,
}

impl Window {
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
        let mut view = self.view(*at, counts, now);
        let admitted = cost <= self.remaining(&view) || mode == Mode::Force;
        if admitted && cost > 0 && mode != Mode::Peek {
            self.charge_seen(at, counts, &mut view, cost, mode);
            return (true, self.verdict_if_charged(&view, now));
        }
        (admitted, self.verdict_if_not(counts, &view, cost, now))
    }

    /// The window at `now`, or at its latest charge if that is later.
    #[inline(always)]
    fn view(&self, at: Timestamp, counts: &[u64], now: Timestamp) -> View {
        let now = now.max(at);
        let (index, elapsed) = self.place(now);
        let passed = now.as_nanos() - at.as_nanos();
        let segments_since = if passed <= elapsed { 0 } else { self.begun_in(passed - elapsed) };
        let (whole, oldest) = self.seen(counts, segments_since);
        View { now, index, elapsed, segments_since, whole, oldest, weighted: self.weighted(oldest, elapsed) }
    }

    /// Returns the number of the segment that contains `instant`, and the nanoseconds since that segment began.
    #[inline]
    pub fn place(&self, instant: Timestamp) -> (u64, u64) {
        // Quotient and remainder.
        self.segment.divide(instant.as_nanos() + self.offset)
    }

    /// Units that count in full, and those of the oldest segment, which are weighted by overlap.
    #[inline(always)]
    fn seen(&self, counts: &[u64], segments_since: u64) -> (u64, u64) {
        if self.carried == 1 && self.partial == 1 {
            // What `seen_by_age` returns for the most common windows.
            let count = |place: usize| counts.get(place).copied().unwrap_or(0);
            return match segments_since {
                0 => (count(0), count(1)),
                1 => (0, count(0)),
                _ => (0, 0),
            };
        }
        self.seen_by_age(counts, segments_since)
    }

    /// How many segments have begun since an instant `nanos` before the current segment's start: at least one, the current
    /// one. At most one more than are carried.
    fn begun_in(&self, nanos: u64) -> u64 {
        let (whole, rest) = self.segment.divide(nanos); // quotient and remainder
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
                let (whole, part) = self.segment.divide(product); // quotient and remainder
                whole + u64::from(part > 0)
            }
            None => self.weighted_in_full(oldest, covered),
        }
    }

    /// What fits: `L - whole - ceil(oldest * (S - e) / S)`, at least zero. Since room is a whole number, `oldest * (S -
    /// e) <= room * S` is equivalent to `ceil(oldest * (S - e) / S) <= room`.
    #[inline]
    fn remaining(&self, view: &View) -> u64 {
        self.limit.saturating_sub(view.whole + view.weighted)
    }

    /// Charges a window whose counts have been read, and updates `view` accordingly.
    #[inline]
    fn charge_seen(&self, at: &mut Timestamp, counts: &mut [u64], view: &mut View, cost: u64, mode: Mode) {
        if view.segments_since > 0 {
            let shift = usize::try_from(view.segments_since).unwrap_or(usize::MAX).min(counts.len());
            counts.rotate_right(shift);
            counts[..shift].fill(0);
            view.segments_since = 0;
        }
        if let [newest, ..] = counts {
            let before = *newest;
            // What fits is within the limit; only a forced charge can be too large to count.
            *newest = match mode {
                Mode::Force => before.saturating_add(cost).min(MAX_UNITS),
                Mode::Charge | Mode::Peek => before + cost,
            };
            view.whole += *newest - before;
        }
        *at = view.now;
    }

    /// The verdict on a charge, from the counts after it.
    #[inline]
    fn verdict_if_charged(&self, view: &View, now: Timestamp) -> Verdict {
        Verdict {
            fits: true,
            limit: self.limit,
            remaining: self.remaining(view),
            fits_at: Some(now),
            reset_at: Timestamp::derived(view.now.as_nanos() + self.memory() - view.elapsed),
            ready_at: now,
            receipt: Receipt::at(view.now),
        }
    }

    /// The verdict if nothing is charged.
    #[inline]
    fn verdict_if_not(&self, counts: &[u64], view: &View, cost: u64, now: Timestamp) -> Verdict {
        let remaining = self.remaining(view);
        let fits = cost <= remaining;
        Verdict {
            fits,
            limit: self.limit,
            remaining,
            fits_at: if fits { Some(now) } else { self.fits_at(counts, *view, cost) },
            reset_at: self.resets(counts, view, now),
            ready_at: now,
            receipt: Receipt::at(now),
        }
    }

    /// How long a unit counts after the beginning of its segment.
    #[inline]
    fn memory(&self) -> u64 {
        self.segment() * (u64::from(self.carried) + 1)
    }
}
