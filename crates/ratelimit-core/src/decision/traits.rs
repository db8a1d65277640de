//! `Clone`, equality and `Debug` of decisions.

use std::fmt;

use super::Decision;

impl Clone for Decision<'_> {
    /// What one of them gives back, none of the others gives back again.
    fn clone(&self) -> Self {
        self.begin_list();
        let Self { admitted, charged, now, .. } = *self;
        Self { admitted, charged, now, parts: self.parts.clone() }
    }
}

impl PartialEq<Decision<'_>> for Decision<'_> {
    /// Whether both have the same result, and have charged the same keys, limits and costs.
    fn eq(&self, other: &Decision<'_>) -> bool {
        let all = |decision: &Decision<'_>| (decision.admitted, decision.charged, decision.now);
        all(self) == all(other)
            && self.parts.namespace() == other.parts.namespace()
            && self.each().eq(other.each())
            && self.charged_keys() == other.charged_keys()
    }
}

impl Eq for Decision<'_> {}

impl fmt::Debug for Decision<'_> {
    /// Keys identify people: they are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.allowed())
            .field("charged", &self.charged())
            .field("degraded", &self.degraded())
            .field("retry_after", &self.retry_after())
            .field("delay", &self.delay())
            .field("decided_by", &self.decided_by())
            .finish()
    }
}
