//! What the workers have recorded, and what it proves.

mod check;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use check::{Checked, Evidence, Used, check};
pub(crate) use record::{Entry, SIZE};

use std::collections::HashSet;

use ratelimit_core::ErrorKind;

use crate::load::KeyId;
use crate::rule::Rule;

/// Clocks of two processes of one machine may differ by this much, and a server may count in whole milliseconds.
const BLUR: u64 = 5_000_000;

/// One call of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) worker: usize,
    pub(crate) key: KeyId,
    pub(crate) cost: u8,
    /// Nanoseconds by the machine's clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) outcome: Outcome,
    /// Whether it was decided without the store.
    pub(crate) degraded: bool,
    /// Whether it took another key as well, which has a record of its own: both were charged, or neither.
    pub(crate) paired: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    /// The caller dropped the future.
    Dropped,
    Failed {
        kind: ErrorKind,
        /// Whether it may have been charged.
        maybe: bool,
    },
}

impl Call {
    /// Whether the store may have charged it although the caller does not know.
    fn is_ambiguous(&self) -> bool {
        // A layer that decides without the store may have called the store before.
        self.degraded || matches!(self.outcome, Outcome::Dropped | Outcome::Failed { maybe: true, .. })
    }

    /// Whether the store admitted it.
    fn is_admitted(&self) -> bool {
        self.outcome == Outcome::Admitted && !self.degraded
    }

    /// Whether the store admitted it, or may have.
    fn may_be_charged(&self) -> bool {
        self.is_admitted() || self.is_ambiguous()
    }

    /// Whether it shows that the store is not available.
    pub(crate) fn is_trouble(&self) -> bool {
        self.degraded || matches!(self.outcome, Outcome::Failed { .. })
    }

    /// Whether it shows that the store is available.
    pub(crate) fn is_success(&self) -> bool {
        !self.degraded && matches!(self.outcome, Outcome::Admitted | Outcome::Refused)
    }
}

/// A time in which a server lost counts.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The keys that it may have lost; `None` for all.
    pub(crate) keys: Option<HashSet<KeyId>>,
    /// Whether two servers may have counted at the same time, each for itself.
    pub(crate) is_split: bool,
}

impl Loss {
    fn concerns(&self, key: KeyId) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&key))
    }

    /// How many units it allows in a span in addition to the rule.
    fn allows(&self, rule: Rule, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.from.saturating_sub(BLUR)), to.min(self.to + BLUR));
        match from <= to {
            false => 0,
            true if self.is_split => rule.most(from, to),
            true => rule.quota(),
        }
    }
}
