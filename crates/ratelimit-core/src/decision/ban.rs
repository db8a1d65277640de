//! Bans in a decision.

use super::Decision;
use crate::Timestamp;
use crate::limit::Ban;

impl Decision<'_> {
    /// Whether there are bans among the limits.
    pub(crate) fn has_bans(&self) -> bool {
        self.each().any(|status| status.rule().is_ban())
    }

    /// The bans that count this refusal: another limit on the same key has refused, and the key is not banned yet. The
    /// index of each, and that of its key.
    pub(crate) fn refused_under_bans(&self) -> Vec<(usize, usize)> {
        let refuses = |key| {
            move |status: crate::LimitStatus<'_>| {
                status.key_index() == key && !status.allowed() && !status.rule().is_ban()
            }
        };
        let counts = |status: &crate::LimitStatus<'_>| {
            status.rule().is_ban() && status.allowed() && self.each().any(refuses(status.key_index()))
        };
        self.each().filter(counts).map(|status| (status.index(), status.key_index())).collect()
    }

    /// The meters of the ban at this index.
    pub(crate) fn ban_meters(&self, index: usize) -> Option<Ban> {
        self.each().nth(index)?.rule().ban_meters()
    }

    /// Changes the status of the ban at this index: it refuses until `end`.
    pub(crate) fn set_banned(&mut self, index: usize, end: Timestamp) {
        if let Some(verdict) = self.parts.verdicts().get(index) {
            let verdict = Ban::begun(end, verdict);
            self.parts.set_verdict(index, verdict);
        }
    }
}
