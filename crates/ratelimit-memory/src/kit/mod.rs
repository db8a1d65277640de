//! Parts of this store, from which this project builds other stores in the memory of a process: fingerprints of names, a
//! meter in forty bytes, the states that are too large for that, and a lock.
//!
//! Only for the crates of this project, which are released together: anything here may change in any release.

mod compact_state;
pub mod expiry;
mod fingerprint;
mod large_states;
mod slab;
mod slot;
mod spin_lock;

pub use compact_state::CompactState;
pub use fingerprint::{Fingerprint, Fingerprints};
pub use large_states::LargeStates;
pub use slab::Slab;
pub use slot::{Demand, Slot, SlotMeter};
pub use spin_lock::{SpinGuard, SpinLock};
