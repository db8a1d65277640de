//! Which keys are nearest to their limit.

use std::cmp::Reverse;

use ratelimit_core::{Decision, Timestamp};

/// How near a key is to one of its limits: the smaller, the nearer. First the fraction of the limit that remains, in units of
/// 2^-64; of equal fractions, the one that needs longer to recover is first.
pub(crate) type Rank = (u128, Reverse<Timestamp>);

/// The rank of one limit.
pub(crate) fn rank(remaining: u64, limit: u64, reset_at: Timestamp) -> Rank {
    ((u128::from(remaining) << 64) / u128::from(limit.max(1)), Reverse(reset_at))
}

/// The rank of the limit that is nearest; `None` if nothing has been used.
pub(crate) fn nearest(decision: &Decision<'_>) -> Option<Rank> {
    let used = decision.each().filter(|status| status.remaining() < status.limit());
    used.map(|status| rank(status.remaining(), status.limit(), decision.now() + status.reset_after())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_fraction_is_first() {
        let rank = |remaining, limit, seconds| rank(remaining, limit, Timestamp::from_secs(seconds));
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
