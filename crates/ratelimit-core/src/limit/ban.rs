//! Bans: how the store's meters express that a key is shut out after too many refusals.
//!
//! A ban has three meters for each key. A bucket decides whether the key is banned: when a ban starts, it charges as many
//! units as take the length of the ban to drain, and each request claims no units of the bucket at a
//! [gate](Bucket::gate). A log counts the recent refusals of the key. If bans grow, another bucket has a unit for each
//! earlier ban.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::Algorithm;
use super::duration::nanos;
use crate::LimitError;
use crate::{Bucket, Log, MAX_UNITS, MeterId, Timestamp, Verdict};

/// The kind of a ban in the scope of its meters.
pub(super) const KIND: &str = "ban";

/// How long one unit of a ban takes to drain, in nanoseconds.
const UNIT: u64 = 1_000;

/// The longest ban: 366 days.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The maximum number of earlier bans that make a ban longer.
const MOST_STEPS: u32 = 32;

/// The bucket of a ban, as requests claim it.
pub(super) fn gate() -> Result<Bucket, LimitError> {
    Bucket::gate(UNIT)
}

impl MeterId<'_> {
    /// Whether this is one of the meters of a [ban](Algorithm::Ban).
    pub fn is_of_ban(&self) -> bool {
        self.kind().split(':').next() == Some(KIND)
    }

    /// Whether this is the bucket that decides whether a key is [banned](Algorithm::Ban). For stores that count for themselves:
    /// bans that several of them begin for the same refusals are one.
    pub fn decides_ban(&self) -> bool {
        self.kind() == KIND
    }

    /// The scope without the limit's name.
    fn kind(&self) -> &str {
        self.scope.rsplit('=').next().unwrap_or(self.scope)
    }
}

/// Checks the lengths of bans.
pub(super) fn check(duration: Duration, factor: u32, longest: Duration) -> Result<(), LimitError> {
    if duration.is_zero() {
        return Err(LimitError::Zero { what: "length of a ban" });
    }
    if factor == 0 {
        return Err(LimitError::Zero { what: "factor of bans" });
    }
    if longest < duration || longest > LONGEST {
        return Err(LimitError::BadBan);
    }
    if factor == 1 && longest > duration {
        return Err(LimitError::NotGrowing);
    }
    match [duration, longest].iter().all(|length| nanos(*length).is_multiple_of(UNIT)) {
        true => Ok(()),
        false => Err(LimitError::NotMicroseconds),
    }
}

/// The meters of a ban.
pub(crate) struct Ban {
    /// The scope of the bucket that decides whether the key is banned.
    pub(crate) scope: Arc<str>,
    /// The same bucket, as requests claim it.
    pub(crate) gate: Bucket,
    /// The refusal that does not fit this log starts a ban. `None` if every refusal starts one.
    pub(crate) refusals: Option<Log>,
    pub(crate) refusals_scope: String,
    /// Has a unit for each earlier ban. `None` if all bans are equally long.
    pub(crate) earlier: Option<Bucket>,
    pub(crate) earlier_scope: String,
    duration: u64,
    factor: u64,
    longest: u64,
    /// After this many earlier bans, a ban has the maximum length.
    steps: u32,
}

impl Ban {
    /// The meters of a ban after this many refusals within a period. `None` if the algorithm is not a ban.
    pub(super) fn new(
        algorithm: Algorithm,
        refusals: u64,
        within: Duration,
        scope: &Arc<str>,
    ) -> Option<Self> {
        let Algorithm::Ban { duration, factor, longest } = algorithm else { return None };
        let (duration, factor) = (nanos(duration), u64::from(factor));
        let longest = if factor > 1 { nanos(longest) } else { duration };
        let is_longest = |steps: &u32| duration.saturating_mul(factor.saturating_pow(*steps)) >= longest;
        let steps = (0..MOST_STEPS).find(is_longest).unwrap_or(MOST_STEPS);
        // Bans of the maximum length, one after another, keep this bucket at its burst or one unit below.
        let earlier = (steps > 0).then(|| Bucket::with_interval(longest * 2, u64::from(steps) + 1).ok());
        Some(Self {
            scope: scope.clone(),
            gate: gate().ok()?,
            refusals: Log::new(refusals - 1, nanos(within)).ok(),
            // With the period, like the scope of a log.
            refusals_scope: format!("{scope}:refusals:{}", nanos(within)),
            earlier: earlier.flatten(),
            earlier_scope: format!("{scope}:bans"),
            duration,
            factor,
            longest,
            steps,
        })
    }

    /// The cost of a ban after this many earlier bans, and the bucket that admits this cost if the key is not banned.
    pub(crate) fn claim(&self, earlier: u64) -> Result<(u64, Bucket), LimitError> {
        let length = match u32::try_from(earlier) {
            Ok(earlier) if earlier < self.steps => {
                self.duration.saturating_mul(self.factor.saturating_pow(earlier))
            }
            _ => self.longest,
        };
        let cost = length / UNIT; // a whole number: see `check`
        Ok((cost, Bucket::with_interval(UNIT, cost)?))
    }

    /// The cost of a ban of this length, and a bucket that has room for no longer one.
    pub(crate) fn claim_of(length: Duration) -> Result<(u64, Bucket), LimitError> {
        check(length, 1, length)?;
        let cost = nanos(length).div_ceil(UNIT);
        // A unit more, because what is left of an earlier ban may be a part of a unit.
        Ok((cost, Bucket::with_interval(UNIT, cost + 1)?))
    }

    /// The verdict of a ban as a decision shows it: no bound on units, or no units remain.
    pub(crate) fn shown(verdict: &Verdict) -> Verdict {
        let remaining = if verdict.fits { MAX_UNITS } else { 0 };
        Verdict { limit: MAX_UNITS, remaining, ..*verdict }
    }

    /// The verdict on a request whose refusal has started a ban.
    pub(crate) fn begun(end: Timestamp, verdict: &Verdict) -> Verdict {
        Self::shown(&Verdict { fits: false, fits_at: Some(end), reset_at: end, ..*verdict })
    }
}
