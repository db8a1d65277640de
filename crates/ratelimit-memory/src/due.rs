//! When a shard may have something to forget.

use crate::slot::NEVER;

/// From which second on there may be something to forget, so that the walk passes what has nothing.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// No meter may be forgotten before.
    second: u32,
    /// None of those may that this round of the walk has passed, nor any that came since it began.
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

    /// There is a meter that may be forgotten from this second on.
    pub(crate) fn include(&mut self, second: u32) {
        self.second = self.second.min(second);
        self.pass(second);
    }

    /// The walk has passed such a one.
    pub(crate) fn pass(&mut self, second: u32) {
        self.passed = self.passed.min(second);
    }

    /// The walk has passed all.
    pub(crate) fn end_round(&mut self) {
        *self = Self { second: self.passed, passed: NEVER };
    }

    /// Meters have changed their places, and the walk may not come to all in this round.
    pub(crate) fn moved(&mut self) {
        self.pass(self.second);
    }
}
