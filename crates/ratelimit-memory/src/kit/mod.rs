//! Parts of this store that other stores in the memory of a process are built from: fingerprints of names, the state of
//! a meter in three words, the second of its expiry, and a lock.
//!
//! For the crates of this project, which are released together: anything here may change in any release.

mod compact_state;
pub mod expiry;
mod fingerprint;
mod spin_lock;

pub use compact_state::{CompactState, InPlace};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use spin_lock::{SpinGuard, SpinLock};
