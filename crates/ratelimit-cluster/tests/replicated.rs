//! `Replicated`: what a node that joins learns, and bans that several nodes begin.

mod common;

use common::{Node, at, exchange, join};
use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, ReplicaConfig, Replicated};
use ratelimit_core::{Limits, ManualClock, RateLimiter};

type Replica = Node<Replicated<InProcess>>;

fn with_config(hub: &Hub, config: ReplicaConfig, limit: &str) -> Replica {
    Node::new(Replicated::with_config(hub.transport(), config), limit)
}

#[test]
fn long_logs_fit_the_state_of_few_meters() {
    let hub = Hub::new();
    let config = ReplicaConfig::default().max_keys(10).history_bytes(0);
    let node = || with_config(&hub, config, "10000/h log");
    let mut nodes = vec![node(), node()];
    exchange(&nodes, 0);
    // What a node sends of an interval counts as of one instant on the other, so each has a long log of its own.
    (0..5_000).for_each(|millis| _ = nodes[usize::from(millis % 2 == 0)].charge(1, millis));
    exchange(&nodes, 5_000);
    nodes.push(node());
    exchange(&nodes, 5_000);
    assert!(nodes.iter().all(|node| node.store.has_joined() && node.left(5_000) == 5_000));
}

#[test]
fn a_node_whose_first_hellos_are_lost_asks_again_if_others_count_already() {
    for (keep, is_busy) in [(1 << 20, true), (0, true), (0, false)] {
        let hub = Hub::new();
        let node = || with_config(&hub, ReplicaConfig::default().history_bytes(keep), "100/h log");
        let mut nodes = vec![node(), node()];
        exchange(&nodes, 0);
        nodes[0].charge(20, 0);
        exchange(&nodes, 0);
        nodes.push(node());
        let (mut counted, mut joined_after) = (20, None);
        for interval in 1..9 {
            if is_busy {
                nodes[0].charge(1, 0);
                counted += 1;
            }
            let [old @ .., new] = &nodes[..] else { unreachable!() };
            old.iter().for_each(|node| block_on(node.store.broadcast(at(0))).unwrap());
            receive(new);
            old.iter().for_each(receive);
            block_on(new.store.broadcast(at(0))).unwrap();
            if interval <= 2 {
                old.iter().for_each(|node| while node.store.transport().next().is_some() {});
            }
            (0..3).for_each(|_| nodes.iter().for_each(receive));
            if nodes[2].store.has_joined() {
                joined_after = joined_after.or(Some(interval));
                assert_eq!(nodes[2].left(0), 100 - counted, "{keep} {is_busy} {interval}");
            }
        }
        assert_eq!(joined_after, Some(3), "{keep} {is_busy}");
    }
}

fn receive(node: &Replica) {
    while let Some(message) = node.store.transport().next() {
        block_on(node.store.receive(&message, at(0)));
    }
}

#[test]
fn a_ban_that_several_nodes_begin_is_one_ban() {
    let limits: Limits = "2/min; ban 10min after 5 in 1h".parse().unwrap();
    let retry_at = |node: &Replica, millis| {
        let limiter = RateLimiter::new(&node.store, limits.clone()).with_clock(ManualClock::at(at(millis)));
        limiter.check_now("k").unwrap().retry_after().map(|after| at(millis) + after)
    };
    let offend = |node: &Replica, millis| (0..2 + 5).for_each(|_| _ = retry_at(node, millis));
    let hub = Hub::new();
    let mut nodes = vec![join(&hub, "1/s"), join(&hub, "1/s"), join(&hub, "1/s")];
    exchange(&nodes, 0);
    for (node, millis) in nodes.iter().zip([700, 0, 300]) {
        offend(node, millis);
        assert_eq!(retry_at(node, millis), Some(at(600_000 + millis)));
    }
    exchange(&nodes, 1_000);
    assert!(nodes.iter().all(|node| retry_at(node, 1_000) == Some(at(600_700))));
    // A node that joins has begun one, too.
    nodes.push(join(&hub, "1/s"));
    offend(&nodes[3], 900);
    exchange(&nodes, 2_000);
    assert!(nodes.iter().all(|node| retry_at(node, 2_000) == Some(at(600_900))));
}
