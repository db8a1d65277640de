//! Logs on nodes that count for themselves: units that were charged at different instants, and their refunds.

mod common;

use std::sync::atomic::Ordering;

use common::{AFTER, BEFORE, LOST, NO_READING_AFTER_A_REFUND, at, exchange, join, synced};
use futures::executor::block_on;
use ratelimit_cluster::Hub;

#[test]
fn replicated_nodes_return_all_units_that_were_charged_at_different_instants() {
    let hub = Hub::new();
    let nodes = [(); 2].map(|()| join(&hub, "20 at once"));
    exchange(&nodes, 0);
    let [one, other] = &nodes;
    let (first, second, third) = (one.charge(1, 100), other.charge(1, 200), other.charge(1, 300));
    exchange(&nodes, 1_000);
    assert_eq!(nodes.each_ref().map(|node| node.left(1_000)), [17, 17]);
    one.refund(&first, 1_000);
    exchange(&nodes, 1_000);
    other.refund(&second, 2_000);
    other.refund(&third, 2_000);
    exchange(&nodes, 2_000);
    assert_eq!(nodes.each_ref().map(|node| node.left(2_000)), [20, 20]);
}

#[test]
fn units_of_replicated_nodes_do_not_replace_each_other() {
    for is_joining in [false, true] {
        let hub = Hub::new();
        let mut nodes = vec![join(&hub, "3/h log")];
        exchange(&nodes, 0);
        if is_joining {
            nodes[0].charge(3, 0);
            nodes.push(join(&hub, "3/h log"));
        } else {
            nodes.push(join(&hub, "3/h log"));
            exchange(&nodes, 0);
            nodes[0].charge(3, 0);
        }
        let taken = nodes[1].charge(3, 0);
        exchange(&nodes, 1_000);
        nodes[1].refund(&taken, 1_000);
        exchange(&nodes, 1_000);
        for node in &nodes {
            assert!(!node.check(1, 2_000).allowed(), "{is_joining}: three are charged");
        }
    }
}

#[test]
fn synced_nodes_refund_what_was_charged_since_the_last_sync() {
    for is_away in [false, true] {
        let (_shared, left_in_store, [node, other]) = synced("20 at once");
        let (first, second) = (node.charge(1, 100), node.charge(1, 200));
        if is_away {
            node.fail(BEFORE, 300);
        }
        node.refund(&first, 400);
        node.sync(1_000);
        assert_eq!((node.left(1_000), left_in_store(1_000)), (19, 19), "{is_away}");
        other.charge(1, 1_000);
        other.sync(1_000);
        assert_eq!(other.left(1_000), 18, "{is_away}");
        node.refund(&second, 2_000);
        node.sync(2_000);
        assert_eq!((node.left(2_000), left_in_store(2_000)), (19, 19), "{is_away}");
    }
}

#[test]
fn a_synced_node_keeps_its_units_when_other_nodes_have_filled_the_log() {
    let (_shared, left_in_store, [node, other]) = synced("3/h log");
    node.charge(2, 0);
    node.sync(0);
    let taken = other.charge(3, 1_000);
    other.sync(1_000);
    other.limiter.settle_now(&taken, 1).unwrap();
    other.sync(1_000);
    node.charge(1, 2_000);
    node.sync(2_000);
    assert!(!node.check(1, 3_000).allowed(), "it has charged three itself");
    assert_eq!(left_in_store(3_000), 0);
}

#[test]
fn a_refund_whose_answer_is_lost_removes_no_other_units() {
    let (_shared, left_in_store, [node, _]) = synced("3/h log");
    let taken = node.charge(1, 0);
    node.charge(1, 1_000);
    node.sync(1_000);
    node.refund(&taken, 2_000);
    node.fail(AFTER, 2_000);
    node.charge(1, 3_000);
    node.sync(3_000);
    assert_eq!((node.left(3_000), left_in_store(3_000)), (1, 1));
}

#[test]
fn a_charge_that_was_refunded_before_the_sync_holds_no_other_refund_back() {
    let (_shared, left_in_store, [node, _]) = synced("20 at once");
    let first = node.charge(1, 100);
    node.sync(1_000);
    let second = node.charge(1, 1_100);
    node.refund(&second, 1_200);
    node.refund(&first, 1_300);
    node.sync(2_000);
    assert_eq!((node.left(2_000), left_in_store(2_000)), (20, 20));
}

#[test]
fn a_refund_of_an_old_charge_does_not_read_the_log_as_of_then() {
    let (_shared, _, [node, _]) = synced("10/min log");
    for seconds in [0, 45] {
        node.charge(4, 1_000 * seconds);
        node.sync(1_000 * seconds);
    }
    // This charge removes the expired units of the first, here and in the store.
    let taken = [57_000, 61_000].map(|millis| node.charge(1, millis));
    for taken in taken.iter().rev() {
        node.refund(taken, 61_500);
    }
    node.sync(62_000);
    assert_eq!(node.left(62_000), 6, "the four of the 45th second count");
}

#[test]
fn charges_that_were_put_back_are_not_lost_if_later_ones_are_refunded() {
    let (_shared, left_in_store, [node, _]) = synced("10/h log");
    let first = node.charge(1, 1_000);
    node.sync(1_000);
    node.charge(1, 5_000);
    node.fail(BEFORE, 5_500);
    let last = node.charge(1, 6_000);
    node.refund(&first, 6_500);
    node.fail(BEFORE, 7_000);
    node.sync(8_000);
    node.refund(&last, 9_000);
    node.sync(9_000);
    assert_eq!((node.left(9_000), left_in_store(9_000)), (9, 9));
}

#[test]
fn a_log_is_not_decided_by_a_reading_from_before_its_last_change() {
    let (shared, left_in_store, [node, _]) = synced("10/h log");
    let first = node.charge(5, 0);
    node.sync(0);
    node.charge(5, 10_000);
    node.refund(&first, 11_000);
    // The refund arrives, and the reading after it fails.
    shared.how.store(NO_READING_AFTER_A_REFUND, Ordering::SeqCst);
    assert!(block_on(node.store.sync(at(12_000))).is_err());
    shared.how.store(0, Ordering::SeqCst);
    assert_eq!((node.left(12_000), left_in_store(12_000)), (5, 5));
}

#[test]
fn many_refunds_of_a_log_take_few_calls() {
    let (shared, left_in_store, [node, _]) = synced("20 at once");
    let mut before = node.charge(1, 0);
    for nth in 1..1_000 {
        let taken = node.charge(1, nth);
        node.refund(&before, nth);
        before = taken;
    }
    node.sync(1_000);
    assert_eq!((node.left(1_000), left_in_store(1_000)), (19, 19));
    // One to charge what is left, and one to read. (This store takes the claims of a batch one by one.)
    assert_eq!(shared.calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_failed_sync_loses_no_unit_that_is_held() {
    let (_shared, left_in_store, [node, _]) = synced("20 at once");
    let first = node.charge(1, 100);
    node.charge(1, 200);
    node.refund(&first, 250);
    node.fail(BEFORE, 300);
    node.sync(1_000);
    assert_eq!((node.left(1_000), left_in_store(1_000)), (19, 19));
}

#[test]
fn a_lost_answer_leaves_no_more_than_what_is_held() {
    for how in [AFTER, LOST] {
        let (_shared, left_in_store, [node, other]) = synced("20 at once");
        let mut before = node.charge(1, 0);
        for nth in 1..1_000 {
            let taken = node.charge(1, nth);
            node.refund(&before, nth);
            before = taken;
        }
        node.fail(how, 1_000);
        node.refund(&before, 1_500);
        node.sync(2_000);
        assert_eq!(left_in_store(2_000), 20, "{how}");
        other.charge(1, 2_000);
        other.sync(2_000);
        assert_eq!(other.left(2_000), 19, "{how}");
    }
}
