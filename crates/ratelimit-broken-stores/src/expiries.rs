//! Stores whose server removes meters too early by its own clock, although ten seconds are added to each lifetime.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ratelimit_core::store::CLOCK_SLACK;
use ratelimit_core::{Clock, SystemClock, Timestamp};
use tokio::time::Instant;

use super::broken_store::BrokenStore;
use super::flaw::{Call, Flaw, Write};

/// What stores add to lifetimes for the clocks of callers.
const ADDED: Duration = Duration::from_secs(10);

pub(super) fn all() -> Vec<BrokenStore> {
    let pause = "lifetimes/counts-after-thirteen-seconds";
    let (refund, batch) = ("lifetimes/counts-after-a-refund", "lifetimes/counts-after-a-batch");
    vec![
        BrokenStore::new::<SetOnce>(
            "set-once",
            "a lifetime is set with the first write, and not raised",
            pause,
        ),
        BrokenStore::new::<OfLast>(
            "lifetime-of-the-last",
            "a slice gets the lifetime of its last meter",
            pause,
        ),
        BrokenStore::new::<OfBatch>(
            "lifetime-of-a-batch",
            "a batch gets the lifetime of its first meter",
            pause,
        ),
        BrokenStore::new::<Wraps>("lifetime-in-32-bits", "lifetimes are milliseconds in 32 bits", pause),
        BrokenStore::new::<Dates>(
            "dates-of-the-server",
            "a refund stores a date of the server's clock",
            refund,
        ),
        BrokenStore::new::<ShortDates>("dates-in-32-bits", "a batch stores a date of 32 bits", batch),
    ]
}

/// When the server removes a meter that nobody needs from this instant on.
pub(super) fn after(write: &Write, forget_at: Timestamp) -> Option<Instant> {
    Instant::now().checked_add(forget_at.since(write.now) + ADDED)
}

#[derive(Debug, Default)]
struct SetOnce;

impl Flaw for SetOnce {
    fn expires(&self, write: &Write) -> Option<Instant> {
        write.former_expiry.or_else(|| after(write, write.forget_at))
    }
}

#[derive(Debug, Default)]
struct OfLast;

impl Flaw for OfLast {
    fn expires(&self, write: &Write) -> Option<Instant> {
        after(write, write.last_forget_at)
    }
}

/// The instant at which the first meter of the current batch expires.
#[derive(Debug, Default)]
struct OfBatch(Mutex<Option<Instant>>);

impl Flaw for OfBatch {
    fn order(&self, count: usize) -> Vec<usize> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        (0..count).collect()
    }

    fn expires(&self, write: &Write) -> Option<Instant> {
        let expires_at = after(write, write.forget_at);
        if write.call != Call::Batch {
            return expires_at;
        }
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *first = first.or(expires_at);
        *first
    }
}

#[derive(Debug, Default)]
struct Wraps;

impl Flaw for Wraps {
    fn expires(&self, write: &Write) -> Option<Instant> {
        let millis = u64::try_from(write.forget_at.since(write.now).as_millis()).unwrap_or(0);
        Instant::now().checked_add(Duration::from_millis(millis % (1 << 32)) + ADDED)
    }
}

#[derive(Debug, Default)]
struct Dates;

impl Flaw for Dates {
    fn expires(&self, write: &Write) -> Option<Instant> {
        if write.call != Call::Refund {
            return None;
        }
        let left = (write.forget_at + ADDED).since(SystemClock::new().now());
        Instant::now().checked_add(left)
    }
}

#[derive(Debug, Default)]
struct ShortDates;

impl Flaw for ShortDates {
    fn keep_until(&self, write: &Write) -> Timestamp {
        let right = write.forget_at + CLOCK_SLACK;
        let short = Timestamp::from_secs(right.as_nanos().div_ceil(1_000_000_000) % (1 << 32));
        if write.call == Call::Batch { short } else { right }
    }
}
