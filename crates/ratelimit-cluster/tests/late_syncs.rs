//! A node that many tasks synchronize, each at the instant of its own claim: these arrive in another order.

mod common;

use common::{Node, at};
use futures::executor::block_on;
use ratelimit_cluster::Synced;
use ratelimit_memory::MemoryStore;
use ratelimit_testbed::differential::Random;

const TEXTS: [&str; 7] = [
    "60/min burst 10",
    "60/min leaky burst 10",
    "60/min queue burst 10",
    "10/s fixed",
    "10/s",
    "10/s precision 100ms",
    "10/s log",
];

#[test]
fn synchronizing_seconds_late_changes_no_decision() {
    for (text, seed) in TEXTS.iter().flat_map(|text| (1..=50).map(move |seed| (text, seed))) {
        let (node, exact) =
            (Node::new(Synced::new(MemoryStore::new()), text), Node::new(MemoryStore::new(), text));
        let mut random = Random(seed);
        let mut place = |end: usize| usize::try_from(random.below(end as u64)).unwrap();
        // Every 50 ms, up to three seconds out of order.
        let mut steps: Vec<u64> = (0..200).map(|step| 50 * step).collect();
        for nth in (1..200).rev() {
            steps.swap(nth, nth.saturating_sub(place(60)));
        }
        let mut waiting = Vec::new();
        for millis in steps {
            let expected = exact.check(1, millis).allowed();
            assert_eq!(node.check(1, millis).allowed(), expected, "{text}, seed {seed}, {millis} ms");
            waiting.push(millis);
            while waiting.len() > place(40) {
                let late = waiting.swap_remove(place(waiting.len()));
                block_on(node.store.sync(at(late))).unwrap();
            }
        }
    }
}
