//! When a window has room again, and when it is as good as new.

use super::{View, Window, WindowState};
use crate::Timestamp;

impl Window {
    /// The earliest instant at which `cost` fits: segments leave one by one, the oldest first, and within a segment the
    /// weight of the oldest falls evenly.
    pub(super) fn fits_at(&self, counts: &[u64], view: View, cost: u64) -> Option<Timestamp> {
        let for_others = self.limit.checked_sub(cost)?;
        let last = u64::from(self.carried);
        let count_of_age = |age: u64| {
            let place = age.checked_sub(view.segments_since).and_then(|age| usize::try_from(age).ok());
            place.and_then(|place| counts.get(place)).copied().unwrap_or(0)
        };
        let (mut whole, mut oldest) = (view.whole, view.oldest);
        for passed in 0..=last + 1 {
            let begin = if passed == 0 { view.elapsed } else { 0 };
            if passed > 0 && self.strict() {
                whole -= count_of_age(last + 1 - passed);
            } else if passed > 0 {
                oldest = count_of_age(last - passed);
                whole -= oldest;
            }
            if let Some(room) = for_others.checked_sub(whole) {
                let elapsed = begin.max(self.elapsed_until(oldest, room));
                return Some(self.instant(view.index + passed, elapsed));
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
    pub(super) fn resets(&self, counts: &[u64], view: &View, now: Timestamp) -> Timestamp {
        let age = (view.segments_since..).zip(counts).find(|(_, count)| **count > 0).map(|(age, _)| age);
        match age.and_then(|age| (u64::from(self.carried) + 1).checked_sub(age)) {
            Some(left) => self.instant(view.index + left, 0).max(now),
            None => now,
        }
    }

    /// When the latest segment with a count has left. From then on the meter is as good as new.
    pub(in crate::meter) fn reset_at(&self, state: &WindowState) -> Timestamp {
        let Some(age) = state.counts.iter().position(|count| *count > 0) else {
            return Timestamp::EPOCH;
        };
        let newest = self.place(state.at).0.saturating_sub(age as u64);
        self.instant(newest + u64::from(self.carried) + 1, 0)
    }
}
