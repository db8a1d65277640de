//! A node of `Synced` that refuses a key: it learns of what other nodes have given back or reset.

mod common;

use std::sync::atomic::Ordering;

use common::{BEFORE, Node, SyncedNode, at, synced};
use ratelimit_cluster::Synced;
use ratelimit_core::{Decision, Limits, ManualClock, RateLimiter, Request};
use ratelimit_memory::MemoryStore;

const TEXTS: [&str; 9] = [
    "20/min fixed",
    "20/min",
    "20/min precision 15s",
    "20/min precision 15s strict",
    "20/min burst 15",
    "20/min leaky burst 15",
    "20/min queue burst 15",
    "20/min log",
    "20 at once",
];

/// The second node charges two units, learns those of the first, and refuses. Returns the last charge of the first.
fn fill<'n>([node, other]: &'n [SyncedNode; 2], text: &str) -> Decision<'n> {
    while node.left(0) > 3 {
        node.charge(1, 0);
    }
    let last = node.charge(1, 0);
    node.sync(0);
    other.charge(2, 0);
    other.sync(0);
    assert!(!other.check(1, 0).allowed(), "{text}");
    last
}

/// The second node refuses until it has synchronized.
fn learns(other: &SyncedNode, what: &str) {
    assert!(!other.check(1, 0).allowed(), "{what}");
    other.sync(0);
    assert!(other.check(1, 0).allowed(), "{what}");
}

#[test]
fn a_refusing_node_learns_of_resets() {
    for text in TEXTS {
        let (_, _, nodes) = synced(text);
        fill(&nodes, text);
        let [node, other] = &nodes;
        node.limiter.reset_now("k").unwrap();
        node.sync(0);
        learns(other, text);
    }
}

#[test]
fn a_refusing_node_learns_of_refunds() {
    for text in TEXTS {
        let (_, _, nodes) = synced(text);
        let last = fill(&nodes, text);
        let [node, other] = &nodes;
        node.refund(&last, 0);
        node.sync(0);
        learns(other, text);
        assert!(!other.check(1, 0).allowed(), "{text}: one unit was given back");
    }
}

#[test]
fn a_reading_that_failed_is_made_after_the_next_refusal() {
    for text in TEXTS {
        let (_, _, nodes) = synced(text);
        fill(&nodes, text);
        let [node, other] = &nodes;
        node.limiter.reset_now("k").unwrap();
        node.sync(0);
        other.fail(BEFORE, 0);
        learns(other, text);
    }
}

#[test]
fn a_refused_key_is_read_once_an_interval() {
    for text in TEXTS {
        let (shared, _, nodes) = synced(text);
        fill(&nodes, text);
        let other = &nodes[1];
        let calls = |millis| {
            shared.calls.store(0, Ordering::SeqCst);
            other.sync(millis);
            shared.calls.load(Ordering::SeqCst)
        };
        // Ended segments of a window are read a few times.
        for millis in 0..4 {
            other.check(1, millis);
            calls(millis);
        }
        assert_eq!(calls(4), 0, "{text}: no refusal");
        for _ in 0..10 {
            assert!(!other.check(1, 4).allowed());
        }
        assert_eq!((calls(4), calls(4), other.left(4)), (1, 0, 0), "{text}");
    }
}

#[test]
fn charges_and_refunds_after_a_refusal_are_sent() {
    for text in TEXTS {
        let (_, _, [node, other]) = synced(text);
        let all = node.left(0);
        let first = node.charge(all, 0);
        assert!(!node.check(1, 0).allowed());
        node.sync(0);
        assert!(!node.check(1, 0).allowed());
        node.refund(&first, 0);
        node.charge(3, 0);
        assert!(!node.check(all, 0).allowed());
        node.sync(0);
        assert_eq!(node.left(0), all - 3, "{text}");
        other.charge(1, 0);
        other.sync(0);
        assert_eq!(other.left(0), all - 4, "{text}");
    }
}

/// The earlier segments were read for the last time.
#[test]
fn a_refusing_node_learns_of_resets_of_ended_segments() {
    let texts = [
        ("20/min", 60_000),
        ("20/min precision 15s", 15_000),
        ("20/min precision 15s strict", 15_000),
        ("3600/h precision 1s strict", 1_000),
    ];
    // In how many segments the node has charged before; whether it has in the newest one; and how long it takes to learn.
    for ((text, length), (before, newest, intervals)) in
        texts.into_iter().flat_map(|text| [(1, 0, 1), (1, 1, 1), (3, 0, 2), (3, 1, 2)].map(|way| (text, way)))
    {
        if before > 1 && text == "20/min" {
            continue;
        }
        let (shared, _, [node, other]) = synced(text);
        let all = node.left(0);
        node.charge(all - before - newest - 1, 0);
        node.sync(0);
        for segment in 0..before {
            other.charge(1, segment * length);
            other.sync(segment * length);
        }
        let now = before * length;
        other.charge(newest, now);
        for millis in now..now + 9 {
            assert!(!other.check(all, millis).allowed(), "{text}");
            other.sync(millis);
        }
        node.clock.set(at(now + 9));
        node.limiter.reset_now("k").unwrap();
        node.sync(now + 9);
        // What was charged after the reset does not hide it.
        node.charge(1, now + 9);
        node.sync(now + 9);
        for (interval, calls) in (0..intervals).zip([2, before]) {
            shared.calls.store(0, Ordering::SeqCst);
            assert!(!other.check(all - 1, now + 9).allowed(), "{text}");
            other.sync(now + 9 + interval);
            assert_eq!(shared.calls.load(Ordering::SeqCst) as u64, calls, "{text}, {interval}");
        }
        assert_eq!(other.left(now + 12), all - 1, "{text}");
    }
}

#[test]
fn a_charge_between_the_readings_of_a_reset_does_not_hide_it() {
    for text in ["20/min precision 15s", "20/min precision 15s strict"] {
        let (_, _, [node, other]) = synced(text);
        node.charge(16, 0);
        node.sync(0);
        for segment in 0..3 {
            other.charge(1, segment * 15_000);
            other.sync(segment * 15_000);
        }
        for millis in 45_000..45_009 {
            assert!(!other.check(20, millis).allowed(), "{text}");
            other.sync(millis);
        }
        node.clock.set(at(45_009));
        node.limiter.reset_now("k").unwrap();
        node.sync(45_009);
        assert!(!other.check(20, 45_009).allowed(), "{text}");
        other.sync(45_009);
        other.charge(1, 45_009);
        other.sync(45_010);
        assert_eq!(other.left(45_011), 19, "{text}");
    }
}

/// The store owes the units of the other rate for hours. They are not all of this node's rate.
#[test]
fn a_reading_of_units_at_a_slower_rate_refuses_only_them() {
    let (_, _, [node, other]) = synced("100/s burst 100 name x");
    let slow: Limits = "10/h burst 100 name x".parse().unwrap();
    let slow = RateLimiter::new(node.store.clone(), slow).with_clock(ManualClock::at(at(200)));
    other.charge(100, 0);
    other.sync(0);
    assert!(slow.check_now(Request::new("k").cost(50)).unwrap().allowed());
    node.sync(200);
    assert!(!other.check(100, 300).allowed());
    other.sync(600);
    assert!(!other.check(100, 3_000).allowed());
    other.sync(3_000);
    assert!(other.check(40, 3_000).allowed());
}

#[test]
fn a_ban_that_is_lifted_on_one_node_ends_on_the_others() {
    let limits: Limits = "2/min; ban 1h after 2 in 1h".parse().unwrap();
    let (_, _, [node, other]) = synced("1/min");
    let limiter = |node: &SyncedNode| {
        RateLimiter::new(node.store.clone(), limits.clone()).with_clock(ManualClock::at(at(0)))
    };
    let [first, second] = [&node, &other].map(limiter);
    let ban = |limiter: &RateLimiter<std::sync::Arc<Synced<_>>, ManualClock>| {
        (0..10).for_each(|_| _ = limiter.check_now("k").unwrap());
    };
    ban(&second);
    other.sync(0);
    first.reset_now("k").unwrap();
    node.sync(0);
    assert!(!second.check_now("k").unwrap().allowed());
    other.sync(0);
    assert!(second.check_now(Request::new("k")).unwrap().allowed());
}

/// When the key is read, the bucket is empty, and the store does not say since when.
#[test]
fn a_reading_changes_nothing_for_a_late_caller() {
    for text in TEXTS {
        let (_, _, [node, _]) = synced(text);
        let alone = Node::new(MemoryStore::new(), text);
        node.charge(node.left(0), 0);
        alone.charge(alone.left(0), 0);
        node.sync(0);
        assert!(!node.check(1, 0).allowed());
        node.sync(45_500);
        assert_eq!(node.left(39_200), alone.left(39_200), "{text}");
    }
}
