//! A node that many tasks synchronize, each at the instant of its own claim: these arrive in another order.

use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::Synced;
use ratelimit_core::store::{MeterId, Mode};
use ratelimit_core::{Limit, SyncCounterStore, Timestamp};
use ratelimit_memory::MemoryStore;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

const TEXTS: [&str; 7] = [
    "60/min burst 10",
    "60/min leaky burst 10",
    "60/min queue burst 10",
    "10/s fixed",
    "10/s",
    "10/s precision 100ms",
    "10/s log",
];

fn is_admitted(store: &impl SyncCounterStore, limit: &Limit, now: Timestamp) -> bool {
    let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
    store.claim_one_now(now, Mode::Charge, &id, 1, &limit.meter_for(b"k")).unwrap().0
}

#[test]
fn synchronizing_seconds_late_changes_no_decision() {
    for text in TEXTS {
        let (node, exact) = (Synced::new(MemoryStore::new()), MemoryStore::new());
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for round in 0..50 {
            let limit: Limit = format!("{text} name r{round}").parse().unwrap();
            let mut steps: Vec<u64> = (0..200).collect();
            for place in (1..200).rev() {
                steps.swap(place, place.saturating_sub(random(60)));
            }
            let mut waiting: Vec<Timestamp> = Vec::new();
            for step in steps {
                let now = START + Duration::from_millis(50 * step);
                let expected = is_admitted(&exact, &limit, now);
                assert_eq!(is_admitted(&node, &limit, now), expected, "{text}, round {round}, step {step}");
                waiting.push(now);
                while waiting.len() > random(40) {
                    let late = waiting.swap_remove(random(waiting.len()));
                    block_on(node.sync(late)).unwrap();
                }
            }
        }
    }
}
