//! Stores whose server removes a meter when only some of its units have left, and ten seconds more have passed.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, Window};
use tokio::time::Instant;

use super::expiries::after;
use super::flaw::{Call, Write};

/// When the server removes a meter that is thought to count until this instant, if that is known.
fn thought(write: &Write, until: Option<Timestamp>) -> Option<Instant> {
    after(write, until.unwrap_or(write.forget_at))
}

/// The length of a bucket's steps, if it has steps that end.
fn step(meter: &Meter) -> Option<std::time::Duration> {
    let Meter::Bucket(bucket) = meter else { return None };
    let step = bucket.step();
    (step > 0 && step < i64::MAX as u64).then(|| std::time::Duration::from_nanos(step))
}

/// The end of a fixed window if windows began at the whole multiples of their length.
fn without_offset(write: &Write) -> Option<Timestamp> {
    let Meter::Window(window) = write.meter else { return None };
    let aligned = Window::new(window.limit(), window.segment(), 0, true, 0).ok()?;
    (window.carried() == 0).then(|| aligned.instant(aligned.place(write.now).0 + 1, 0))
}

flaws! {
    DrainsEvenly "drains-evenly": "a bucket counts until its units would have drained evenly at its fastest rate",
        "lifetimes/slow-units-count-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            thought(write, write.tat)
        }
    }
    OneStep "one-step": "a bucket in steps counts for one step",
        "lifetimes/slow-units-count-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            thought(write, step(&write.meter).map(|step| write.now + step))
        }
    }
    OfSlowest "of-the-slowest": "a bucket of several rates counts until the units of the slowest have drained",
        "lifetimes/slow-units-count-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            thought(write, write.slowest_tat.filter(|slowest| write.tat != Some(*slowest)))
        }
    }
    OfRefunded "of-the-refunded": "after a refund a bucket counts until it would have drained at the fastest rate",
        "lifetimes/slow-units-count-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            let drains = write.call == Call::Refund && matches!(write.meter, Meter::Bucket(bucket) if bucket.step() == 0);
            thought(write, write.tat.filter(|_| drains))
        }
    }
    WithoutOffset "without-offset": "a fixed window counts until the next whole multiple of its length",
        "lifetimes/slow-units-count-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            thought(write, without_offset(write))
        }
    }
    EndsWithZero "ends-with-zero": "a charge of nothing ends the lifetime", "lifetimes/counts-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            thought(write, Some(write.now).filter(|_| write.cost == 0))
        }
    }
    OutlivesReset "outlives-a-reset": "a reset leaves the lifetime behind for the next meter of this name",
        "lifetimes/counts-after-thirteen-seconds" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            let old = write.latest_expiry.filter(|_| write.former.is_none());
            old.or_else(|| after(write, write.forget_at))
        }
    }
}
