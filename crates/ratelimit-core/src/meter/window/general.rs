//! The general case of what a claim reads: any number of carried segments, and products beyond 64 bits.

use super::Window;

impl Window {
    #[inline(never)]
    pub(super) fn seen_by_age(&self, counts: &[u64], segments_since: u64) -> (u64, u64) {
        // The ages that still count are `segments_since` and up; there may be more counts.
        let ages = usize::try_from(u64::from(self.carried) + 1 - segments_since).unwrap_or(usize::MAX);
        let seen = &counts[..ages.min(counts.len())];
        match seen.split_last() {
            Some((oldest, others)) if !self.strict() && seen.len() == ages => (others.iter().sum(), *oldest),
            _ => (seen.iter().sum(), 0),
        }
    }

    #[cold]
    pub(super) fn weighted_in_full(&self, oldest: u64, covered: u64) -> u64 {
        let product = u128::from(oldest) * u128::from(covered);
        // At most `oldest`, since `covered` is at most `segment`.
        u64::try_from(product.div_ceil(u128::from(self.segment()))).unwrap_or(oldest)
    }
}
