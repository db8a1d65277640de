//! What the parts of a decision are, whatever their shape.

use super::boxed::AskedLimit;
use super::charges::SharedList;
use super::key_bytes::{ChargedKeys, KeyBytes};
use super::verdicts::decisive;
use super::{Parts, ShortParts};
use crate::Verdict;

impl Parts<'_> {
    /// The number of limits.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Short(parts) => parts.limits.len(),
            Self::Boxed(parts) => parts.owned.verdicts.len(),
        }
    }

    /// The verdicts, one for each limit.
    #[inline]
    pub(super) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        (0..self.count()).map(|index| self.verdict(index))
    }

    /// The verdict at this index.
    #[inline]
    pub(super) fn verdict(&self, index: usize) -> &Verdict {
        match self {
            Self::Short(ShortParts { others: Some(others), .. }) if index > 0 => &others[index - 1],
            Self::Short(ShortParts { first, .. }) => first,
            Self::Boxed(parts) => &parts.owned.verdicts[index],
        }
    }

    /// Replaces a verdict, and determines again which one decides.
    pub(super) fn set_verdict(&mut self, index: usize, verdict: Verdict) {
        match self {
            Self::Short(ShortParts { others: Some(others), .. }) if index > 0 => others[index - 1] = verdict,
            Self::Short(ShortParts { first, .. }) => *first = verdict,
            Self::Boxed(parts) => parts.owned.verdicts[index] = verdict,
        }
        let decided_by = decisive(self.verdicts());
        match self {
            Self::Short(parts) => parts.decided_by = decided_by,
            Self::Boxed(parts) => parts.owned.decided_by = decided_by,
        }
    }

    #[inline]
    pub(super) fn decided_by(&self) -> usize {
        match self {
            Self::Short(parts) => parts.decided_by,
            Self::Boxed(parts) => parts.owned.decided_by,
        }
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Short(parts) => parts.namespace,
            Self::Boxed(parts) => parts.owned.namespace.as_deref().unwrap_or(parts.namespace),
        }
    }

    /// The limit at this index. There is one for each verdict.
    #[inline]
    pub(super) fn asked_limit(&self, index: usize) -> AskedLimit<'_> {
        match self {
            Self::Short(parts) => AskedLimit { key_index: 0, cost: parts.cost, limit: &parts.limits[index] },
            Self::Boxed(parts) => parts.asked_limit(index),
        }
    }

    /// What it has taken and not given back.
    pub(super) fn taken(&self) -> &SharedList {
        match self {
            Self::Short(parts) => &parts.taken,
            Self::Boxed(parts) => &parts.owned.taken,
        }
    }

    /// The largest cost of a key.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Short(parts) => parts.cost,
            Self::Boxed(parts) => parts.owned.keys.iter().map(|key| key.cost).max().unwrap_or(0),
        }
    }

    /// The bytes of each key, as far as they were kept: those of a decision that was not charged may be there or be empty. Call
    /// `Decision::charged_keys`.
    pub(super) fn keys(&self) -> ChargedKeys {
        match self {
            Self::Short(parts) => [KeyBytes::from_slice(parts.key.bytes())].into(),
            Self::Boxed(parts) => parts.owned.keys.iter().map(|key| key.bytes.clone()).collect(),
        }
    }
}
