//! `Replicated` step by step: messages that are late, lost, repeated, out of order or cannot be sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, ReplicaConfig, Replicated, Transport, TransportError};
use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{
    Clock as _, CounterStore, Limit, ManualClock, RateLimiter, Request, SyncCounterStore, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TEXTS: [&str; 8] = [
    "100/min fixed",
    "100/min",
    "100/min precision 15s",
    "100/min precision 15s strict",
    "100/min burst 100",
    "100/min leaky burst 100",
    "100/min queue burst 100",
    "100/min log",
];

/// A transport that can fail, with messages that the test delivers.
#[derive(Debug)]
struct Wire {
    inner: InProcess,
    is_down: AtomicBool,
    /// Whether messages are sent although the sender gets an error.
    is_ambiguous: AtomicBool,
    largest: usize,
}

impl Transport for Wire {
    fn largest(&self) -> usize {
        self.largest
    }

    async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        let failed = self.is_down.load(Ordering::SeqCst);
        if !failed || self.is_ambiguous.load(Ordering::SeqCst) {
            self.inner.send(messages).await?;
        }
        if failed { Err(TransportError::new("test", "it is down")) } else { Ok(()) }
    }

    async fn receive(&self) -> Result<Arc<[u8]>, TransportError> {
        self.inner.receive().await
    }
}

type Node = Replicated<Wire>;

fn node(hub: &Hub, config: ReplicaConfig) -> Node {
    let (is_down, is_ambiguous) = (AtomicBool::default(), AtomicBool::default());
    let wire = Wire { inner: hub.transport(), is_down, is_ambiguous, largest: 1_024 };
    Replicated::with_config(wire, config)
}

/// Nodes that have joined.
fn fleet<const N: usize>(hub: &Hub) -> [Node; N] {
    let nodes = [(); N].map(|()| node(hub, ReplicaConfig::default()));
    for _ in 0..4 {
        round(&nodes, START);
    }
    assert!(nodes.iter().all(|node| node.has_joined() && node.peers() == N - 1));
    nodes
}

fn broadcast(node: &Node, now: Timestamp) {
    block_on(node.broadcast(now)).unwrap();
}

/// All messages in the inbox of a node.
fn inbox(node: &Node) -> Vec<Arc<[u8]>> {
    std::iter::from_fn(|| node.transport().inner.next()).collect()
}

fn receive(node: &Node, messages: &[Arc<[u8]>], now: Timestamp) {
    messages.iter().for_each(|message| block_on(node.receive(message, now)));
}

/// Delivers messages until there are no more.
fn deliver_all(nodes: &[Node], now: Timestamp) {
    loop {
        let boxes: Vec<_> = nodes.iter().map(inbox).collect();
        if boxes.iter().all(Vec::is_empty) {
            return;
        }
        nodes.iter().zip(boxes).for_each(|(node, messages)| receive(node, &messages, now));
    }
}

/// An interval: all nodes broadcast, and all receive.
fn round(nodes: &[Node], now: Timestamp) {
    nodes.iter().for_each(|node| broadcast(node, now));
    deliver_all(nodes, now);
}

fn claim(node: &Node, limit: &Limit, key: &[u8], cost: u64, now: Timestamp, mode: Mode) -> Answer {
    let id = MeterId { namespace: "api", scope: limit.scope(), key };
    let claims = [Claim { id, cost, meter: limit.meter_for(key) }];
    node.claim_now(Claims::new(now, mode, &claims).unwrap()).unwrap()
}

fn charge(node: &Node, limit: &Limit, cost: u64, now: Timestamp) {
    assert!(claim(node, limit, b"k", cost, now, Mode::Charge).admitted, "{limit}");
}

/// The units that a node counts.
fn used(node: &Node, limit: &Limit, now: Timestamp) -> u64 {
    limit.burst() - claim(node, limit, b"k", 0, now, Mode::Peek).verdicts[0].remaining
}

fn limits() -> impl Iterator<Item = Limit> {
    TEXTS.iter().map(|text| text.parse().unwrap())
}

#[test]
fn after_an_interval_all_nodes_agree() {
    for limit in limits() {
        let hub = Hub::new();
        let nodes = fleet::<3>(&hub);
        for (node, cost) in nodes.iter().zip([20, 30, 40]) {
            charge(node, &limit, cost, START);
            assert_eq!(used(node, &limit, START), cost);
        }
        round(&nodes, START);
        for node in &nodes {
            assert_eq!(used(node, &limit, START), 90, "{limit}");
            assert!(!claim(node, &limit, b"k", 11, START, Mode::Charge).admitted);
        }
        charge(&nodes[1], &limit, 10, START);
        round(&nodes, START);
        assert!(nodes.iter().all(|node| used(node, &limit, START) == 100), "{limit}");
    }
}

#[test]
fn repeated_late_and_reordered_updates_count_once() {
    for limit in limits() {
        let hub = Hub::new();
        let nodes = fleet::<2>(&hub);
        let mut told = Vec::new();
        for _ in 0..5 {
            charge(&nodes[0], &limit, 7, START);
            broadcast(&nodes[0], START);
            told.extend(inbox(&nodes[1]));
        }
        for place in [3, 0, 4, 3, 1, 2, 0, 4] {
            receive(&nodes[1], &told[place..=place], START);
        }
        assert_eq!(used(&nodes[1], &limit, START), 35, "{limit}");
        // A node also receives its own messages.
        receive(&nodes[0], &told, START);
        assert_eq!(used(&nodes[0], &limit, START), 35, "{limit}");
        assert_eq!(nodes[1].stats().repeated, 3);
    }
}

#[test]
fn lost_updates_are_sent_again() {
    let limit: Limit = "100/min fixed".parse().unwrap();
    let hub = Hub::new();
    let nodes = fleet::<3>(&hub);
    for lost in [true, false, true] {
        charge(&nodes[0], &limit, 10, START);
        broadcast(&nodes[0], START);
        if lost {
            nodes[1..].iter().for_each(|node| drop(inbox(node)));
        }
        deliver_all(&nodes, START);
    }
    assert_eq!(used(&nodes[1], &limit, START), 10);
    // The heartbeat shows that the last one is missing, too.
    for _ in 0..3 {
        round(&nodes, START);
    }
    assert!(nodes.iter().all(|node| used(node, &limit, START) == 30));
}

#[test]
fn updates_that_are_no_longer_kept_are_replaced_by_the_state() {
    for limit in limits() {
        let hub = Hub::new();
        let forgetful = ReplicaConfig::default().history_bytes(0);
        let nodes = [node(&hub, forgetful), node(&hub, forgetful)];
        (0..4).for_each(|_| round(&nodes, START));
        charge(&nodes[0], &limit, 10, START);
        broadcast(&nodes[0], START);
        drop(inbox(&nodes[1]));
        (0..5).for_each(|_| round(&nodes, START));
        assert_eq!(used(&nodes[1], &limit, START), 10, "{limit}");
    }
}

#[test]
fn unsent_updates_are_sent_later_and_counted_once() {
    for is_ambiguous in [false, true] {
        for limit in limits() {
            let hub = Hub::new();
            let nodes = fleet::<2>(&hub);
            let wire = nodes[0].transport();
            wire.is_down.store(true, Ordering::SeqCst);
            wire.is_ambiguous.store(is_ambiguous, Ordering::SeqCst);
            for _ in 0..4 {
                charge(&nodes[0], &limit, 5, START);
                assert!(block_on(nodes[0].broadcast(START)).is_err());
                deliver_all(&nodes, START);
            }
            assert_eq!(used(&nodes[1], &limit, START), if is_ambiguous { 5 } else { 0 }, "{limit}");
            wire.is_down.store(false, Ordering::SeqCst);
            (0..2).for_each(|_| round(&nodes, START));
            assert_eq!(used(&nodes[1], &limit, START), 20, "{limit}");
        }
    }
}

#[test]
fn joining_nodes_learn_the_state_and_concurrent_updates() {
    // Updates received while it joins are held until the state arrives; those beyond the bound are requested again.
    for (limit, keep) in limits().flat_map(|limit| [(limit.clone(), 1 << 20), (limit, 0)]) {
        let hub = Hub::new();
        let mut nodes: Vec<Node> = fleet::<2>(&hub).into();
        charge(&nodes[0], &limit, 20, START);
        charge(&nodes[1], &limit, 10, START);
        round(&nodes, START);
        charge(&nodes[1], &limit, 7, START); // not told yet, and in its state
        nodes.push(node(&hub, ReplicaConfig::default().history_bytes(keep)));
        charge(&nodes[2], &limit, 3, START); // its own, from before it has joined
        charge(&nodes[0], &limit, 5, START);
        broadcast(&nodes[0], START); // to all, the one that joins included
        (0..5).for_each(|_| round(&nodes, START));
        assert!(nodes.iter().all(Replicated::has_joined));
        for node in &nodes {
            assert_eq!(used(node, &limit, START), 45, "{limit}");
        }
    }
}

#[test]
fn joining_nodes_learn_the_units_of_each_rate() {
    let plans = ["60/min burst 100 name p", "6/min burst 100 name p", "600/min burst 200 name p"];
    let plans = plans.map(|text| text.parse::<Limit>().unwrap());
    let hub = Hub::new();
    let mut nodes: Vec<Node> = fleet::<2>(&hub).into();
    for (plan, cost) in plans.iter().zip([20, 3, 9]) {
        charge(&nodes[0], plan, cost, START);
        charge(&nodes[1], plan, cost, START);
        round(&nodes, START);
    }
    charge(&nodes[1], &plans[0], 2, START); // not told yet, and in its state
    nodes.push(node(&hub, ReplicaConfig::default()));
    plans.iter().for_each(|plan| charge(&nodes[2], plan, 1, START)); // its own, from before it has joined
    (0..5).for_each(|_| round(&nodes, START));
    for node in &nodes {
        assert!(plans.iter().all(|plan| used(node, plan, START) == 69));
        // 7 of 6/min drain in 70 s, and the 43 of 60/min beside them.
        let later = START + Duration::from_secs(49);
        assert!(plans.iter().all(|plan| used(node, plan, later) == 3), "{:?}", used(node, &plans[0], later));
        assert_eq!(used(node, &plans[2], later + Duration::from_secs(21)), 0);
    }
}

#[test]
fn updates_received_with_the_state_count_once() {
    for (limit, keep) in limits().flat_map(|limit| [(limit.clone(), 1 << 20), (limit, 0)]) {
        let hub = Hub::new();
        let mut nodes: Vec<Node> = fleet::<2>(&hub).into();
        charge(&nodes[0], &limit, 20, START);
        round(&nodes, START);
        nodes.push(node(&hub, ReplicaConfig::default().history_bytes(keep)));
        // The one that joins asks the second for the state ...
        broadcast(&nodes[2], START);
        receive(&nodes[1], &inbox(&nodes[1]), START);
        receive(&nodes[2], &inbox(&nodes[2]), START);
        // ... and receives units of the first that are not in it, while the state has some that the second has not sent.
        charge(&nodes[0], &limit, 5, START);
        broadcast(&nodes[0], START);
        receive(&nodes[2], &inbox(&nodes[2]), START);
        charge(&nodes[1], &limit, 7, START);
        let (first, question): (Vec<_>, Vec<_>) =
            inbox(&nodes[1]).into_iter().partition(|message| message[1] < 6);
        receive(&nodes[1], &question, START);
        receive(&nodes[2], &inbox(&nodes[2]), START);
        assert!(nodes[2].has_joined());
        assert_eq!(used(&nodes[2], &limit, START), if keep > 0 { 32 } else { 27 }, "{limit}");
        receive(&nodes[1], &first, START);
        (0..5).for_each(|_| round(&nodes, START));
        assert!(nodes.iter().all(|node| used(node, &limit, START) == 32), "{limit}");
    }
}

#[test]
fn a_state_of_many_meters_comes_in_many_parts() {
    let limit: Limit = "100/min".parse().unwrap();
    let hub = Hub::new();
    let mut nodes: Vec<Node> = fleet::<2>(&hub).into();
    let keys: Vec<String> = (0..2_000).map(|number| format!("user:{number}")).collect();
    for (number, key) in (0..).zip(&keys) {
        claim(&nodes[0], &limit, key.as_bytes(), number % 100, START, Mode::Charge);
    }
    round(&nodes, START);
    nodes.push(node(&hub, ReplicaConfig::default()));
    (0..3).for_each(|_| round(&nodes, START));
    for (number, key) in (0..).zip(&keys) {
        for node in &nodes {
            let answer = claim(node, &limit, key.as_bytes(), 0, START, Mode::Peek);
            assert_eq!(answer.verdicts[0].remaining, 100 - number % 100, "{key}");
        }
    }
    assert!(nodes[1].stats().received_bytes < 100_000, "{:?}", nodes[1].stats());
}

#[test]
fn after_a_lost_answer_the_state_is_requested_from_another_node() {
    let limit: Limit = "100/min".parse().unwrap();
    let hub = Hub::new();
    let mut nodes: Vec<Node> = fleet::<3>(&hub).into();
    charge(&nodes[0], &limit, 20, START);
    round(&nodes, START);
    nodes.push(node(&hub, ReplicaConfig::default()));
    broadcast(&nodes[3], START);
    // All offer their state; the first one that is asked never answers.
    let boxes: Vec<_> = nodes[..3].iter().map(inbox).collect();
    nodes.iter().zip(boxes).for_each(|(node, messages)| receive(node, &messages, START));
    let here = inbox(&nodes[3]);
    receive(&nodes[3], &here, START);
    nodes[..3].iter().for_each(|node| drop(inbox(node)));
    assert_eq!(used(&nodes[3], &limit, START), 0);
    (0..4).for_each(|_| round(&nodes, START));
    assert_eq!(used(&nodes[3], &limit, START), 20);
    assert!(nodes[3].has_joined());
}

#[test]
fn nodes_that_leave_or_fall_silent_are_not_peers() {
    let limit: Limit = "100/min".parse().unwrap();
    let hub = Hub::new();
    let [one, other, third] = fleet::<3>(&hub);
    charge(&other, &limit, 20, START);
    block_on(other.leave(START)).unwrap();
    drop(third);
    drop(other);
    let nodes = [one];
    deliver_all(&nodes, START);
    assert_eq!(nodes[0].peers(), 1, "one has left");
    assert_eq!(used(&nodes[0], &limit, START), 20, "what it told before it left");
    (0..12).for_each(|_| round(&nodes, START));
    assert_eq!(nodes[0].peers(), 0);
}

#[test]
fn charges_above_all_limits_leave_the_rest_of_their_update_readable() {
    for limit in limits() {
        let hub = Hub::new();
        let nodes = fleet::<2>(&hub);
        for cost in [MAX_UNITS, MAX_UNITS, u64::MAX] {
            claim(&nodes[0], &limit, b"large", cost, START, Mode::Force);
        }
        charge(&nodes[0], &limit, 5, START);
        round(&nodes, START);
        assert_eq!((used(&nodes[1], &limit, START), nodes[1].stats().malformed), (5, 0), "{limit}");
        assert!(!claim(&nodes[1], &limit, b"large", 1, START, Mode::Charge).admitted, "{limit}");
    }
}

/// The update of the last interval could not be sent, and more was charged since.
fn with_an_unsent_update(node: &Node, limit: &Limit) {
    node.transport().is_down.store(true, Ordering::SeqCst);
    charge(node, limit, 20, START);
    assert!(block_on(node.broadcast(START)).is_err());
    charge(node, limit, 7, START);
    node.transport().is_down.store(false, Ordering::SeqCst);
}

#[test]
fn a_leaving_node_sends_its_last_charges_after_unsent_ones() {
    let limit: Limit = "100/min".parse().unwrap();
    let hub = Hub::new();
    let nodes = fleet::<2>(&hub);
    with_an_unsent_update(&nodes[0], &limit);
    block_on(nodes[0].leave(START)).unwrap();
    deliver_all(&nodes, START);
    assert_eq!(used(&nodes[1], &limit, START), 27);
}

#[test]
fn a_state_sent_after_unsent_updates_counts_once() {
    let limit: Limit = "100/min".parse().unwrap();
    let hub = Hub::new();
    let mut nodes: Vec<Node> = fleet::<1>(&hub).into();
    with_an_unsent_update(&nodes[0], &limit);
    nodes.push(node(&hub, ReplicaConfig::default()));
    broadcast(&nodes[1], START);
    deliver_all(&nodes, START);
    assert!(nodes[1].has_joined());
    (0..2).for_each(|_| round(&nodes, START));
    assert_eq!(used(&nodes[1], &limit, START), 27);
}

#[test]
fn refunds_are_sent_and_wait_for_earlier_charges() {
    for (limit, is_lost) in limits().flat_map(|limit| [(limit.clone(), false), (limit, true)]) {
        let hub = Hub::new();
        let nodes = fleet::<2>(&hub);
        charge(&nodes[1], &limit, 60, START);
        round(&nodes, START);
        let limiter = RateLimiter::new(&nodes[0], limit.clone()).with_namespace("api");
        let limiter = limiter.with_clock(ManualClock::at(START));
        let request = Request::new("k").cost(30);
        let decision = limiter.check_now(&request).unwrap();
        broadcast(&nodes[0], START);
        let told = inbox(&nodes[1]);
        if !is_lost {
            receive(&nodes[1], &told, START);
        }
        assert_eq!(used(&nodes[1], &limit, START), if is_lost { 60 } else { 90 }, "{limit}");
        limiter.refund_now(&decision);
        for _ in 0..4 {
            round(&nodes, START);
            assert_eq!(used(&nodes[1], &limit, START), 60, "{limit}: no other units are removed");
        }
        assert_eq!(nodes[1].stats().applied, 2);
    }
}

#[test]
fn units_that_have_left_their_window_are_not_sent() {
    let limit: Limit = "100/min fixed".parse().unwrap();
    let hub = Hub::new();
    let nodes = fleet::<2>(&hub);
    nodes[0].transport().is_down.store(true, Ordering::SeqCst);
    charge(&nodes[0], &limit, 5, START);
    let later = START + Duration::from_secs(120);
    nodes[0].transport().is_down.store(false, Ordering::SeqCst);
    broadcast(&nodes[0], later);
    deliver_all(&nodes, later);
    assert_eq!((nodes[1].len(), nodes[1].stats().applied), (0, 0));
}

#[test]
fn invalid_bytes_are_ignored() {
    let hub = Hub::new();
    let nodes = fleet::<2>(&hub);
    let limit: Limit = "100/min".parse().unwrap();
    charge(&nodes[0], &limit, 5, START);
    broadcast(&nodes[0], START);
    let told = inbox(&nodes[1]);
    let update = told.iter().max_by_key(|message| message.len()).unwrap();
    let before = nodes[1].stats().malformed;
    // Cut in its header, or in the entry of the meter: number, name, offset, segment, units.
    let cuts = (0..19).chain(update.len() - 8..update.len());
    let count = cuts.clone().count() as u64;
    cuts.for_each(|length| receive(&nodes[1], &[update[..length].into()], START));
    assert_eq!(nodes[1].stats().malformed - before, count);
    assert!(nodes[1].is_empty());
    receive(&nodes[1], &told, START);
    assert_eq!(used(&nodes[1], &limit, START), 5);
}

#[tokio::test]
async fn background_tasks_synchronize_nodes() {
    let hub = Hub::new();
    let clock = ManualClock::at(START);
    let nodes = [(); 2].map(|()| Arc::new(Replicated::new(hub.transport())));
    let tasks = nodes.clone().map(|node| {
        let clock = clock.clone();
        tokio::spawn(async move { node.run(clock, Duration::from_secs(1)).await })
    });
    let limit: Limit = "100/h".parse().unwrap();
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let of = |cost| [Claim { id, cost, meter: limit.meter_for(b"k") }];
    let rest = Arc::new(Mutex::new(0));
    for _ in 0..20 {
        while clock.sleepers() < 2 {
            tokio::task::yield_now().await;
        }
        let now = clock.now();
        nodes[0].claim(Claims::new(now, Mode::Charge, &of(1)).unwrap()).await.unwrap();
        let seen = nodes[1].claim(Claims::new(now, Mode::Peek, &of(0)).unwrap()).await.unwrap();
        *rest.lock().unwrap() = seen.verdicts[0].remaining;
        clock.advance(Duration::from_secs(1));
    }
    assert!((80..=90).contains(&*rest.lock().unwrap()), "{rest:?}");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
