//! When a shard may have expired meters.

use crate::kit::expiry::NEVER;

/// The second from which on a shard may have expired meters, so that the sweep can skip shards without any.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// No meter expires before this second.
    second: u32,
    /// No meter that the sweep has visited in this round, or that was added since the round began, expires before this
    /// second.
    passed: u32,
}

impl Default for Due {
    fn default() -> Self {
        Self { second: NEVER, passed: NEVER }
    }
}

impl Due {
    #[inline]
    pub(crate) fn second(&self) -> u32 {
        self.second
    }

    /// Adds a meter that expires at this second.
    pub(crate) fn include(&mut self, second: u32) {
        self.second = self.second.min(second);
        self.pass(second);
    }

    /// Records that the sweep has visited a meter that expires at this second.
    pub(crate) fn pass(&mut self, second: u32) {
        self.passed = self.passed.min(second);
    }

    /// Records that the sweep has visited all meters.
    pub(crate) fn end_round(&mut self) {
        *self = Self { second: self.passed, passed: NEVER };
    }

    /// Records that meters have moved, so that the sweep may miss some in this round.
    pub(crate) fn moved(&mut self) {
        self.pass(self.second);
    }
}
