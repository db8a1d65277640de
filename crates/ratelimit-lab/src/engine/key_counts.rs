//! The counts of one key in one column.

use std::time::Duration;

use ratelimit_core::Timestamp;

use super::outcome::{KeyOutcome, printable};
use super::waits::Waits;

/// The counts of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyCounts {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    /// The number of the current period since 1970, and in `in_period` the requests of that period.
    period: u64,
    in_period: u64,
    /// The most requests in a period.
    pub(crate) peak: u64,
    /// `None` until a request of the key was refused.
    pub(crate) waits: Option<Box<Waits>>,
}

impl KeyCounts {
    /// Counts a request. `length` is the length of a period in nanoseconds; if it is zero, all time is one period.
    pub(crate) fn count(&mut self, time: Timestamp, length: u64) {
        self.requests += 1;
        let period = time.as_nanos().checked_div(length).unwrap_or(0);
        if period != self.period {
            (self.period, self.in_period) = (period, 0);
        }
        self.in_period += 1;
        self.peak = self.peak.max(self.in_period);
    }

    /// Counts a refusal, and the wait until the request would be admitted; `None` if no wait helps.
    pub(crate) fn refuse(&mut self, wait: Option<Duration>) {
        self.refused += 1;
        let waits = self.waits.get_or_insert_default();
        if let Some(wait) = wait {
            waits.add(wait);
        }
    }

    /// The counts of this key as a part of the results.
    pub(crate) fn outcome(&self, key: &[u8]) -> KeyOutcome {
        let waits = self.waits.as_deref();
        KeyOutcome {
            key: printable(key),
            requests: self.requests,
            refused: self.refused,
            peak: self.peak,
            median_wait: waits.and_then(Waits::median_seconds),
            longest_wait: waits.and_then(Waits::longest_seconds),
            path: None,
            agent: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_most_requests_in_one_period() {
        let mut counts = KeyCounts::default();
        let minute = 60_000_000_000;
        for second in [0, 59, 60, 61, 119, 120, 121, 600] {
            counts.count(Timestamp::from_secs(1_767_571_200 + second), minute);
        }
        assert_eq!((counts.requests, counts.peak), (8, 3));
    }
}
