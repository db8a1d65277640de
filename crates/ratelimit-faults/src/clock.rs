//! The clock of a worker's limiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ratelimit_core::{Clock, SystemClock, Timestamp};

/// The machine's clock, moved by an offset.
#[derive(Clone)]
pub(crate) struct MovedClock {
    pub(crate) machine: SystemClock,
    /// The offset in nanoseconds.
    pub(crate) nanos: Arc<AtomicI64>,
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let moved = self.machine.now().as_nanos().saturating_add_signed(self.nanos.load(Ordering::SeqCst));
        Timestamp::from_nanos(moved)
    }
}
