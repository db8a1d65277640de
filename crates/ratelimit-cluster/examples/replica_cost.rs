//! The throughput of a `Replicated` node that broadcasts once a second, compared with the memory store. One thread checks,
//! broadcasts and receives in turn, with 100,000 active keys; the work of a second node, which is as busy, is not counted. The
//! two stores alternate each second, and the result is the median of the ratios, so other work of the machine affects both.
//!
//! `cargo run --release -p ratelimit-cluster --example replica_cost`
#![allow(clippy::disallowed_methods, reason = "measures how long checks take")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::time::{Duration, Instant};

use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, Replicated};
use ratelimit_core::{Limit, ManualClock, RateLimiter, SyncCounterStore, Timestamp};
use ratelimit_memory::MemoryStore;

const KEYS: u64 = 100_000;
const ROUNDS: usize = 15;
const INTERVAL: Duration = Duration::from_secs(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn limiter<S: SyncCounterStore>(store: S) -> RateLimiter<S, ManualClock> {
    let limit: Limit = "100000000/h".parse().expect("a limit");
    RateLimiter::new(store, limit).with_clock(ManualClock::at(START))
}

/// Checks the keys in turn until the time is over; how many checks.
fn check<S: SyncCounterStore>(limiter: &RateLimiter<S, ManualClock>, keys: &[String], until: Instant) -> u64 {
    let mut count = 0;
    for some in keys.chunks(1_000).cycle() {
        for key in some {
            assert!(limiter.check_now(key).expect("an answer").allowed());
        }
        count += some.len() as u64;
        if Instant::now() >= until {
            break;
        }
    }
    count
}

fn receive(node: &Replicated<InProcess>) {
    let messages = std::iter::from_fn(|| node.transport().next());
    messages.for_each(|message| block_on(node.receive(&message, START)));
}

fn broadcast(node: &Replicated<InProcess>) {
    block_on(node.broadcast(START)).expect("it is sent");
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let hub = Hub::new();
    let [node, other] = [(); 2].map(|()| Replicated::new(hub.transport()));
    for _ in 0..4 {
        [&node, &other].into_iter().for_each(broadcast);
        [&node, &other].into_iter().for_each(receive);
    }
    let (memory, node, other) = (limiter(MemoryStore::new()), limiter(node), limiter(other));
    let (mut plain, mut replicated, mut sending, mut receiving) = (vec![], vec![], vec![], vec![]);
    let before = node.store().stats();
    for _ in 0..=ROUNDS {
        let begin = Instant::now();
        plain.push(check(&memory, &keys, begin + INTERVAL) as f64 / begin.elapsed().as_secs_f64());

        for key in &keys {
            assert!(other.check_now(key).expect("an answer").allowed());
        }
        broadcast(other.store());

        let begin = Instant::now();
        let checks = check(&node, &keys, begin + INTERVAL);
        let checked = begin.elapsed();
        broadcast(node.store());
        let sent = begin.elapsed();
        receive(node.store());
        let all = begin.elapsed();
        replicated.push(checks as f64 / all.as_secs_f64());
        sending.push((sent - checked).as_secs_f64() * 1e3);
        receiving.push((all - sent).as_secs_f64() * 1e3);
        receive(other.store());
    }
    // The first round makes the meters.
    let of = |figures: &[f64]| median(figures[1..].iter().copied());
    let shares = plain.iter().zip(&replicated).skip(1).map(|(plain, replicated)| 100.0 * replicated / plain);
    let share = median(shares);
    let [plain, replicated, sending, receiving] =
        [plain, replicated, sending, receiving].map(|figures| of(&figures));
    let stats = node.store().stats();
    let each = |after: u64, before: u64| (after - before) as f64 / (ROUNDS + 1) as f64;
    println!("memory: {:.2} million checks a second, {:.0} ns each", plain / 1e6, 1e9 / plain);
    println!(
        "replicated: {:.2} million checks a second, {:.0} ns each with all",
        replicated / 1e6,
        1e9 / replicated
    );
    println!("{share:.0} % of memory's; sending {sending:.0} ms, receiving {receiving:.0} ms");
    println!(
        "{:.0} messages with {:.0} bytes a second from each node, {:.1} bytes a key",
        each(stats.sent, before.sent),
        each(stats.sent_bytes, before.sent_bytes),
        each(stats.sent_bytes, before.sent_bytes) / KEYS as f64,
    );
}
