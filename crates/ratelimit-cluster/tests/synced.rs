//! `Synced` step by step: every kind of limit, refunds, a segment's turn, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use proptest::prelude::*;
use ratelimit_cluster::{SyncConfig, Synced};
use ratelimit_core::store::{
    Answer, Claim, Claims, Decisions, MeterId, Mode, Promises, Receipt, Refund, Verdict,
};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, SyncCounterStore, Timestamp};
use ratelimit_memory::MemoryStore;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TEXTS: [&str; 7] = [
    "20/min fixed",
    "20/min",
    "20/min precision 15s",
    "20/min precision 15s strict",
    "20/min burst 15",
    "20/min queue burst 15",
    "20/min log",
];

type Node = Synced<Arc<Failing>>;

/// A store that fails on demand.
#[derive(Debug, Default)]
struct Failing {
    store: MemoryStore,
    how: AtomicU8,
}

/// How the store fails.
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

impl Failing {
    fn fail<T>(&self, after: u8, answer: T) -> Result<T, StoreError> {
        let error = match self.how.load(Ordering::SeqCst) {
            BEFORE if after == BEFORE => StoreError::new("failing", ErrorKind::Unreachable, "on purpose"),
            AFTER if after == AFTER => StoreError::new("failing", ErrorKind::Timeout, "on purpose"),
            _ => return Ok(answer),
        };
        Err(error)
    }
}

impl CounterStore for Failing {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.fail(BEFORE, ())?;
        let answer = self.store.claim(claims).await?;
        self.fail(AFTER, answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.fail(BEFORE, ())?;
        self.store.refund(now, refunds).await?;
        self.fail(AFTER, ())
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

fn fleet<const N: usize>() -> (Arc<Failing>, [Node; N]) {
    let shared = Arc::new(Failing::default());
    let nodes = std::array::from_fn(|_| Synced::new(shared.clone()));
    (shared, nodes)
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn one<'a>(limit: &'a Limit, cost: u64) -> Claim<'a> {
    let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
    Claim { id, cost, meter: limit.meter_for(b"k") }
}

fn try_claim(
    node: &impl SyncCounterStore,
    now: Timestamp,
    mode: Mode,
    claim: &Claim<'_>,
) -> Result<(bool, Verdict), StoreError> {
    node.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter)
}

fn claim(node: &Node, limit: &Limit, cost: u64, now: Timestamp) -> (bool, Verdict) {
    try_claim(node, now, Mode::Charge, &one(limit, cost)).unwrap()
}

fn left(node: &Node, limit: &Limit, now: Timestamp) -> u64 {
    try_claim(node, now, Mode::Peek, &one(limit, 0)).unwrap().1.remaining
}

fn refund(node: &Node, limit: &Limit, cost: u64, receipt: Receipt, now: Timestamp) {
    let Claim { id, meter, .. } = one(limit, 0);
    node.refund_now(now, &[Refund { id, cost, meter, receipt }]);
}

fn sync(node: &Node, now: Timestamp) {
    block_on(node.sync(now)).unwrap();
}

fn after(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

#[test]
fn nodes_learn_each_others_charges_by_syncing() {
    for text in TEXTS {
        let limit = limit(text);
        let (_, nodes) = fleet::<3>();
        for (nth, node) in nodes.iter().enumerate() {
            assert!(claim(node, &limit, nth as u64 + 1, START).0);
        }
        nodes.iter().for_each(|node| sync(node, START));
        assert_eq!(left(&nodes[2], &limit, START), limit.burst() - 6, "{text}: who told last knows all");
        // The other nodes learn of it when they have something to send.
        nodes[..2].iter().for_each(|node| assert!(claim(node, &limit, 1, START).0));
        nodes.iter().for_each(|node| sync(node, START));
        assert!(claim(&nodes[0], &limit, 1, START).0);
        sync(&nodes[0], START);
        let lefts: Vec<u64> = nodes.iter().map(|node| left(node, &limit, START)).collect();
        assert_eq!(lefts, [limit.burst() - 9, limit.burst() - 8, limit.burst() - 6], "{text}");
        assert!(nodes.iter().all(|node| node.unsure() == 0));
    }
}

#[test]
fn refunds_and_charges_between_two_syncs_leave_no_residue() {
    for text in TEXTS {
        let limit = limit(text);
        let (_, [node, other]) = fleet();
        let first = claim(&node, &limit, 3, START).1.receipt;
        sync(&node, START);
        // More is charged than was given back: the difference alone would begin after now.
        refund(&node, &limit, 3, first, START);
        let second = claim(&node, &limit, 5, START).1.receipt;
        sync(&node, START);
        assert_eq!(left(&node, &limit, START), limit.burst() - 5, "{text}");
        refund(&node, &limit, 5, second, START);
        sync(&node, START);
        assert_eq!(left(&node, &limit, START), limit.burst(), "{text}");
        claim(&other, &limit, 1, START);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 1, "{text}: and in the store");
    }
}

#[test]
fn charges_during_a_sync_are_kept_for_the_next_one() {
    for text in TEXTS {
        let limit = limit(text);
        let shared = Arc::new(MemoryStore::new());
        let slow = Arc::new(Slow { store: shared, node: std::sync::OnceLock::new() });
        let node = Arc::new(Synced::new(slow.clone()));
        slow.node.set(Arc::downgrade(&node)).unwrap();
        let charge = |cost| try_claim(&node, START, Mode::Charge, &one(&limit, cost)).unwrap().1.remaining;
        charge(2);
        block_on(node.sync(START)).unwrap(); // while it is told, another unit is charged
        assert_eq!(charge(0), limit.burst() - 3, "{text}");
        block_on(node.sync(START)).unwrap();
        assert_eq!(charge(0), limit.burst() - 4, "{text}");
        let other = Synced::new(slow.store.clone());
        try_claim(&other, START, Mode::Charge, &one(&limit, 1)).unwrap();
        block_on(other.sync(START)).unwrap();
        let left = try_claim(&other, START, Mode::Peek, &one(&limit, 0)).unwrap().1.remaining;
        assert_eq!(left, limit.burst() - 4, "{text}: three were told, and one is the other's");
    }
}

/// A store on the way to which the node itself charges one more unit.
#[derive(Debug)]
struct Slow {
    store: Arc<MemoryStore>,
    node: std::sync::OnceLock<std::sync::Weak<Synced<Arc<Slow>>>>,
}

impl CounterStore for Slow {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answer = self.store.claim(claims).await?;
        if claims.mode() == Mode::Force
            && claims[0].cost > 0
            && let Some(node) = self.node.get().and_then(std::sync::Weak::upgrade)
        {
            let scope = claims[0].id.scope.split('#').next().unwrap();
            let limit = TEXTS.iter().map(|text| limit(text)).find(|limit| limit.scope() == scope);
            try_claim(&node, START, Mode::Charge, &one(&limit.unwrap(), 1)).unwrap();
        }
        Ok(answer)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.store.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.store.reset(claims).await
    }
}

#[test]
fn refunds_reach_other_nodes() {
    for text in TEXTS {
        let limit = limit(text);
        let (_, [node, other]) = fleet();
        let receipt = claim(&node, &limit, 5, START).1.receipt;
        sync(&node, START);
        refund(&node, &limit, 3, receipt, START);
        assert!(claim(&other, &limit, 1, START).0);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 6, "{text}");
        sync(&node, START);
        assert_eq!(left(&node, &limit, START), limit.burst() - 3, "{text}");
        assert!(claim(&other, &limit, 1, START).0);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 4, "{text}");
    }
}

#[test]
fn ended_segments_are_read_again_until_late_charges_have_arrived() {
    let limit = limit("20/min precision 15s strict");
    let (_, [node, other]) = fleet();
    claim(&node, &limit, 2, START);
    claim(&other, &limit, 3, after(14)); // told only in the next segment
    sync(&node, after(14));
    claim(&node, &limit, 1, after(15));
    sync(&node, after(15));
    assert_eq!(left(&node, &limit, after(15)), 17);
    sync(&other, after(15));
    claim(&node, &limit, 1, after(16));
    sync(&node, after(16));
    assert_eq!(left(&node, &limit, after(16)), 13);
    // A node that comes later reads all segments at once.
    let newcomer = Synced::new(node.inner().clone());
    claim(&newcomer, &limit, 1, after(20));
    sync(&newcomer, after(20));
    assert_eq!(left(&newcomer, &limit, after(20)), 12);
    assert_eq!(left(&newcomer, &limit, after(75)), 17, "those of the first segment have left");
}

#[test]
fn charges_that_did_not_reach_the_store_are_sent_again() {
    for text in TEXTS {
        let limit = limit(text);
        let (shared, [node, other]) = fleet();
        claim(&node, &limit, 2, START);
        shared.how.store(BEFORE, Ordering::SeqCst);
        for _ in 0..3 {
            assert!(block_on(node.sync(START)).is_err());
            claim(&node, &limit, 1, START);
        }
        assert_eq!(left(&node, &limit, START), limit.burst() - 5, "{text}");
        shared.how.store(0, Ordering::SeqCst);
        sync(&node, START);
        claim(&other, &limit, 1, START);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 6, "{text}");
        assert_eq!(node.unsure(), 0);
    }
}

#[test]
fn charges_with_an_unknown_outcome_are_not_resent_and_count_locally() {
    for text in TEXTS {
        let limit = limit(text);
        let (shared, [node, other]) = fleet();
        claim(&node, &limit, 3, START);
        shared.how.store(AFTER, Ordering::SeqCst);
        assert!(block_on(node.sync(START)).is_err());
        assert_eq!((left(&node, &limit, START), node.unsure()), (limit.burst() - 3, 1), "{text}");
        shared.how.store(0, Ordering::SeqCst);
        claim(&other, &limit, 1, START);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 4, "{text}: told once");
        claim(&node, &limit, 1, START);
        sync(&node, START);
        // It cannot know that the three are in the store; never less than the truth, which is five.
        assert_eq!(left(&node, &limit, START), limit.burst() - 8, "{text}");
        // Once all has left, there is nothing to be unsure about.
        let later = after(600);
        claim(&node, &limit, 1, later);
        sync(&node, later);
        assert_eq!(left(&node, &limit, later), limit.burst() - 1, "{text}");
    }
}

#[test]
fn dropped_syncs_lose_no_charges() {
    let limit = limit("20/min");
    let (_, [node, other]) = fleet();
    claim(&node, &limit, 3, START);
    drop(node.sync(START)); // never polled
    sync(&node, START);
    claim(&other, &limit, 1, START);
    sync(&other, START);
    assert_eq!(left(&other, &limit, START), 16);
}

#[test]
fn resets_reach_other_nodes() {
    for text in TEXTS {
        let limit = limit(text);
        let (_, [node, other]) = fleet();
        claim(&other, &limit, 5, START);
        sync(&other, START);
        let claims = [one(&limit, 0)];
        let claims = Claims::new(START, Mode::Charge, &claims).unwrap();
        block_on(node.reset(claims)).unwrap();
        claim(&other, &limit, 1, START);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 1, "{text}");
        node.reset_now(claims);
        sync(&node, START);
        claim(&other, &limit, 1, START);
        sync(&other, START);
        assert_eq!(left(&other, &limit, START), limit.burst() - 1, "{text}");
    }
}

#[test]
fn after_a_reset_a_clock_stepping_back_finds_no_earlier_charges() {
    let at = |millis: u64| START + Duration::from_millis(millis);
    for text in ["3/10ms fixed", "3/10ms", "3/10ms precision 5ms", "3/10ms precision 5ms strict"] {
        for (way, further, again) in
            [(0, 0, false), (1, 0, false), (1, 200, false), (0, 0, true), (1, 0, true)]
        {
            let (limit, (_, [node])) = (limit(text), fleet::<1>());
            for millis in (0..500).step_by(5) {
                while claim(&node, &limit, 1, at(millis)).0 {}
                sync(&node, at(millis));
            }
            let reset = |millis| {
                let claims = [one(&limit, 0)];
                let claims = Claims::new(at(millis), Mode::Charge, &claims).unwrap();
                if way == 0 { block_on(node.reset(claims)).unwrap() } else { node.reset_now(claims) }
            };
            reset(500);
            sync(&node, at(500 + further));
            if again {
                assert!(claim(&node, &limit, 1, at(100)).0);
                sync(&node, at(100));
                reset(100);
            }
            // It goes from back then over all that was told.
            let mut admitted = Vec::new();
            for millis in (100..700).step_by(5) {
                for _ in 0..4 {
                    admitted.extend(claim(&node, &limit, 1, at(millis)).0.then_some(millis));
                    sync(&node, at(millis));
                }
            }
            let (alone, mut expected) = (MemoryStore::new(), Vec::new());
            for millis in (100..700).step_by(5) {
                for _ in 0..4 {
                    let claim = one(&limit, 1);
                    let decided = try_claim(&alone, at(millis), Mode::Charge, &claim);
                    expected.extend(decided.unwrap().0.then_some(millis));
                }
            }
            assert_eq!(admitted, expected, "{text}, {way}, {further}, {again}");
        }
    }
}

#[test]
fn a_single_node_never_exceeds_the_limit_or_its_number_of_keys() {
    let (_, [node]) = fleet();
    let limit = limit("20/min");
    let mut admitted = 0;
    for nth in 0..60 {
        admitted += u64::from(claim(&node, &limit, 1, START).0);
        if nth % 7 == 0 {
            sync(&node, START);
        }
    }
    assert_eq!(admitted, 20);
    assert_eq!(node.promises().decisions, Decisions::Eventual);
    assert!(format!("{node:?}").contains("MemoryStore"));
    let tight = Synced::with_config(MemoryStore::new(), SyncConfig::default().max_keys(0));
    let error = try_claim(&tight, START, Mode::Charge, &one(&limit, 1)).unwrap_err();
    assert_eq!((error.kind(), tight.is_empty()), (ErrorKind::Full, true));
}

fn left_in_store(shared: &Failing, limit: &Limit, now: Timestamp) -> u64 {
    try_claim(&shared.store, now, Mode::Peek, &one(limit, 0)).unwrap().1.remaining
}

/// Plans that share a customer's count, each used on a node of its own.
#[test]
fn after_a_sync_no_plan_admits_more_than_the_shared_store() {
    let plans = ["60/min burst 10 name plan", "3000/min burst 100 name plan", "6/min burst 30 name plan"];
    for (before, plan) in (0..3).flat_map(|before| [0, 1, 2].map(|plan| (before, plan))) {
        let (before, plan) = (limit(plans[before]), limit(plans[plan]));
        let (shared, [first, second]) = fleet();
        claim(&first, &before, before.burst(), START);
        sync(&first, START);
        claim(&second, &plan, 1, START); // it cannot know
        sync(&second, START);
        for tenth in 0..4_000 {
            let now = START + Duration::from_millis(100 * tenth);
            let (here, there) = (left(&second, &plan, now), left_in_store(&shared, &plan, now));
            assert!(here <= there, "{plan:?} after {before:?}, {tenth}: {here}, {there}");
        }
        assert_eq!(left(&second, &plan, after(400)), plan.burst());
    }
}

/// One node that nobody is beside learns nothing that it does not know.
#[test]
fn a_single_node_counts_alternating_plans_exactly() {
    let [free, paid] = ["6/min burst 10 name plan", "60/min burst 100 name plan"].map(limit);
    let (shared, [node]) = fleet();
    for second in 0..100 {
        let now = after(second);
        claim(&node, if second % 3 == 0 { &free } else { &paid }, 1 + second % 2, now);
        sync(&node, now);
        for plan in [&free, &paid] {
            assert_eq!(left(&node, plan, now), left_in_store(&shared, plan, now), "{second}");
        }
    }
}

/// The same if it is told after some time, and what another one charges is seen, too.
#[test]
fn a_node_with_several_plans_never_counts_less_than_the_shared_store() {
    let [free, paid] = ["6/min burst 10 name plan", "600/min burst 100 name plan"].map(limit);
    let (shared, [node, other]) = fleet();
    for second in 0..60 {
        let early = after(second) + Duration::from_millis(300);
        claim(&node, &paid, 3 + second % 7, early);
        if second % 5 == 0 {
            claim(&node, &free, 1, early + Duration::from_millis(100));
        }
        let now = after(second + 1);
        if second >= 30 {
            claim(&other, &paid, 5, early);
            sync(&other, now);
        }
        sync(&node, now);
        for millis in (0..1_000).step_by(50) {
            let now = now + Duration::from_millis(millis);
            for plan in [&free, &paid] {
                let (here, there) = (left(&node, plan, now), left_in_store(&shared, plan, now));
                assert!(here <= there && (second >= 30 || here == there), "{second}: {here}, {there}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever it charges and gives back, under whatever limits.
    #[test]
    fn a_single_node_owes_exactly_what_the_shared_store_owes(
        steps in prop::collection::vec((0..4_usize, 1..20_u64, 0..5_000_000_000_u64, 0..4_usize), 1..80),
    ) {
        let plans = ["52/min burst 20 name p", "39/min burst 17 name p", "45/s burst 17 name p", "47/h burst 30 name p"].map(limit);
        let (shared, [node]) = fleet();
        let (mut now, mut charged) = (START, Vec::<(usize, u64, Receipt)>::new());
        for (plan, cost, after, what) in steps {
            now = now + Duration::from_nanos(after);
            match charged.iter().rposition(|(of, ..)| *of == plan).filter(|_| what == 0) {
                Some(newest) => {
                    let (plan, cost, receipt) = charged.remove(newest);
                    refund(&node, &plans[plan], cost, receipt, now);
                }
                None => {
                    let (admitted, verdict) = claim(&node, &plans[plan], cost, now);
                    charged.extend(admitted.then_some((plan, cost, verdict.receipt)));
                }
            }
            sync(&node, now);
            for plan in &plans {
                prop_assert_eq!(left(&node, plan, now), left_in_store(&shared, plan, now));
            }
        }
    }
}
