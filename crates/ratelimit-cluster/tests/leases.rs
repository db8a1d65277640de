//! Leases step by step, and random claims on one node against the store by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{LeaseConfig, Leased};
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, MeterId, Mode, Promises, Receipt, Refund};
use ratelimit_core::{CounterStore, Limit, ManualClock, RateLimiter, Request, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

type Node = Leased<Arc<MemoryStore>>;

/// Leases from the first unit on, and all that there is.
fn eager() -> LeaseConfig {
    LeaseConfig::default().min_limit(1).share(1).max_lease(1_000).max_keys(1_000)
}

fn fleet(config: LeaseConfig) -> (Arc<MemoryStore>, [Node; 2]) {
    let shared = Arc::new(MemoryStore::new());
    let nodes = [(); 2].map(|()| Leased::with_config(shared.clone(), config));
    (shared, nodes)
}

fn claim(store: &impl CounterStore, limit: &Limit, cost: u64, now: Timestamp, mode: Mode) -> Answer {
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claims = [Claim { id, cost, meter: limit.meter_for(b"k") }];
    block_on(store.claim(Claims::new(now, mode, &claims).unwrap())).unwrap()
}

fn used(shared: &MemoryStore, limit: &Limit, now: Timestamp) -> u64 {
    limit.burst() - claim(&shared, limit, 0, now, Mode::Peek).verdicts[0].remaining
}

/// Leaves `node` with a lease: charged in the store, and not spent.
fn lease(node: &Node, shared: &MemoryStore, limit: &Limit, now: Timestamp) -> u64 {
    for _ in 0..2 {
        assert!(claim(node, limit, 1, now, Mode::Charge).admitted);
    }
    let leased = used(shared, limit, now) - 2;
    assert!(leased > 0, "nothing was leased");
    leased
}

#[test]
fn a_lease_is_charged_before_it_is_spent_and_ends_with_its_window() {
    let (shared, [node, _]) = fleet(eager());
    let limit: Limit = "100/min fixed".parse().unwrap();
    let leased = lease(&node, &shared, &limit, START);
    for _ in 0..leased {
        assert!(claim(&node, &limit, 1, START, Mode::Charge).admitted);
    }
    assert_eq!(used(&shared, &limit, START), leased + 2);
    let leased = lease(&node, &shared, &limit, START);
    assert!(leased > 1);
    let next = START + Duration::from_secs(60);
    assert!(claim(&node, &limit, 1, next, Mode::Charge).admitted);
    assert_eq!(used(&shared, &limit, next), 1, "a unit of the old window was spent in the new one");
}

#[test]
fn units_leased_by_the_node_are_available_to_it() {
    let (shared, [node, _]) = fleet(eager());
    for text in ["20/min fixed", "20/min", "20/min precision 15s", "20/min precision 15s strict"] {
        let limit: Limit = text.parse().unwrap();
        lease(&node, &shared, &limit, START);
        assert!(!claim(&node, &limit, 19, START, Mode::Charge).admitted, "{text}");
        assert!(claim(&node, &limit, 18, START, Mode::Charge).admitted, "{text}");
        assert!(!claim(&node, &limit, 1, START, Mode::Charge).admitted, "{text}");
    }
}

#[test]
fn unspent_units_return_to_the_store() {
    let (shared, [node, other]) = fleet(eager());
    let limit: Limit = "100/min fixed".parse().unwrap();
    let leased = lease(&node, &shared, &limit, START);
    assert!(claim(&node, &limit, 1, START, Mode::Charge).admitted);
    block_on(node.give_back(START)).unwrap(); // it was used a moment ago
    assert_eq!(used(&shared, &limit, START), 2 + leased);
    block_on(node.give_back(START)).unwrap();
    assert_eq!(used(&shared, &limit, START), 3);
    assert!(claim(&other, &limit, 97, START, Mode::Charge).admitted);
    assert!(!claim(&node, &limit, 1, START, Mode::Charge).admitted);
    block_on(node.give_back(START + Duration::from_secs(60))).unwrap();
    assert!(node.is_empty(), "a window that has ended is remembered");
}

#[test]
fn a_claim_is_never_counted_in_two_windows() {
    let (shared, [node, other]) = fleet(eager());
    let limit: Limit = "100/min fixed".parse().unwrap();
    let leased = lease(&node, &shared, &limit, START);
    // The other node's clock is in the next window already: the store counts what comes late there.
    let next = START + Duration::from_secs(60);
    assert!(claim(&other, &limit, 1, next, Mode::Charge).admitted);
    let answer = claim(&node, &limit, leased + 5, START + Duration::from_secs(59), Mode::Charge);
    assert!(answer.admitted);
    assert_eq!(used(&shared, &limit, next), 1 + leased + 5);
}

#[test]
fn leased_units_return_when_the_limit_becomes_too_small_for_leases() {
    let (shared, [node, _]) = fleet(eager().min_limit(100));
    let [large, small]: [Limit; 2] = ["100/min fixed", "50/min fixed"].map(|text| text.parse().unwrap());
    assert!(lease(&node, &shared, &large, START) > 0);
    assert!(claim(&node, &small, 48, START, Mode::Charge).admitted);
    assert!(!claim(&node, &small, 1, START, Mode::Charge).admitted);
}

#[test]
fn slices_paid_by_a_lease_are_charged_at_the_newest_instant() {
    let (shared, [node, _]) = fleet(eager());
    let [limit, straight]: [Limit; 2] = ["100/min fixed", "9/min log"].map(|text| text.parse().unwrap());
    lease(&node, &shared, &limit, START + Duration::from_millis(900));
    let both = [&limit, &straight].map(|limit| {
        let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
        Claim { id, cost: 1, meter: limit.meter_for(b"k") }
    });
    let used_before = used(&shared, &limit, START);
    let answer = block_on(node.claim(Claims::new(START, Mode::Charge, &both).unwrap())).unwrap();
    assert_eq!((answer.charged, used(&shared, &limit, START)), (true, used_before), "the lease has paid");
    let receipts: Vec<_> = answer.verdicts.iter().map(|verdict| verdict.receipt).collect();
    assert_eq!(receipts, [START + Duration::from_millis(900), START].map(Receipt::at));
}

#[test]
fn leases_of_the_next_window_are_not_spent_in_this_one() {
    let (shared, [node, other]) = fleet(eager());
    let limit: Limit = "100/min fixed".parse().unwrap();
    let next = START + Duration::from_secs(60);
    assert!(claim(&other, &limit, 1, next, Mode::Charge).admitted);
    for _ in 0..4 {
        assert!(claim(&node, &limit, 1, START, Mode::Charge).admitted);
    }
    assert_eq!(used(&shared, &limit, next), 5, "each is charged where it counts, and nothing beside");
}

#[test]
fn a_reset_forgets_the_lease() {
    let (shared, [node, _]) = fleet(eager());
    let limit: Limit = "100/min fixed".parse().unwrap();
    lease(&node, &shared, &limit, START);
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claims = [Claim { id, cost: 0, meter: limit.meter_for(b"k") }];
    block_on(node.reset(Claims::new(START, Mode::Charge, &claims).unwrap())).unwrap();
    for _ in 0..3 {
        assert!(claim(&node, &limit, 1, START, Mode::Charge).admitted);
    }
    assert!(used(&shared, &limit, START) >= 3, "units from before the reset were spent");
}

#[test]
fn buckets_logs_small_limits_and_full_tables_are_not_leased() {
    let none = eager().max_keys(0);
    let small = LeaseConfig::default();
    for (config, text) in [
        (eager(), "100/min burst 100"),
        (eager(), "100/min log"),
        (small, "99/min fixed"),
        (none, "100/min fixed"),
    ] {
        let (shared, [node, _]) = fleet(config);
        let limit: Limit = text.parse().unwrap();
        for count in 1..=20 {
            assert!(claim(&node, &limit, 1, START, Mode::Charge).admitted);
            assert_eq!(used(&shared, &limit, START), count, "{text}");
        }
        assert!(node.is_empty());
    }
}

#[test]
fn a_slice_is_charged_whole_or_not_at_all() {
    let (shared, [node, _]) = fleet(eager());
    let limits = ["100/min fixed", "6/h fixed"].map(|text| text.parse::<Limit>().unwrap());
    let limiter = RateLimiter::new(&node, ratelimit_core::Limits::new(limits.clone()).unwrap());
    let limiter = limiter.with_clock(ManualClock::at(START));
    let admitted = (0..20).filter(|_| block_on(limiter.check("k")).unwrap().allowed()).count();
    assert_eq!(admitted, 6);
    block_on(node.give_back_all(START)).unwrap();
    assert_eq!([used(&shared, &limits[0], START), used(&shared, &limits[1], START)], [6, 6]);
}

#[test]
fn refunds_go_to_the_store_and_decisions_are_conservative() {
    let (shared, [node, _]) = fleet(eager());
    let limiter = RateLimiter::new(&node, "100/min fixed".parse::<Limit>().unwrap());
    let limiter = limiter.with_clock(ManualClock::at(START));
    let request = Request::new("k").cost(3);
    let decision = block_on(limiter.check(&request)).unwrap();
    block_on(limiter.refund(&decision)).unwrap();
    assert_eq!(used(&shared, &"100/min fixed".parse().unwrap(), START), 0);
    assert_eq!(node.promises().decisions, Decisions::Conservative);
    assert!(format!("{node:?}").contains("MemoryStore"));
}

/// Counts the claims that reach the store.
#[derive(Debug, Default)]
struct Counting(MemoryStore, AtomicU64);

impl CounterStore for Counting {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

#[test]
fn leases_double_while_they_are_spent_in_time() {
    let limit: Limit = "100000/h".parse().unwrap();
    let checks_until = |pause: Duration| {
        let node = Leased::new(Counting::default());
        let (mut now, mut checks) = (START, Vec::new());
        for check in 1..=200 {
            let before = node.inner().1.load(Ordering::Relaxed);
            assert!(claim(&node, &limit, 1, now, Mode::Charge).admitted);
            if node.inner().1.load(Ordering::Relaxed) > before {
                checks.push(check);
            }
            now = now + pause;
        }
        checks
    };
    assert_eq!(checks_until(Duration::ZERO), [1, 2, 7, 16, 33, 66, 131]);
    // Too slow for a lease: half of it, until it does not pay.
    let slow = checks_until(Duration::from_millis(900));
    assert!(slow.len() > 40, "{slow:?}");
}

/// A store on the way to which, and back from which, others run.
#[derive(Debug, Default)]
struct Slow(MemoryStore);

impl CounterStore for Slow {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        tokio::task::yield_now().await;
        let answer = self.0.claim(claims).await;
        tokio::task::yield_now().await;
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.0.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.0.reset(claims).await
    }
}

/// Whatever step of a claim is the last one: neither a lease that it has requested nor one that it gives back is lost.
#[tokio::test]
async fn a_dropped_claim_loses_no_more_than_its_cost() {
    let limit: Limit = "100/min fixed".parse().unwrap();
    for cost in [1, 99] {
        for polls in 1..8 {
            let shared = Arc::new(Slow::default());
            let node = Leased::with_config(shared.clone(), eager());
            let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
            let claim = |cost| [Claim { id, cost, meter: limit.meter_for(b"k") }];
            for _ in 0..if cost == 1 { 1 } else { 2 } {
                node.claim(Claims::new(START, Mode::Charge, &claim(1)).unwrap()).await.unwrap();
            }
            let before = if cost == 1 { 1 } else { 2 };
            {
                let claims = claim(cost);
                let mut call = Box::pin(node.claim(Claims::new(START, Mode::Charge, &claims).unwrap()));
                for _ in 0..polls {
                    if futures::poll!(call.as_mut()).is_ready() {
                        break;
                    }
                }
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            node.give_back_all(START).await.unwrap();
            let used = used(&shared.0, &limit, START);
            let most = if cost == 1 { before + 1 } else { before };
            assert!(used <= most, "{used} units, and not {most}: cost {cost}, dropped after {polls} polls");
        }
    }
}

/// The answer to a request for a lease comes after a reset, and after another node's charge.
#[tokio::test]
async fn a_lease_from_before_a_reset_returns_no_units_of_later_charges() {
    let limit: Limit = "1000/min fixed".parse().unwrap();
    let shared = Arc::new(Slow::default());
    let node = Leased::with_config(shared.clone(), eager());
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claims = [Claim { id, cost: 10, meter: limit.meter_for(b"k") }];
    let claims = Claims::new(START, Mode::Charge, &claims).unwrap();
    node.claim(claims).await.unwrap();
    let mut call = Box::pin(node.claim(claims));
    while used(&shared.0, &limit, START) == 10 {
        assert!(futures::poll!(call.as_mut()).is_pending());
    }
    assert_eq!(used(&shared.0, &limit, START), 60, "10, and a lease of 40");
    node.reset(claims).await.unwrap();
    assert!(claim(&shared.0, &limit, 100, START, Mode::Charge).admitted);
    assert!(call.await.unwrap().admitted);
    assert_eq!(used(&shared.0, &limit, START), 100);
}

#[tokio::test]
async fn a_lease_that_arrives_after_its_window_is_returned() {
    let limit: Limit = "1000/min".parse().unwrap();
    let shared = Arc::new(Slow::default());
    let node = Leased::with_config(shared.clone(), eager());
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claims = [Claim { id, cost: 10, meter: limit.meter_for(b"k") }];
    let (now, later) = (START, START + Duration::from_secs(60));
    let claims = Claims::new(now, Mode::Charge, &claims).unwrap();
    node.claim(claims).await.unwrap();
    let mut call = Box::pin(node.claim(claims));
    while used(&shared.0, &limit, now) == 10 {
        assert!(futures::poll!(call.as_mut()).is_pending());
    }
    node.claim(claims.at(later)).await.unwrap();
    let before = used(&shared.0, &limit, later);
    assert!(call.await.unwrap().admitted);
    assert_eq!(before - used(&shared.0, &limit, later), 40);
}

#[test]
fn a_single_node_decides_like_the_store() {
    let mut random = 7_u64;
    let mut below = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for text in ["40/min fixed", "40/min", "40/min precision 15s", "40/min precision 15s strict"] {
        let limit: Limit = text.parse().unwrap();
        let is_weighted = !text.contains("fixed") && !text.contains("strict");
        for _ in 0..200 {
            let (model, node) = (MemoryStore::new(), Leased::with_config(MemoryStore::new(), eager()));
            let mut now = START;
            for _ in 0..100 {
                now = now + Duration::from_millis(below(20) * below(60));
                let cost = if below(5) > 0 { 1 } else { below(12) };
                let mode = [Mode::Charge, Mode::Peek, Mode::Force]
                    [usize::from(below(10) == 0) + usize::from(below(20) == 0)];
                let expected = claim(&model, &limit, cost, now, mode);
                let found = claim(&node, &limit, cost, now, mode);
                assert_eq!((found.admitted, found.charged), (expected.admitted, expected.charged), "{text}");
                let (found, expected) = (found.verdicts[0], expected.verdicts[0]);
                assert!(found.remaining <= expected.remaining, "{text}: {found:?} {expected:?}");
                if !is_weighted {
                    assert_eq!(found, expected, "{text}");
                }
            }
        }
    }
}
