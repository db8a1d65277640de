//! Ever-new keys against a bound: the memory stays what it was, and keys in use keep their counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimit_memory::{
    ErrorKind, Limit, ManualClock, MemoryConfig, MemoryStore, RateLimiter, Request, Timestamp, WhenFull,
};

/// The system's allocator, which knows how many bytes are in use, and the most that were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    MOST.fetch_max(IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller guarantees what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BOUND: usize = 64 << 10;
const NEW_KEYS: u32 = 1_000_000;
const BUSY: u64 = 100;
/// A meter, as the documentation says, and what a table of them leaves free.
const PROMISE: usize = BOUND * 48;

/// One test, because the allocator counts for all threads.
#[test]
fn a_flood_of_new_keys_takes_no_more_memory_and_no_count_of_a_key_in_use() {
    for (when_full, limit) in [
        (WhenFull::Evict, "1000000/h"),
        (WhenFull::Evict, "1000000/h bucket"),
        (WhenFull::Refuse, "1000000/h"),
    ] {
        let before = IN_USE.load(Ordering::Relaxed);
        let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
        let store = MemoryStore::with_config(MemoryConfig::default().max_keys(BOUND).when_full(when_full));
        let limiter = RateLimiter::new(store, limit.parse::<Limit>().unwrap()).with_clock(clock);
        let (mut charged, mut refused, mut filled) = (0_u64, 0_u64, 0);
        for number in 0..NEW_KEYS {
            if number.is_multiple_of(1_000) {
                limiter.clock().advance(Duration::from_micros(1));
                // Each of them once in each thousand new keys: in a bucket of a million an hour, none drains meanwhile.
                for busy in 0..BUSY {
                    assert!(limiter.check_now(&busy.to_be_bytes()).unwrap().allowed());
                }
                charged += 1;
            }
            match limiter.check_now(&[&b"new"[..], &number.to_be_bytes()].concat()) {
                Ok(decision) => assert!(decision.allowed()),
                Err(error) => {
                    let ratelimit_memory::CheckError::Store(error) = error else { panic!("{error}") };
                    assert_eq!((error.kind(), when_full), (ErrorKind::Full, WhenFull::Refuse));
                    refused += 1;
                }
            }
            if number as usize == BOUND * 2 {
                filled = IN_USE.load(Ordering::Relaxed) - before;
                MOST.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let what = format!("{limit}, {when_full:?}");
        let (now, most) = (IN_USE.load(Ordering::Relaxed) - before, MOST.load(Ordering::Relaxed) - before);
        println!(
            "{what}: {filled} bytes when it was full, {most} at most after it, {now} in the end, {PROMISE} promised"
        );
        assert!(limiter.store().len() <= BOUND);
        assert!(now.max(most) <= filled + filled / 100, "{what}: {filled} grew to {now}, at most {most}");
        assert!(most <= PROMISE + PROMISE / 10, "{what}: {most} bytes, not {PROMISE}");
        assert_eq!(refused > 0, when_full == WhenFull::Refuse, "{what}: {refused}");
        for busy in 0..BUSY {
            let left = limiter.peek_now(Request::new(&busy.to_be_bytes())).unwrap().remaining();
            assert_eq!(left, 1_000_000 - charged, "{what}: key {busy}");
        }
    }
}
