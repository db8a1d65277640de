//! Requests in progress, and when each of them ends.

use std::collections::BTreeMap;

use ratelimit_core::Timestamp;

/// Things that are due at a time. Those of the same time are in the order in which they were added.
#[derive(Debug)]
pub(super) struct Ends<T> {
    due: BTreeMap<(Timestamp, u64), T>,
    count: u64,
}

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), count: 0 }
    }
}

impl<T> Ends<T> {
    pub(super) fn add(&mut self, time: Timestamp, thing: T) {
        self.count += 1;
        self.due.insert((time, self.count), thing);
    }

    /// The next thing that is due at this time or before it, and when it was due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        let (first, _) = self.due.first_key_value()?;
        (first.0 <= now).then(|| self.due.pop_first()).flatten().map(|((time, _), thing)| (time, thing))
    }
}
