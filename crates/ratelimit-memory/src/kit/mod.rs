//! Parts of this store, from which this project builds other stores in the memory of a process: fingerprints of names, the
//! state of a meter in three words, the second of its expiry, and a lock.
//!
//! Only for the crates of this project, which are released together: anything here may change in any release.

mod compact_state;
pub mod expiry;
mod fingerprint;
mod spin_lock;

pub use compact_state::{CompactState, InPlace};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use spin_lock::{SpinGuard, SpinLock};
