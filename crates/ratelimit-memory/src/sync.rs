//! The atomics of the values that are read without a lock. `refusal/model.rs` replaces them by those of a model.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
