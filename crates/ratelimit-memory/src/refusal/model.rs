//! The last refusal of a shard, with all interleavings of its threads and all values that the memory model allows them to
//! read, as `loom` explores them.
//!
//! The source is compiled a second time, with the atomics of `loom`: so the tests need no build of their own, and the store
//! no indirection.
#![allow(clippy::duplicate_mod)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use self::published::Refusal;
use self::sync::Ordering;
use crate::kit::{CompactState, Fingerprint, Slot};

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../refusal.rs"]
mod published;

fn fingerprint(number: u64) -> Fingerprint {
    // All have the same lower half, so it does not distinguish them.
    Fingerprint { low: 7, high: number << 38 }
}

fn slot(number: u64) -> Slot {
    Slot::new(fingerprint(number), CompactState::from_words([number; 3]))
}

/// Checks all executions with at most two switches between threads other than at their ends. Three take minutes.
fn check(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(test);
}

#[test]
fn reads_are_never_torn() {
    check(|| {
        let refusal = Arc::new(Refusal::default());
        refusal.publish(Some(&slot(1)));
        let reader = {
            let refusal = refusal.clone();
            thread::spawn(move || {
                if let Some(slot) = refusal.of(fingerprint(2)) {
                    assert_eq!(slot.state.words(), [2; 3]);
                }
            })
        };
        refusal.publish(Some(&slot(2)));
        reader.join().unwrap();
    });
}

/// The case of a refund or a reset that has returned: from then on, the previous state refuses no claim.
#[test]
fn what_was_taken_back_is_not_read_any_more() {
    check(|| {
        let refusal = Arc::new(Refusal::default());
        let returned = Arc::new(AtomicBool::new(false));
        refusal.publish(Some(&slot(1)));
        let caller = {
            let (refusal, returned) = (refusal.clone(), returned.clone());
            thread::spawn(move || {
                let after = returned.load(Ordering::Acquire);
                let seen = refusal.of(fingerprint(1)).is_some();
                assert!(!(after && seen), "refused by a state that was taken back");
            })
        };
        refusal.publish(None);
        returned.store(true, Ordering::Release);
        caller.join().unwrap();
    });
}
