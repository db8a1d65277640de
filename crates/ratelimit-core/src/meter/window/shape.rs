//! What a window is: how it is made, its numbers, and where its segments are.

use smallvec::SmallVec;

use super::{Window, WindowState};
use crate::meter::check::{check_most, check_period};
use crate::meter::divisor::Divisor;
use crate::{LimitError, MAX_SEGMENTS, MAX_UNITS, Timestamp};

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
    pub(in crate::meter) fn fresh(&self) -> WindowState {
        WindowState { at: Timestamp::EPOCH, counts: SmallVec::from_elem(0, self.carried as usize + 1) }
    }

    pub(in crate::meter) fn owns(&self, state: &WindowState) -> bool {
        state.counts.len() == self.carried as usize + 1
    }
}
