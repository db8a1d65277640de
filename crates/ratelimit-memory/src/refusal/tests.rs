//! The last refusal of a shard, with the atomics of the machine.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::kit::{CompactState, Fingerprint, Slot};
use crate::refusal::Refusal;

/// Fewer under Miri, which is slow.
const TURNS: u64 = if cfg!(miri) { 200 } else { 2_000_000 };

fn slot(number: u64) -> Slot {
    Slot::new(fingerprint(number), CompactState::from_words([number; 3]))
}

fn fingerprint(number: u64) -> Fingerprint {
    Fingerprint { low: number / 2, high: number << 38 }
}

#[test]
fn at_most_one_meter_is_shown() {
    let refusal = Refusal::default();
    // A fingerprint of zeros is valid, too.
    assert!(refusal.of(fingerprint(0)).is_none());
    refusal.publish(Some(&slot(0)));
    assert!(refusal.of(fingerprint(0)).is_some() && refusal.of(fingerprint(1)).is_none());
    refusal.publish(Some(&slot(1)));
    assert!(refusal.of(fingerprint(0)).is_none() && refusal.of(fingerprint(1)).is_some());
    refusal.publish(None);
    assert!(refusal.of(fingerprint(0)).is_none() && refusal.of(fingerprint(1)).is_none());
}

#[test]
fn concurrent_reads_are_not_torn() {
    let (refusal, done) = (Refusal::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers = [2, 3].map(|number| {
            let (refusal, done) = (&refusal, &done);
            scope.spawn(move || {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) || seen == 0 {
                    if let Some(slot) = refusal.of(fingerprint(number)) {
                        assert_eq!(slot.state.words(), [number; 3]);
                        seen += 1;
                    }
                }
            })
        });
        // Both have the same lower half, so it does not distinguish them.
        for turn in 0..TURNS {
            refusal.publish(Some(&slot(2 + turn % 2)));
        }
        done.store(true, Ordering::Relaxed);
        // A reader that started late still has to see one of each.
        while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            refusal.publish(Some(&slot(2)));
            std::thread::yield_now();
            refusal.publish(Some(&slot(3)));
            std::thread::yield_now();
        }
    });
}
