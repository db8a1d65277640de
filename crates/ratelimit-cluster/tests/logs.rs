//! Logs on nodes that count for themselves: units that were charged at different instants, and their refunds.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, Replicated};
use ratelimit_core::{Decision, Limit, ManualClock, RateLimiter, Request, SyncCounterStore, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn at(millis: u64) -> Timestamp {
    START + Duration::from_millis(millis)
}

/// A node with its limiter and clock.
struct Node<S> {
    store: Arc<S>,
    limiter: RateLimiter<Arc<S>, ManualClock>,
    clock: ManualClock,
}

impl<S: SyncCounterStore> Node<S> {
    fn new(store: S, limit: &str) -> Self {
        let (store, clock) = (Arc::new(store), ManualClock::at(START));
        let limiter = RateLimiter::new(store.clone(), limit.parse::<Limit>().unwrap());
        Self { limiter: limiter.with_clock(clock.clone()), store, clock }
    }

    fn check(&self, units: u64, millis: u64) -> Decision<'_> {
        self.clock.set(at(millis));
        self.limiter.check_now(Request::new("k").cost(units)).unwrap()
    }

    fn charge(&self, units: u64, millis: u64) -> Decision<'_> {
        let decision = self.check(units, millis);
        assert!(decision.allowed());
        decision
    }

    fn refund(&self, decision: &Decision<'_>, millis: u64) {
        self.clock.set(at(millis));
        self.limiter.refund_now(decision);
    }

    fn left(&self, millis: u64) -> u64 {
        self.clock.set(at(millis));
        self.limiter.peek_now("k").unwrap().remaining()
    }
}

fn join(hub: &Hub, limit: &str) -> Node<Replicated<InProcess>> {
    Node::new(Replicated::new(hub.transport()), limit)
}

/// Some intervals: all nodes broadcast, and all receive.
fn exchange(nodes: &[Node<Replicated<InProcess>>], millis: u64) {
    for _ in 0..4 {
        nodes.iter().for_each(|node| block_on(node.store.broadcast(at(millis))).unwrap());
        for node in nodes {
            while let Some(message) = node.store.transport().next() {
                block_on(node.store.receive(&message, at(millis)));
            }
        }
    }
}

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
