//! When a meter may be removed: a second since the epoch, in 32 bits, up to the year 2106.

use ratelimit_core::Timestamp;
use ratelimit_core::store::CLOCK_SLACK;

/// Meters with this expiry are kept.
pub const NEVER: u32 = u32::MAX;

const SECOND: u64 = 1_000_000_000;
const SLACK: u64 = CLOCK_SLACK.as_secs() * SECOND;

/// The second from which on a meter may be removed if it is as good as new at `instant`: that instant plus
/// [`CLOCK_SLACK`], rounded up to whole seconds. [`NEVER`] after the year 2106.
pub fn forget_second(instant: Timestamp) -> u32 {
    u32::try_from(instant.as_nanos().saturating_add(SLACK).div_ceil(SECOND)).unwrap_or(NEVER)
}

/// Sets `second` later if a meter that is as good as new at `instant` must be kept for longer. Never sets it earlier: if
/// claims count in different ways (a log's period was changed), the meter must be kept for all of them.
#[inline]
pub fn keep_until(second: &mut u32, instant: Timestamp) {
    // Anything later than `NEVER` means never.
    if instant.as_nanos().saturating_add(SLACK) > u64::from(*second) * SECOND {
        *second = forget_second(instant);
    }
}

/// Whether a meter that may be removed from `second` on can no longer influence a decision.
#[inline]
pub fn has_passed(second: u32, now: Timestamp) -> bool {
    second != NEVER && u64::from(second) <= now.as_nanos() / SECOND
}

/// Whether a meter with this expiry may still count: it is not yet as good as new, or has been so for less than a second.
pub fn may_count(second: u32, now: Timestamp) -> bool {
    second == NEVER || u64::from(second).saturating_sub(CLOCK_SLACK.as_secs()) > now.as_nanos() / SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_expire_in_their_second_and_never_beyond_2106() {
        let mut second = 0;
        keep_until(&mut second, Timestamp::from_millis(10_500));
        assert_eq!(second, 12);
        keep_until(&mut second, Timestamp::from_millis(5_500));
        assert_eq!(second, 12, "it is never brought forward");
        assert!(!has_passed(12, Timestamp::from_nanos(11_999_999_999)));
        assert!(has_passed(12, Timestamp::from_secs(12)));
        assert!(may_count(12, Timestamp::from_millis(10_999)) && !may_count(12, Timestamp::from_secs(11)));
        keep_until(&mut second, Timestamp::MAX);
        assert!(!has_passed(second, Timestamp::MAX) && may_count(second, Timestamp::MAX));
    }
}
