//! The status of one of a decision's limits.

use std::fmt;
use std::time::Duration;

use crate::{Limit, Meter, Timestamp, Verdict};

/// One limit of a decision, and its status after the decision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus<'d> {
    pub(super) index: usize,
    pub(super) key_index: usize,
    pub(super) cost: u64,
    pub(super) limit: &'d Limit,
    pub(super) now: Timestamp,
    pub(super) verdict: &'d Verdict,
}

impl<'d> LimitStatus<'d> {
    /// The limit's index among all limits of the request, which is its index in [`Decision::each`](crate::Decision::each).
    pub fn index(&self) -> usize {
        self.index
    }

    /// The index of the limit's key among the keys of the request.
    pub fn key_index(&self) -> usize {
        self.key_index
    }

    /// The limit itself. Its `Display` is its text, such as `100/min burst 20`.
    pub fn rule(&self) -> &'d Limit {
        self.limit
    }

    /// The limit's name, if it has one.
    pub fn name(&self) -> Option<&'d str> {
        self.limit.name()
    }

    /// How many units the request costs under this limit; none under a ban.
    pub fn cost(&self) -> u64 {
        self.limit.cost_of(self.cost)
    }

    /// Whether this limit alone would have admitted the request.
    pub fn allowed(&self) -> bool {
        self.verdict.fits
    }

    /// See [`Decision::limit`](crate::Decision::limit).
    pub fn limit(&self) -> u64 {
        self.verdict.limit
    }

    /// See [`Decision::remaining`](crate::Decision::remaining).
    pub fn remaining(&self) -> u64 {
        self.verdict.remaining
    }

    /// How many of the [remaining](Self::remaining) units can be used at once. In a leaky queue the others have to wait for
    /// their turn; under any other limit this is the same number.
    pub fn immediate(&self) -> u64 {
        match self.limit.meter_for(&[]) {
            Meter::Bucket(bucket) => {
                let waiting = self.limit().saturating_sub(bucket.immediate());
                self.remaining().saturating_sub(waiting)
            }
            Meter::Window(_) | Meter::Log(_) => self.remaining(),
        }
    }

    /// See [`Decision::retry_after`](crate::Decision::retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        self.verdict.fits_at.map(|instant| instant.since(self.now))
    }

    /// See [`Decision::reset_after`](crate::Decision::reset_after).
    pub fn reset_after(&self) -> Duration {
        self.verdict.reset_at.since(self.now)
    }
}

impl fmt::Debug for LimitStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitStatus")
            .field("index", &self.index)
            .field("key_index", &self.key_index)
            .field("rule", &format_args!("{}", self.limit))
            .field("cost", &self.cost)
            .field("allowed", &self.allowed())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}
