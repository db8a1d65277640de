//! The first clock of a process: this program has one test, so that nothing else has used a clock before.
#![allow(clippy::disallowed_methods, reason = "compares with the machine's clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use ratelimit_core::{Clock as _, SystemClock};

#[test]
fn the_first_clock_of_a_process_tells_the_wall_clocks_time() {
    let clock = SystemClock::new();
    let wall = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    // The smallest distance of many, because the thread may be preempted between two readings.
    let distances = (0..1_000).map(|_| {
        let (before, now, after) = (wall(), clock.now().as_nanos(), wall());
        before.saturating_sub(now).max(now.saturating_sub(after))
    });
    let distance = distances.min().unwrap();
    assert!(distance < 200_000, "it is {distance} ns away");
}
