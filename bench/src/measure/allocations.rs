//! The allocations of decisions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;

use super::speed::check_answers;
use crate::contestants::{Allow, Contestant, Limiter};
use crate::keys::Key;
use crate::session::{Session, figure};

/// The system allocator, which counts on request, so that counting does not affect time measurements.
pub(crate) struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

fn count() {
    if COUNTS.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

pub(super) struct Allocations<C> {
    contestant: C,
}

const DECISIONS: u64 = 50_000;

/// The number of keys.
const KEYS: u64 = 1_000;

impl<C: Contestant> Allocations<C> {
    pub(super) fn new(contestant: C) -> Self {
        Self { contestant }
    }
}

impl<C: Contestant> Session for Allocations<C> {
    /// Allocations per decision on a known key, per refusal, and per new key.
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        let mut key = Key::default();
        key.set(0);
        let open = self.contestant.build(Allow::Everything);
        let new = counted(&open, 0, &mut key, Allow::Everything)?;
        let known = {
            let limiter = self.contestant.build(Allow::Everything);
            ask(&limiter, KEYS, &mut key);
            counted(&limiter, KEYS, &mut key, Allow::Everything)?
        };
        let limiter = self.contestant.build(Allow::Nothing);
        ask(&limiter, KEYS, &mut key);
        let refused = counted(&limiter, KEYS, &mut key, Allow::Nothing)?;
        Ok(vec![known, refused, new])
    }
}

/// Allocations per decision. The decisions are those of [`ask`].
fn counted(limiter: &impl Limiter, keys: u64, key: &mut Key, allow: Allow) -> Result<f64> {
    let before = COUNT.load(Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let admitted = ask(limiter, keys, key);
    COUNTS.store(false, Ordering::Relaxed);
    check_answers(admitted, DECISIONS, allow)?;
    Ok(figure(COUNT.load(Ordering::Relaxed) - before) / figure(DECISIONS))
}

/// Makes decisions in turn on this number of keys, or on a new key each time if it is zero. Returns how many were admitted.
fn ask(limiter: &impl Limiter, keys: u64, key: &mut Key) -> u64 {
    let mut admitted = 0;
    for number in 0..DECISIONS {
        key.set(number.checked_rem(keys).unwrap_or(number));
        admitted += u64::from(limiter.check(key));
    }
    admitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::wrong::Always;

    struct Boxes;

    impl Limiter for Boxes {
        fn check(&self, key: &Key) -> bool {
            std::hint::black_box(Box::new(key.number));
            true
        }
    }

    #[test]
    fn wrong_answers_are_an_error() {
        for answer in [true, false] {
            assert!(Allocations::new(Always(answer)).step(0).is_err());
        }
    }

    #[test]
    fn allocations_are_counted() {
        // Other tests in this process also allocate.
        let mut key = Key::default();
        let count = counted(&Boxes, 10, &mut key, Allow::Everything).expect("the right answers");
        assert!((1.0..1.5).contains(&count), "{count}");
    }
}
