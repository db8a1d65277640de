//! Nodes with limiters and clocks, for the tests of refunds.
#![allow(dead_code)] // each test file uses a part of it

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{Hub, InProcess, Replicated, Synced};
use ratelimit_core::store::{Answer, Claims, Promises, Refund};
use ratelimit_core::{
    CounterStore, Decision, ErrorKind, Limit, ManualClock, RateLimiter, Request, StoreError,
    SyncCounterStore, Timestamp,
};
use ratelimit_memory::MemoryStore;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

pub(crate) fn at(millis: u64) -> Timestamp {
    START + Duration::from_millis(millis)
}

/// A node with its limiter and clock.
pub(crate) struct Node<S> {
    pub(crate) store: Arc<S>,
    pub(crate) limiter: RateLimiter<Arc<S>, ManualClock>,
    pub(crate) clock: ManualClock,
}

impl<S: SyncCounterStore> Node<S> {
    pub(crate) fn new(store: S, limit: &str) -> Self {
        let (store, clock) = (Arc::new(store), ManualClock::at(START));
        let limiter = RateLimiter::new(store.clone(), limit.parse::<Limit>().unwrap());
        Self { limiter: limiter.with_clock(clock.clone()), store, clock }
    }

    pub(crate) fn check(&self, units: u64, millis: u64) -> Decision<'_> {
        self.check_key("k", units, millis)
    }

    pub(crate) fn check_key(&self, key: &'static str, units: u64, millis: u64) -> Decision<'_> {
        self.clock.set(at(millis));
        self.limiter.check_now(Request::new(key).cost(units)).unwrap()
    }

    pub(crate) fn charge(&self, units: u64, millis: u64) -> Decision<'_> {
        let decision = self.check(units, millis);
        assert!(decision.allowed());
        decision
    }

    pub(crate) fn refund(&self, decision: &Decision<'_>, millis: u64) {
        self.clock.set(at(millis));
        self.limiter.refund_now(decision);
    }

    pub(crate) fn settle(&self, decision: &Decision<'_>, units: u64, millis: u64) {
        self.clock.set(at(millis));
        self.limiter.settle_now(decision, units).unwrap();
    }

    pub(crate) fn left(&self, millis: u64) -> u64 {
        self.clock.set(at(millis));
        self.limiter.peek_now("k").unwrap().remaining()
    }
}

pub(crate) fn join(hub: &Hub, limit: &str) -> Node<Replicated<InProcess>> {
    Node::new(Replicated::new(hub.transport()), limit)
}

/// Some intervals: all nodes broadcast, and all receive.
pub(crate) fn exchange(nodes: &[Node<Replicated<InProcess>>], millis: u64) {
    for _ in 0..4 {
        nodes.iter().for_each(|node| block_on(node.store.broadcast(at(millis))).unwrap());
        for node in nodes {
            while let Some(message) = node.store.transport().next() {
                block_on(node.store.receive(&message, at(millis)));
            }
        }
    }
}

/// A store that fails on demand.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) store: MemoryStore,
    pub(crate) how: AtomicU8,
    pub(crate) calls: AtomicUsize,
}

/// How the store fails.
pub(crate) const BEFORE: u8 = 1;
pub(crate) const AFTER: u8 = 2;
/// After a refund, it fails before each call.
pub(crate) const NO_READING_AFTER_A_REFUND: u8 = 3;
/// Requests are lost.
pub(crate) const LOST: u8 = 4;

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
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.fail(BEFORE)?;
        self.fail(LOST)?;
        let answer = self.store.claim(claims).await?;
        self.fail(AFTER).map(|()| answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
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

pub(crate) type SyncedNode = Node<Synced<Arc<Failing>>>;

/// A shared store, what is left in it, and two nodes.
pub(crate) fn synced(limit: &str) -> (Arc<Failing>, impl Fn(u64) -> u64, [SyncedNode; 2]) {
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
    pub(crate) fn sync(&self, millis: u64) {
        block_on(self.store.sync(at(millis))).unwrap();
    }

    pub(crate) fn fail(&self, how: u8, millis: u64) {
        self.store.inner().how.store(how, Ordering::SeqCst);
        assert!(block_on(self.store.sync(at(millis))).is_err());
        self.store.inner().how.store(0, Ordering::SeqCst);
    }
}
