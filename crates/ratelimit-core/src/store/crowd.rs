//! How many callers there have lately been at once.

/// The most callers that have lately been there at once, for stores that let claims share trips.
///
/// How many there are just now tells little: when a shared trip is back, all that it carried leave together and return one
/// by one, and each of the first would think itself alone. So this is the most of the last few hundred: with each caller that
/// comes, those of before count for a 256th less. A crowd of 128 is one of 16 after five hundred callers.
///
/// ```
/// use ratelimit_core::Crowd;
///
/// let mut crowd = Crowd::default();
/// (0..20).for_each(|_| crowd.come());
/// (0..20).for_each(|_| crowd.leave());
/// crowd.come();
/// assert_eq!(crowd.size(), 20);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    present: usize,
    /// In parts of one caller.
    parts: usize,
}

/// A caller is in so many parts.
const PARTS: usize = 256;

/// With each caller that comes, the crowd of before is smaller by one part of so many.
const LASTING: usize = 256;

impl Crowd {
    /// One more is there.
    pub fn come(&mut self) {
        self.present = self.present.saturating_add(1);
        let before = self.parts - self.parts.div_ceil(LASTING);
        self.parts = before.max(self.present.saturating_mul(PARTS));
    }

    /// One of those who have come goes.
    pub fn leave(&mut self) {
        self.present = self.present.saturating_sub(1);
    }

    /// The most that have lately been there at once; at least as many as there are.
    pub fn size(&self) -> usize {
        self.parts.div_ceil(PARTS)
    }
}
