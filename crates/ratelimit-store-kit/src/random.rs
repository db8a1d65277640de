//! Random numbers without a generator.

use std::hash::{BuildHasher, RandomState};

/// A random number. Each `RandomState` has different keys, which come from the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
