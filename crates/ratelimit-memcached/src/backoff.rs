//! The pause before a write is retried.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Grows from attempt to attempt, and is random, so that colliding writers do not collide again.
pub(crate) fn pause(attempt: u32) -> Duration {
    let most = 100_u64 << attempt.min(6);
    Duration::from_micros(RandomState::new().hash_one(attempt) % most)
}
