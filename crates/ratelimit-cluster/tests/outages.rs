//! `Synced` while the shared store cannot be reached or loses answers, and afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::executor::block_on;
use proptest::prelude::*;
use ratelimit_cluster::Synced;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Promises, Receipt, Refund, Verdict};
use ratelimit_core::{CounterStore, ErrorKind, Limit, StoreError, SyncCounterStore, Timestamp};
use ratelimit_memory::MemoryStore;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

type Node = Synced<Arc<Frozen>>;

/// A store whose answers do not come in time. It may have applied the requests.
#[derive(Debug, Default)]
struct Frozen {
    store: MemoryStore,
    how: AtomicU8,
    /// How the next calls fail, whatever `how` says.
    next: Mutex<VecDeque<u8>>,
}

/// Requests are lost, or only their answers are, or it says that it did not apply them, or does not answer at all.
const REQUESTS_LOST: u8 = 1;
const ANSWERS_LOST: u8 = 2;
const REFUSING: u8 = 3;
const DROPPED: u8 = 4;
/// The node's user may not make the call.
const DENIED: u8 = 5;

impl Frozen {
    fn set(&self, how: u8) {
        self.how.store(how, Ordering::SeqCst);
    }

    /// Fails before the request is applied. Returns whether to fail after that.
    async fn before(&self) -> Result<bool, StoreError> {
        let next = self.next.lock().unwrap().pop_front();
        match next.unwrap_or_else(|| self.how.load(Ordering::SeqCst)) {
            DROPPED => std::future::pending().await,
            REQUESTS_LOST => Err(StoreError::new("frozen", ErrorKind::Timeout, "on purpose")),
            REFUSING => Err(StoreError::new("frozen", ErrorKind::Unreachable, "on purpose")),
            DENIED => Err(StoreError::new("frozen", ErrorKind::Denied, "on purpose")),
            how => Ok(how == ANSWERS_LOST),
        }
    }
}

impl CounterStore for Frozen {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let fails = self.before().await?;
        after(fails, self.store.claim(claims).await?)
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let fails = self.before().await?;
        after(fails, self.store.refund(now, refunds).await?)
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let fails = self.before().await?;
        after(fails, self.store.reset(claims).await?)
    }
}

fn after<T>(fails: bool, answer: T) -> Result<T, StoreError> {
    if fails { Err(StoreError::new("frozen", ErrorKind::Timeout, "on purpose")) } else { Ok(answer) }
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn one<'a>(limit: &'a Limit, cost: u64) -> Claim<'a> {
    let id = MeterId { namespace: "n", scope: limit.scope(), key: b"k" };
    Claim { id, cost, meter: limit.meter_for(b"k") }
}

fn try_claim(node: &impl SyncCounterStore, now: Timestamp, mode: Mode, claim: &Claim<'_>) -> (bool, Verdict) {
    node.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter).unwrap()
}

fn claim(node: &impl SyncCounterStore, limit: &Limit, cost: u64, now: Timestamp) -> bool {
    try_claim(node, now, Mode::Charge, &one(limit, cost)).0
}

/// The receipt of a charge, if it is admitted.
fn charge(
    node: &impl SyncCounterStore,
    limit: &Limit,
    cost: u64,
    now: Timestamp,
    mode: Mode,
) -> Option<Receipt> {
    let (admitted, verdict) = try_claim(node, now, mode, &one(limit, cost));
    admitted.then_some(verdict.receipt)
}

fn refund(node: &impl SyncCounterStore, limit: &Limit, cost: u64, receipt: Receipt, now: Timestamp) {
    let Claim { id, meter, .. } = one(limit, 0);
    node.refund_now(now, &[Refund { id, cost, meter, receipt }]);
}

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Claims as many units in each second as are admitted, and then synchronizes. Returns the admitted units by second.
fn saturate(node: &Node, limits: &[Limit], seconds: std::ops::Range<u64>) -> Vec<u64> {
    let each = |second| {
        let now = at(second);
        let admitted = (0..1_000).filter(|nth| claim(node, &limits[nth % limits.len()], 1, now)).count();
        let _ = block_on(node.sync(now));
        admitted as u64
    };
    seconds.map(each).collect()
}

#[test]
fn after_a_long_outage_a_bucket_admits_at_its_rate_and_no_more() {
    let limits = [limit("100/min burst 100")];
    for how in [REQUESTS_LOST, ANSWERS_LOST] {
        for ready in [false, true] {
            let node = Synced::new(Arc::new(Frozen::default()));
            let mut admitted = if ready { saturate(&node, &limits, 0..5) } else { vec![0; 5] };
            node.inner().set(how);
            admitted.extend(saturate(&node, &limits, 5..605));
            node.inner().set(0);
            admitted.extend(saturate(&node, &limits, 605..1_205));
            for first in 0..admitted.len() {
                let mut sum = 0;
                for (passed, units) in (0..).zip(&admitted[first..]) {
                    sum += units;
                    assert!(sum <= 100 + (passed * 100_u64).div_ceil(60), "{sum} from {first}, {passed} s");
                }
            }
            let later: u64 = admitted[605..].iter().sum();
            // If only the answers were lost, what was charged last counts twice at first.
            let least = if how == REQUESTS_LOST { 990 } else { 890 };
            assert!(later >= least, "{later} units in ten minutes, {how}, {ready}");
            // Once it has been idle for as long as its burst takes, nothing is left of the outage.
            let idle = saturate(&node, &limits, 1_400..1_401);
            assert_eq!(idle, [100], "{how}, {ready}");
            assert_eq!(saturate(&node, &limits, 1_460..1_461), [100], "{how}, {ready}");
        }
    }
}

#[test]
fn partial_idleness_reduces_what_a_bucket_is_unsure_of() {
    let limit = limit("60/min burst 60");
    let node = Synced::new(Arc::new(Frozen::default()));
    assert!(claim(&node, &limit, 40, START));
    node.inner().set(REQUESTS_LOST);
    assert!(block_on(node.sync(START)).is_err());
    node.inner().set(0);
    // A unit each ten seconds: at each of them the store was empty, and the 40 drain meanwhile.
    for tenth in 1..4 {
        assert!(claim(&node, &limit, 1, at(10 * tenth)));
        block_on(node.sync(at(10 * tenth))).unwrap();
    }
    assert!(!claim(&node, &limit, 48, at(30)) && claim(&node, &limit, 47, at(30)));
}

/// Units of one rate are unsure, more of them could not be sent, and others of another rate are unsure, too.
#[test]
fn unsure_units_do_not_drain_before_pending_ones_are_sent() {
    let [slow, fast] = ["60/min burst 20 name p", "600/min burst 20 name p"].map(limit);
    let (node, alone) = (Synced::new(Arc::new(Frozen::default())), MemoryStore::new());
    let charge = |limit, cost, second| {
        assert!(claim(&node, limit, cost, at(second)) && claim(&alone, limit, cost, at(second)));
    };
    let sync = |how: &[u8], second| {
        *node.inner().next.lock().unwrap() = how.to_vec().into();
        let _ = block_on(node.sync(at(second)));
        assert!(left(&node, &slow, at(second)) <= left(&alone, &slow, at(second)), "{second}");
    };
    charge(&slow, 10, 0);
    sync(&[REQUESTS_LOST], 0);
    charge(&slow, 2, 2);
    charge(&fast, 1, 6);
    sync(&[REFUSING, REFUSING, REQUESTS_LOST, REQUESTS_LOST], 6);
    sync(&[], 6);
}

#[test]
fn resets_are_made_however_a_synchronization_ends() {
    let limit = limit("20/min burst 20");
    for how in [REQUESTS_LOST, ANSWERS_LOST, REFUSING, DROPPED] {
        let node = Synced::new(Arc::new(Frozen::default()));
        assert!(claim(&node, &limit, 15, START));
        block_on(node.sync(START)).unwrap();
        let claims = [one(&limit, 0)];
        node.reset_now(Claims::new(START, Mode::Charge, &claims).unwrap());
        node.inner().set(how);
        assert!(node.sync(START).now_or_never().is_none_or(|done| done.is_err()));
        node.inner().set(0);
        assert!(claim(&node, &limit, 4, START));
        block_on(node.sync(START)).unwrap();
        assert_eq!((left(&node, &limit, START), left(&node.inner().store, &limit, START)), (16, 16), "{how}");
        assert!(claim(&node, &limit, 1, START));
        block_on(node.sync(START)).unwrap();
        assert_eq!(left(&node.inner().store, &limit, START), 15, "{how}: the reset is made once");
    }
}

/// A failed or dropped call has not lost what else it was to reset, nor what is charged meanwhile.
#[test]
fn a_reset_that_did_not_reach_the_store_is_made_by_the_next_synchronization() {
    for text in KINDS {
        let limits = [text.to_string(), format!("{text} name other")].map(|text| limit(&text));
        for how in [REQUESTS_LOST, ANSWERS_LOST, REFUSING, DROPPED] {
            let node = Synced::new(Arc::new(Frozen::default()));
            for limit in &limits {
                assert!(claim(&node, limit, 15, START));
                block_on(node.sync(START)).unwrap();
                assert!(claim(&node, limit, 2, START));
            }
            let claims = [one(&limits[0], 0), one(&limits[1], 0)];
            let claims = Claims::new(START, Mode::Charge, &claims).unwrap();
            node.inner().set(how);
            assert!(node.reset(claims).now_or_never().is_none_or(|done| done.is_err()));
            node.inner().set(0);
            for limit in &limits {
                assert!(claim(&node, limit, 4, START), "{text}, {how}");
            }
            for nth in 1..3 {
                block_on(node.sync(START)).unwrap();
                let other = Synced::new(node.inner().clone());
                for limit in &limits {
                    assert!(claim(&other, limit, 1, START));
                    block_on(other.sync(START)).unwrap();
                    let lefts = (left(&node, limit, START), left(&other, limit, START));
                    assert_eq!(lefts, (16, 16 - nth), "{text}, {how}: and it is made once");
                }
            }
        }
    }
}

/// The caller has the error. Otherwise the key would not be sent any more.
#[test]
fn a_reset_that_is_denied_is_not_repeated() {
    let limit = limit("20/min burst 20");
    let node = Synced::new(Arc::new(Frozen::default()));
    assert!(claim(&node, &limit, 15, START));
    block_on(node.sync(START)).unwrap();
    let claims = [one(&limit, 0)];
    node.inner().set(DENIED);
    block_on(node.reset(Claims::new(START, Mode::Charge, &claims).unwrap())).unwrap_err();
    node.inner().set(0);
    assert!(claim(&node, &limit, 4, START));
    block_on(node.sync(START)).unwrap();
    assert_eq!((left(&node, &limit, START), left(&node.inner().store, &limit, START)), (1, 1));
}

fn left(store: &impl SyncCounterStore, limit: &Limit, now: Timestamp) -> u64 {
    try_claim(store, now, Mode::Peek, &one(limit, 0)).1.remaining
}

const KINDS: &[&str] = &[
    "20/min fixed",
    "20/min precision 15s strict",
    "60/min burst 20",
    "60/min queue burst 20",
    "20/min log",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever requests and answers are lost, a node by itself has no more left than a store that counts the same charges and
    /// refunds, or than one that never had the charges that were refunded: units of a bucket that have drained in one of them
    /// are not refunded there.
    #[test]
    fn a_node_by_itself_stays_within_the_limit(
        kind in prop::sample::select(KINDS),
        steps in prop::collection::vec(
            (0..5_usize, 1..12_u64, 0..4_000_u64, any::<bool>(), prop::collection::vec(0..4_u8, 0..3)),
            1..60,
        ),
    ) {
        let limit = limit(kind);
        let (node, alone) = (Synced::new(Arc::new(Frozen::default())), MemoryStore::new());
        let (mut now, mut charged) = (START, Vec::new());
        for (what, cost, millis, syncs, how) in steps {
            now = now + Duration::from_millis(millis);
            if what > 1 {
                if let Some(here) = charge(&node, &limit, cost, now, Mode::Charge) {
                    let there = charge(&alone, &limit, cost, now, Mode::Force).unwrap();
                    charged.push((now, cost, here, there));
                }
            } else if !charged.is_empty() {
                // Refunds of earlier charges of a bucket are not quite exact in any store.
                let which = if kind.contains("burst") { 1 } else { what };
                let (_, cost, here, there) = charged.remove(which * (charged.len() - 1));
                refund(&node, &limit, cost, here, now);
                refund(&alone, &limit, cost, there, now);
            }
            if syncs {
                *node.inner().next.lock().unwrap() = how.into();
                let _ = block_on(node.sync(now));
            }
            let without = MemoryStore::new();
            for (at, cost, ..) in &charged {
                charge(&without, &limit, *cost, *at, Mode::Force).unwrap();
            }
            let here = left(&node, &limit, now);
            let most = left(&alone, &limit, now).max(left(&without, &limit, now));
            prop_assert!(here <= most, "{} left of {} and not {} at {:?}", here, limit, most, now.since(START));
        }
    }
}
