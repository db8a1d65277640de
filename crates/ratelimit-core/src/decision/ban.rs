//! Bans in a decision.

use std::time::Duration;

use super::Decision;
use crate::Request;
use crate::limit::Ban;

impl Decision<'_> {
    /// Whether there are bans among the limits.
    pub(crate) fn has_bans(&self) -> bool {
        self.each().any(|status| status.rule().is_ban())
    }

    /// The bans that count this refusal: another limit on the same key has refused, and no ban on it has. The index of each,
    /// and that of its key.
    pub(crate) fn refused_under_bans(&self, request: &Request<'_, '_>) -> Vec<(usize, usize)> {
        let is_same = |one: usize, other: usize| one == other || request.key(one) == request.key(other);
        let counts = |ban: &crate::LimitStatus<'_>| {
            let refused = || {
                self.each().filter(|other| !other.allowed() && is_same(other.key_index(), ban.key_index()))
            };
            ban.rule().is_ban() && refused().next().is_some() && !refused().any(|other| other.rule().is_ban())
        };
        self.each().filter(counts).map(|status| (status.index(), status.key_index())).collect()
    }

    /// The meters of the ban at this index.
    pub(crate) fn ban_meters(&self, index: usize) -> Option<Ban> {
        self.each().nth(index)?.rule().ban_meters()
    }

    /// Changes the status of the ban at this index: it refuses for this long.
    pub(crate) fn set_banned(&mut self, index: usize, left: Duration) {
        let end = self.now() + left;
        let verdict = Ban::begun(end, self.parts.verdict(index));
        self.parts.set_verdict(index, verdict);
    }
}
