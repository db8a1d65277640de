//! Refunds on nodes that count for themselves, of units that have drained, were not sent yet, or may not have arrived.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{AFTER, BEFORE, LOST, NO_READING_AFTER_A_REFUND, Node, at, exchange, join, synced};
use futures::executor::block_on;
use proptest::prelude::*;
use ratelimit_cluster::{Hub, Leased, Replicated, Synced};
use ratelimit_core::{Clock, CounterStore, Limit, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memory::MemoryStore;

#[test]
fn what_could_not_be_sent_is_sent_in_its_order() {
    let (_shared, left_in_store, [node, _]) = synced("60/min burst 60");
    let first = node.charge(30, 0);
    node.sync(0);
    node.settle(&first, 1, 1_000);
    node.charge(60, 31_000);
    node.fail(BEFORE, 32_000);
    node.sync(33_000);
    assert_eq!((node.left(33_000), left_in_store(33_000)), (2, 2));
}

#[test]
fn refunds_of_a_segment_are_sent_with_its_charges() {
    let (_shared, left_in_store, [node, _]) = synced("2000/min");
    let first = node.charge(1_000, 59_800);
    node.charge(500, 60_100);
    node.settle(&first, 100, 60_200);
    node.sync(60_500);
    assert_eq!((node.left(60_600), left_in_store(60_600)), (1_401, 2_000), "the store has other segments");
    let newcomer = Node::new(Synced::new(node.store.inner().clone()), "2000/min");
    newcomer.charge(1, 60_600);
    newcomer.sync(60_600);
    assert_eq!(newcomer.left(60_600), 1_400);
}

#[test]
fn refunds_of_a_rate_are_sent_with_its_charges() {
    let (_shared, left_in_store, [node, _]) = synced("60/min burst 60 name p");
    let other = Node::new(node.store.clone(), "600/min burst 60 name p");
    let first = node.charge(20, 0);
    other.charge(5, 100);
    node.settle(&first, 2, 200);
    node.sync(300);
    assert_eq!((node.left(300), left_in_store(300)), (55, 55));
}

#[test]
fn units_that_have_drained_are_not_refunded_in_place_of_later_ones() {
    let (_shared, left_in_store, [node, other]) = synced("100/s burst 100");
    let first = node.charge(50, 0);
    node.sync(50);
    node.settle(&first, 10, 100);
    other.charge(100, 950);
    other.sync(950);
    node.sync(1_000);
    assert_eq!((node.left(1_060), left_in_store(1_060)), (11, 11));
    // A node by itself is exact, however late it sends them.
    let (_shared, left_in_store, [node, _]) = synced("100/s burst 100");
    let first = node.charge(50, 0);
    node.sync(50);
    node.settle(&first, 10, 100);
    node.charge(100, 300);
    node.sync(1_000);
    assert_eq!((node.left(1_000), left_in_store(1_000)), (70, 70));

    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "100/s burst 100"));
    exchange(&nodes, 0);
    let first = nodes[0].charge(50, 0);
    exchange(&nodes, 50);
    nodes[0].settle(&first, 10, 100);
    nodes[1].charge(100, 950);
    exchange(&nodes, 1_050);
    assert_eq!(nodes.each_ref().map(|node| node.left(1_060)), [11, 11]);
}

#[test]
fn refunds_of_charges_that_may_not_have_arrived_remove_no_other_units() {
    for limit in ["10000/h fixed", "10000/h", "10000/h burst 10000", "10000/h log"] {
        for how in [LOST, AFTER] {
            let (_shared, left_in_store, [node, other]) = synced(limit);
            other.charge(5_000, 0);
            other.sync(0);
            let lost = node.charge(1_000, 1_000);
            node.fail(how, 1_000);
            let later = node.charge(200, 2_000);
            node.sync(2_000);
            node.settle(&lost, 100, 3_000);
            node.sync(3_000);
            let is_window = limit.ends_with("fixed") || limit.ends_with("/h");
            if !is_window {
                // A log is refunded by the instant of the charge, whether it has arrived or not.
                let is_log = limit.ends_with("log");
                let arrived = match (how, is_log) {
                    (AFTER, false) => 1_000,
                    (AFTER, true) => 100,
                    _ => 0,
                };
                let left = left_in_store(3_000);
                assert!((4_800 - arrived..=4_810 - arrived).contains(&left), "{limit}: {left}, {how}");
            }
            other.charge(1, 3_000);
            other.sync(3_000);
            assert!(other.left(3_000) <= 4_810, "{limit}: {}", other.left(3_000));
            // What this node knows of is refunded, and the lost charge of which 100 are left stays counted.
            node.refund(&later, 4_000);
            node.sync(4_000);
            assert!(node.left(4_000) <= 4_920, "{limit}: {}", node.left(4_000));
        }
    }
}

#[test]
fn an_outage_leaves_no_more_in_the_store_than_the_limit_for_each_node() {
    for limit in ["100/min burst 100", "100/min log"] {
        let (shared, _, nodes) = synced(limit);
        shared.how.store(BEFORE, Ordering::SeqCst);
        for second in 0..1_200 {
            for node in &nodes {
                while node.check(1, second * 1_000).allowed() {}
                assert!(block_on(node.store.sync(at(second * 1_000))).is_err());
            }
        }
        shared.how.store(0, Ordering::SeqCst);
        nodes.iter().for_each(|node| node.sync(1_200_000));
        // It closes the limit for as long as the units of two nodes take.
        let newcomer = Node::new(Synced::new(shared.clone()), limit);
        newcomer.charge(1, 1_202_000 + 60_000);
        newcomer.sync(1_202_000 + 60_000);
        assert!(newcomer.left(1_202_000 + 60_000) > 0, "{limit}");
    }
}

#[test]
fn after_a_lost_update_the_others_with_refunds_count_in_time_again() {
    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "1000/h log"));
    exchange(&nodes, 0);
    let [one, other] = &nodes;
    let mut before = one.charge(2, 100);
    for interval in 1..20 {
        let millis = interval * 1_000;
        let next = one.charge(2, millis);
        one.settle(&before, 1, millis);
        before = next;
        nodes.iter().for_each(|node| block_on(node.store.broadcast(at(millis))).unwrap());
        if interval == 3 {
            while other.store.transport().next().is_some() {}
        }
        // What is requested is sent at once.
        for _ in 0..3 {
            for node in &nodes {
                while let Some(message) = node.store.transport().next() {
                    block_on(node.store.receive(&message, at(millis)));
                }
            }
        }
        if !(3..7).contains(&interval) {
            assert_eq!(one.left(millis), other.left(millis), "{interval}");
        }
    }
}

#[test]
fn parts_of_units_are_refunded_exactly() {
    let (shared, _, [node, _]) = synced("10/h burst 5");
    let taken = ["p", "q"].map(|key| node.check_key(key, 1, 0));
    node.refund(&taken[0], 1_000);
    node.refund(&taken[1], 1_500);
    node.sync(2_000);
    let in_store = |key: &'static str, millis| {
        let limiter = RateLimiter::new(&shared.store, "10/h burst 5".parse::<Limit>().unwrap());
        limiter.with_clock(ManualClock::at(at(millis))).peek_now(key).unwrap().remaining()
    };
    assert_eq!(["p", "q"].map(|key| in_store(key, 2_000)), [5, 5], "charged and refunded in one interval");
    let taken = ["p", "q"].map(|key| node.check_key(key, 1, 2_000));
    node.sync(2_500);
    node.refund(&taken[0], 3_000);
    node.refund(&taken[1], 3_500);
    node.sync(4_000);
    assert_eq!(["p", "q"].map(|key| in_store(key, 4_000)), [5, 5], "charged before");

    let (_shared, left_in_store, [node, _]) = synced("60/min burst 20");
    let first = node.charge(3, 0);
    node.charge(10, 0);
    node.sync(0);
    node.refund(&first, 500);
    node.sync(500);
    assert_eq!((node.left(1_000), left_in_store(1_000)), (10, 10), "half of a unit has drained");
}

#[test]
fn refunds_are_made_however_early_others_in_the_same_call_are() {
    let (shared, _, [node, other]) = synced("100/s burst 1000");
    let of_q = node.check_key("q", 500, 0);
    let of_p = node.check_key("p", 50, 0);
    node.sync(50);
    node.settle(&of_p, 10, 200);
    node.settle(&of_q, 470, 300);
    assert!(other.check_key("q", 1, 900).allowed());
    other.sync(900);
    node.sync(1_000);
    let limiter = RateLimiter::new(&shared.store, "100/s burst 1000".parse::<Limit>().unwrap());
    let limiter = limiter.with_clock(ManualClock::at(at(1_000)));
    assert_eq!(limiter.peek_now("q").unwrap().remaining(), 629);
}

#[test]
fn refunds_are_made_once_if_one_of_several_calls_fails() {
    // In each round, the units of other keys are the last ones of the call that succeeds.
    for _ in 0..12 {
        let (shared, _, [node, other]) = synced("60/min burst 60");
        let keys: Vec<&'static str> = (0..100).map(|key| &*format!("{key}").leak()).collect();
        let taken: Vec<_> = keys.iter().map(|key| node.check_key(key, 30, 0)).collect();
        node.sync(0);
        for key in &keys {
            assert!(other.check_key(key, 30, 0).allowed());
        }
        other.sync(0);
        // Half of them when a unit has drained in part.
        let (whole, in_part) = taken.split_at(50);
        whole.iter().for_each(|decision| node.refund(decision, 0));
        in_part.iter().for_each(|decision| node.refund(decision, 500));
        node.fail(NO_READING_AFTER_A_REFUND, 1_000);
        node.sync(2_000);
        let limiter = RateLimiter::new(&shared.store, "60/min burst 60".parse::<Limit>().unwrap());
        let limiter = limiter.with_clock(ManualClock::at(at(2_000)));
        for (place, key) in keys.iter().enumerate() {
            let expected = if place < 50 { 32 } else { 31 };
            assert_eq!(limiter.peek_now(*key).unwrap().remaining(), expected);
        }
    }
}

#[test]
fn refunds_of_units_before_others_are_made_if_the_bucket_was_never_empty() {
    let (_shared, left_in_store, [node, other]) = synced("100/s burst 1000");
    let first = node.charge(100, 0);
    node.charge(400, 10);
    node.sync(50);
    node.settle(&first, 10, 100);
    other.charge(1, 900);
    other.sync(900);
    node.sync(1_000);
    assert_eq!((node.left(1_000), left_in_store(1_000)), (689, 689));

    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "100/s burst 1000"));
    exchange(&nodes, 0);
    let first = nodes[0].charge(100, 1_000);
    nodes[0].charge(400, 1_010);
    exchange(&nodes, 1_050);
    nodes[0].settle(&first, 10, 1_100);
    nodes[1].charge(1, 1_900);
    exchange(&nodes, 2_000);
    assert_eq!(nodes.each_ref().map(|node| node.left(2_000)), [689, 689]);

    let (_shared, left_in_store, [node, other]) = synced("60/min burst 60");
    let first = node.charge(10, 0);
    node.sync(0);
    node.charge(5, 1_000);
    node.settle(&first, 1, 1_000);
    other.charge(5, 3_000);
    other.sync(3_000);
    node.sync(3_500);
    assert_eq!(left_in_store(4_000), 53, "of 20 units, 9 are refunded and 4 have drained");
}

#[test]
fn units_of_a_log_that_have_left_are_not_sent() {
    let (_shared, left_in_store, [node, other]) = synced("100/s log");
    node.charge(100, 0);
    other.charge(1, 1_020);
    other.sync(1_020);
    node.sync(1_050);
    assert_eq!(left_in_store(1_060), 99);
}

#[test]
fn units_of_a_log_that_expired_before_they_could_be_sent_are_not_sent() {
    let (_shared, left_in_store, [node, other]) = synced("100/min log");
    node.charge(100, 0);
    node.fail(BEFORE, 1_000);
    other.charge(1, 60_500);
    other.sync(60_500);
    node.sync(60_800);
    assert_eq!(left_in_store(61_000), 99);
}

#[test]
fn refunds_that_arrive_before_earlier_messages_are_counted_after_them() {
    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "10/min log"));
    exchange(&nodes, 0);
    let take_all = || {
        let next = || nodes[1].store.transport().next();
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    let first = nodes[0].charge(1, 60_000);
    block_on(nodes[0].store.broadcast(at(60_100))).unwrap();
    nodes[0].charge(3, 60_200);
    nodes[0].refund(&first, 60_300);
    block_on(nodes[0].store.leave(at(60_400))).unwrap();
    for message in take_all().iter().rev() {
        block_on(nodes[1].store.receive(message, at(60_500)));
    }
    assert_eq!(nodes[1].left(60_600), 7);
}

#[test]
fn refunds_that_arrive_after_their_units_have_left_take_no_others() {
    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "10/min log"));
    exchange(&nodes, 0);
    let first = nodes[0].charge(3, 60_000);
    exchange(&nodes, 60_100);
    nodes[0].refund(&first, 119_900);
    block_on(nodes[0].store.broadcast(at(119_950))).unwrap();
    nodes[1].charge(4, 121_000);
    while let Some(message) = nodes[1].store.transport().next() {
        block_on(nodes[1].store.receive(&message, at(121_100)));
    }
    assert_eq!(nodes[1].left(121_200), 6);
}

/// What a node does, and how many milliseconds later.
#[derive(Clone, Copy, Debug)]
enum Step {
    Charge(u64),
    /// Which of the charges, and how many of its units were used.
    Settle(usize, u64),
    Sync,
}

fn any_step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        3 => (1_u64..15).prop_map(Step::Charge),
        3 => (0_usize..6, 0_u64..15).prop_map(|(nth, used)| Step::Settle(nth, used)),
        2 => Just(Step::Sync),
    ];
    (prop_oneof![3 => 0_u64..900, 1 => 900_u64..20_000], step)
}

#[test]
fn a_reset_on_a_replicated_node_leaves_its_unsent_charges_and_refunds_to_the_others() {
    for limit in ["100/min", "100/min burst 100", "100/min log"] {
        let hub = Hub::new();
        let nodes = [(); 2].map(|()| join(&hub, limit));
        exchange(&nodes, 0);
        let [node, other] = &nodes;
        let early = node.charge(5, 0);
        exchange(&nodes, 0);
        node.refund(&early, 0);
        node.charge(20, 0);
        node.limiter.reset_now("k").unwrap();
        node.charge(3, 0);
        exchange(&nodes, 0);
        assert_eq!((node.left(0), other.left(0)), (97, 77), "{limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_node_by_itself_is_exact_however_late_it_sends_its_refunds(
        limit in prop_oneof![Just("60/min burst 20"), Just("60/min burst 20 leaky"), Just("20/min")],
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let (_shared, left_in_store, [node, _]) = synced(limit);
        let alone = Node::new(MemoryStore::new(), limit);
        let (mut now, mut charged, mut refunds) = (0, Vec::new(), 0);
        for (later, step) in steps {
            now += later;
            match step {
                Step::Charge(units) => {
                    let both = (node.check(units, now), alone.check(units, now));
                    prop_assert!(!both.0.allowed() || both.1.allowed());
                    if both.0.allowed() {
                        charged.push((both, units));
                    } else if both.1.allowed() {
                        alone.refund(&both.1, now);
                    }
                }
                Step::Settle(nth, used) if nth < charged.len() => {
                    let (both, units) = charged.swap_remove(nth);
                    node.settle(&both.0, used.min(units), now);
                    alone.settle(&both.1, used.min(units), now);
                    refunds += 1;
                }
                Step::Settle(..) => {}
                Step::Sync => {
                    node.sync(now);
                    prop_assert_eq!(node.left(now), left_in_store(now).min(node.left(now)));
                }
            }
            let (left, exact) = (node.left(now), alone.left(now));
            prop_assert!(left <= exact && exact <= left + refunds, "{} of {} after {:?}", left, exact, step);
        }
    }
}

/// A clock that goes on by 600 ms each time it is read.
struct Passing(ManualClock);

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        self.0.set(now + Duration::from_millis(600));
        now
    }
}

/// What is used of the second in which 10 units were estimated and 15 were used.
async fn used_after_a_settlement(store: impl CounterStore) -> u64 {
    let clock = ManualClock::at(at(0));
    let limit = "100/s fixed".parse::<Limit>().unwrap();
    let limiter = RateLimiter::new(store, limit).with_clock(Passing(clock.clone()));
    let decision = limiter.check(Request::new("k").cost(10)).await.unwrap();
    limiter.settle(&decision, 15).await.unwrap();
    clock.set(at(999));
    100 - limiter.peek("k").await.unwrap().remaining()
}

#[test]
fn a_settlement_is_charged_where_the_estimate_was_although_time_passes_meanwhile() {
    let used = block_on(async {
        [
            used_after_a_settlement(Replicated::new(Hub::new().transport())).await,
            used_after_a_settlement(Synced::new(MemoryStore::new())).await,
            used_after_a_settlement(Leased::new(MemoryStore::new())).await,
        ]
    });
    assert_eq!(used, [15; 3]);
}
