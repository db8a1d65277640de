//! A check of a known key does not allocate, whatever the algorithm.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratelimit_memory::core::IntoLimits;
use ratelimit_memory::{Limit, Limits, ManualClock, MemoryStore, RateLimiter, Timestamp};

/// The system's allocator, which counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Fails only while the thread ends, when the count is no longer read.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees what `System` requires.
        unsafe { System.alloc(layout) }
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

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Completes a future that never has to wait.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Checks a known key often, admitted and refused, over several windows.
fn check(limits: impl IntoLimits) {
    let limits = limits.into_limits();
    for key in ["", "user:7", "user:0b5d8f3c-6c1e-4a43-9d3c-6d1f1c0a9b52/app"] {
        check_key(limits.clone(), key);
    }
}

fn check_key(limits: Limits, key: &str) {
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let limiter =
        RateLimiter::new(MemoryStore::new(), limits).with_clock(clock.clone()).with_namespace("test");
    let (mut admitted, mut refused) = (0, 0);
    let mut round = |times: u64| {
        for _ in 0..times {
            for decision in [limiter.check_now(key).unwrap(), at_once(limiter.check(key)).unwrap()] {
                *(if decision.allowed() { &mut admitted } else { &mut refused }) += 1;
            }
            clock.advance(Duration::from_millis(33));
        }
    };
    round(100); // makes the meter known, and lets a log grow to its full size
    assert_eq!(allocations(|| round(1_000)), 0, "{}", limiter.limits()[0]);
    assert!(admitted > 100 && refused > 100, "{}", limiter.limits()[0]);
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

#[test]
fn a_known_key_allocates_nothing() {
    for text in [
        "10/s fixed",
        "10/s",
        "10/s precision 100ms",
        "10/s precision 100ms strict",
        "10/s log",
        "10/s burst 5",
        "10/s leaky burst 5",
        "10/s queue burst 5",
        "10/s staggered",
    ] {
        check(limit(text));
    }
}

#[test]
fn several_limits_at_once_allocate_nothing() {
    let texts = ["10/s", "100/10s burst 20", "200/min fixed", "1000/h precision 1min"];
    for number in 2..=texts.len() {
        check(Limits::new(texts[..number].iter().map(|text| limit(text))).unwrap());
    }
}

#[test]
fn the_counting_allocator_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
    let limiter = RateLimiter::new(MemoryStore::new(), limit("10/s"));
    assert!(allocations(|| drop(limiter.check_now("new"))) > 0);
}
