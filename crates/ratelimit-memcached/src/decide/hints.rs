//! Hints on which meters are full, and until when.

use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::Timestamp;
use ratelimit_core::store::Verdict;

use crate::wire::keys::{OFFSET, stable_hash};

/// The number of hints.
const HINTS: usize = 8_192;

/// The bits of a hint for a cost; the others hold an instant in milliseconds, which suffices for the next 500 years.
const COST: u32 = 20;

/// The last refusals. Only the number of round trips depends on them, so two meters may share a hint. A
/// [`RefusalCache`](ratelimit_core::layers::RefusalCache) refuses by itself, so it needs names, whole answers and locks.
pub(crate) struct Hints(Vec<AtomicU64>);

impl Default for Hints {
    fn default() -> Self {
        Self((0..HINTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Hints {
    /// Records the outcome of a claim on the meter `name`.
    pub(crate) fn note(&self, name: &str, cost: u64, verdict: &Verdict) {
        let hint = match verdict.fits_at {
            // Rounded down to milliseconds, so that a claim that might fit is not delayed.
            Some(fits_at) if !verdict.fits => (millis(fits_at) << COST) | cost.min(MOST_COST),
            _ => 0,
        };
        let place = self.place(name);
        if place.load(Ordering::Relaxed) != hint {
            place.store(hint, Ordering::Relaxed);
        }
    }

    /// Whether this cost is expected to be refused now. Not certain: units may have been given back since, or the hint may
    /// be that of another meter.
    pub(crate) fn is_full(&self, name: &str, cost: u64, now: Timestamp) -> bool {
        let hint = self.place(name).load(Ordering::Relaxed);
        millis(now) < hint >> COST && cost.min(MOST_COST) >= hint & MOST_COST
    }

    fn place(&self, name: &str) -> &AtomicU64 {
        let nth = stable_hash(name.as_bytes(), OFFSET) % HINTS as u64;
        &self.0[usize::try_from(nth).unwrap_or(0)]
    }
}

const MOST_COST: u64 = (1 << COST) - 1;

fn millis(instant: Timestamp) -> u64 {
    (instant.as_nanos() / 1_000_000).min(u64::MAX >> COST)
}

#[cfg(test)]
mod tests {
    use ratelimit_core::store::Receipt;

    use super::*;

    #[test]
    fn refusals_hold_for_their_cost_until_the_reported_instant() {
        let (hints, now) = (Hints::default(), Timestamp::from_secs(1_800_000_000));
        let second = std::time::Duration::from_secs(1);
        let verdict = |fits: bool| Verdict {
            fits,
            limit: 5,
            remaining: 0,
            fits_at: Some(now + second),
            reset_at: now,
            ready_at: now,
            receipt: Receipt::at(now),
        };
        hints.note("a", 3, &verdict(false));
        assert!(hints.is_full("a", 3, now) && hints.is_full("a", u64::MAX, now));
        assert!(!hints.is_full("a", 2, now) && !hints.is_full("b", 3, now));
        assert!(!hints.is_full("a", 3, now + second));
        hints.note("a", 1, &verdict(true));
        assert!(!hints.is_full("a", 3, now));
    }
}
