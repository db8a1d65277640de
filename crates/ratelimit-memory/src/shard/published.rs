//! Which refusal of a shard is published.

use crate::kit::Slot;

/// The refusal that is published.
#[derive(Clone, Copy, Default)]
pub(super) struct Published {
    slot: Slot,
    /// Whether it has changed since the lock was taken.
    has_changed: bool,
    /// The meter of the last refusal.
    last: u64,
}

/// What to publish.
pub(super) enum News {
    /// What is published already.
    Same,
    /// No refusal.
    Nothing,
    /// The refusal of this meter.
    Refuses(Slot),
}

impl Published {
    /// Stops publishing if it is the refusal of this meter. Returns whether it was.
    #[inline(never)]
    pub(super) fn withdraw(&mut self, slot: &Slot) -> bool {
        let is_it = self.slot.is_same(slot);
        self.has_changed |= is_it;
        is_it
    }

    /// Publishes the refusal of this meter if it also was the last one to refuse: if several meters alternate, publishing
    /// would not pay. Returns whether it does.
    pub(super) fn refuse(&mut self, slot: Slot, is_published: bool) -> bool {
        let last = std::mem::replace(&mut self.last, slot.low);
        let publishes = last == slot.low && !(is_published && self.slot.is_same(&slot));
        if publishes {
            (self.slot, self.has_changed) = (slot, true);
        }
        publishes
    }

    /// What to publish now.
    pub(super) fn news(&mut self, is_published: bool) -> News {
        match (std::mem::take(&mut self.has_changed), is_published) {
            (false, _) => News::Same,
            (true, false) => News::Nothing,
            (true, true) => News::Refuses(self.slot),
        }
    }
}
