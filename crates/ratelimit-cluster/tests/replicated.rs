//! `Replicated`: what a node that joins learns.

mod common;

use common::{Node, exchange};
use ratelimit_cluster::{Hub, InProcess, ReplicaConfig, Replicated};

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
