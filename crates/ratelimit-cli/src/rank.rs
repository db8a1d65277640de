//! Which keys are nearest to their limit.

use std::cmp::{Ordering, Reverse};

use ratelimit_core::{Decision, Timestamp};

/// How near a key is to one of its limits: the smaller, the nearer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    remaining: u64,
    limit: u64,
    reset_at: Timestamp,
}

impl Rank {
    /// The rank of one limit.
    pub(crate) fn new(remaining: u64, limit: u64, reset_at: Timestamp) -> Self {
        Self { remaining, limit, reset_at }
    }

    /// The rank of the limit that is nearest; `None` if nothing has been used.
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        let ranks = decision.each().map(|status| {
            Self::new(status.remaining(), status.limit(), decision.now() + status.reset_after())
        });
        ranks.filter(|rank| rank.remaining < rank.limit).min()
    }
}

impl Ord for Rank {
    /// By the fraction that remains, computed with integers. Of equal fractions, the one that needs longer to recover is
    /// first.
    fn cmp(&self, other: &Self) -> Ordering {
        let [own, others] = [(self, other), (other, self)]
            .map(|(one, other)| u128::from(one.remaining) * u128::from(other.limit));
        own.cmp(&others).then_with(|| Reverse(self.reset_at).cmp(&Reverse(other.reset_at)))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_fraction_is_first() {
        let rank = |remaining, limit, seconds| Rank::new(remaining, limit, Timestamp::from_secs(seconds));
        let sorted = [
            rank(0, 5, 9),
            rank(0, 900, 1),
            rank(1, 1_000, 1),
            rank(1, 100, 7),
            rank(10, 1_000, 6),
            rank(1, 3, 1),
        ];
        assert!(sorted.is_sorted());
        assert!(rank(1, 2, 1) < rank(2, 3, 1) && rank(1, 2, 1) == rank(2, 4, 1));
    }
}
