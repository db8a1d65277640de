//! The recent number of concurrent callers.

/// The recent peak of concurrent callers, for stores that batch claims into shared round trips.
///
/// The current number says little: when a shared round trip ends, all of its callers leave together and return one by
/// one, so each of the first ones would seem to be alone. So this is the peak over the last few hundred callers: each
/// caller that enters reduces the peak by a 256th. After five hundred callers, a peak of 128 has decayed to 18.
///
/// ```
/// use ratelimit_core::kit::RecentPeak;
///
/// let mut callers = RecentPeak::default();
/// (0..20).for_each(|_| callers.enter());
/// (0..20).for_each(|_| callers.leave());
/// callers.enter();
/// assert_eq!(callers.get(), 20);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentPeak {
    present: usize,
    /// In parts of one caller.
    parts: usize,
}

/// One caller is this many parts.
const PARTS: usize = 256;

/// Each caller that enters reduces the peak by one part in this many.
const DECAY: usize = 256;

impl RecentPeak {
    /// Counts a caller that enters.
    pub fn enter(&mut self) {
        self.present = self.present.saturating_add(1);
        let decayed = self.parts - self.parts.div_ceil(DECAY);
        self.parts = decayed.max(self.present.saturating_mul(PARTS));
    }

    /// Counts a caller that leaves.
    pub fn leave(&mut self) {
        self.present = self.present.saturating_sub(1);
    }

    /// Returns the recent peak; at least the number of callers that are present.
    pub fn get(&self) -> usize {
        self.parts.div_ceil(PARTS)
    }
}
