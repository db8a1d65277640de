//! A node that makes no more claims forgets the keys of a burst.

mod common;

use common::{SyncedNode, at, exchange, join, synced};
use ratelimit_cluster::Hub;

#[test]
fn replicas_without_claims_become_empty() {
    let hub = Hub::new();
    let nodes = [join(&hub, "1/s"), join(&hub, "1/s")];
    exchange(&nodes, 0);
    for key in 0..1_000_u64 {
        assert!(nodes[0].limiter.check_now(key.to_string().as_str()).unwrap().allowed());
    }
    exchange(&nodes, 0);
    assert_eq!(nodes.each_ref().map(|node| node.store.len()), [1_000, 1_000]);
    for second in 60..85 {
        exchange(&nodes, second * 1_000);
    }
    assert_eq!(nodes.each_ref().map(|node| node.store.len()), [0, 0]);
}

#[test]
fn after_a_large_burst_a_share_of_the_keys_expires_in_each_interval() {
    let (_, _, [node, _]): (_, _, [SyncedNode; 2]) = synced("1/s");
    node.clock.set(at(0));
    for key in 0..50_000_u64 {
        assert!(node.limiter.check_now(key.to_string().as_str()).unwrap().allowed());
    }
    node.sync(0);
    assert_eq!(node.store.len(), 50_000);
    for second in 60..360 {
        node.sync(second * 1_000);
    }
    assert_eq!(node.store.len(), 0);
}
