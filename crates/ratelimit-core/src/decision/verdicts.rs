//! What a decision makes of its verdicts.

use crate::limit::Ban;
use crate::{Limit, Timestamp, Verdict};

/// Changes the verdicts of bans to what a decision shows.
pub(super) fn show_bans<'l, 'v>(
    limits: impl Iterator<Item = &'l Limit>,
    verdicts: impl IntoIterator<Item = &'v mut Verdict>,
) {
    for (limit, verdict) in limits.zip(verdicts) {
        if limit.is_ban() {
            *verdict = Ban::shown(verdict);
        }
    }
}

/// The index of the verdict that decided.
pub(super) fn decisive<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> usize {
    let rank = |verdict: &Verdict| {
        // Refusals come first: those that never fit, then those with the longest wait. Then the least remaining decides,
        // and at last the order of the limits.
        let wait = if verdict.fits { 0 } else { verdict.fits_at.map_or(u64::MAX, Timestamp::as_nanos) };
        (std::cmp::Reverse((!verdict.fits, wait)), verdict.remaining)
    };
    let first = verdicts.into_iter().enumerate().min_by_key(|(_, verdict)| rank(verdict));
    first.map_or(0, |(place, _)| place)
}
