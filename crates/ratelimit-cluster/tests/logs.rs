//! Logs on nodes that count for themselves: units that were charged at different instants, and their refunds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, Replicated, Synced};
use ratelimit_core::{
    Answer, Claims, CounterStore, Decision, ErrorKind, Limit, ManualClock, Promises, RateLimiter, Refund,
    Request, StoreError, SyncCounterStore, Timestamp,
};
use ratelimit_memory::MemoryStore;

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

/// A store that fails on demand.
#[derive(Debug, Default)]
struct Failing {
    store: MemoryStore,
    how: AtomicU8,
}

/// How the store fails.
const BEFORE: u8 = 1;
const AFTER: u8 = 2;
/// After a refund, it fails before each call.
const NO_READING_AFTER_A_REFUND: u8 = 3;

impl Failing {
    fn fail(&self, here: u8) -> Result<(), StoreError> {
        let kind = if here == BEFORE { ErrorKind::Unreachable } else { ErrorKind::Timeout };
        if self.how.load(Ordering::SeqCst) == here {
            return Err(StoreError::new("failing", kind, "on purpose"));
        }
        Ok(())
    }
}

impl CounterStore for Failing {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.fail(BEFORE)?;
        let answer = self.store.claim(claims).await?;
        self.fail(AFTER).map(|()| answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.fail(BEFORE)?;
        self.store.refund(now, refunds).await?;
        let _ =
            self.how.compare_exchange(NO_READING_AFTER_A_REFUND, BEFORE, Ordering::SeqCst, Ordering::SeqCst);
        self.fail(AFTER)
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

type SyncedNode = Node<Synced<Arc<Failing>>>;

/// A shared store, what is left in it, and two nodes.
fn synced(limit: &str) -> (Arc<Failing>, impl Fn(u64) -> u64, [SyncedNode; 2]) {
    let shared = Arc::new(Failing::default());
    let nodes = [(); 2].map(|()| Node::new(Synced::new(shared.clone()), limit));
    let (of, limit) = (shared.clone(), limit.parse::<Limit>().unwrap());
    let left = move |millis| {
        let limiter = RateLimiter::new(&of.store, limit.clone()).with_clock(ManualClock::at(at(millis)));
        limiter.peek_now("k").unwrap().remaining()
    };
    (shared, left, nodes)
}

impl SyncedNode {
    fn sync(&self, millis: u64) {
        block_on(self.store.sync(at(millis))).unwrap();
    }

    fn fail(&self, how: u8, millis: u64) {
        self.store.inner().how.store(how, Ordering::SeqCst);
        assert!(block_on(self.store.sync(at(millis))).is_err());
        self.store.inner().how.store(0, Ordering::SeqCst);
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
