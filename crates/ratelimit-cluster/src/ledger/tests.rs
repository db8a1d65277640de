//! Ledgers that exchange usages, compared with core's meters on all charges in order.

use std::time::Duration;

use proptest::prelude::*;
use ratelimit_core::meter::State;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Receipt, Refund, Verdict};
use ratelimit_core::{ErrorKind, Limit, Timestamp};

use super::*;

pub(super) const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TEXTS: [&str; 7] = [
    "20/min fixed",
    "20/min",
    "20/min precision 15s",
    "20/min precision 15s strict",
    "20/min burst 15",
    "20/min queue burst 15",
    "20/min log",
];

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn id(limit: &Limit) -> MeterId<'_> {
    MeterId { namespace: "n", scope: limit.scope(), key: b"k" }
}

pub(super) fn claim_on(
    ledger: &Ledger,
    now: Timestamp,
    mode: Mode,
    claim: &Claim<'_>,
) -> Result<(bool, Verdict), StoreError> {
    ledger.claim_one_now(now, mode, claim)
}

fn claim(ledger: &Ledger, limit: &Limit, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
    let claim = Claim { id: id(limit), cost, meter: limit.meter_for(b"k") };
    claim_on(ledger, now, mode, &claim).unwrap()
}

fn remaining(ledger: &Ledger, limit: &Limit, now: Timestamp) -> u64 {
    claim(ledger, limit, 0, now, Mode::Peek).1.remaining
}

fn refund(ledger: &Ledger, limit: &Limit, cost: u64, receipt: Receipt, now: Timestamp) {
    ledger.refund_now(now, &[Refund { id: id(limit), cost, meter: limit.meter_for(b"k"), receipt }]);
}

pub(super) fn sync(from: &Ledger, to: &Ledger) {
    for usage in take(from) {
        assert!(merge(to, &usage));
    }
}

pub(super) fn take(ledger: &Ledger) -> Vec<Usage> {
    ledger.take_parts(usize::MAX).concat()
}

pub(super) fn merge(ledger: &Ledger, usage: &Usage) -> bool {
    ledger.merge([(usage.name.id(), usage.meter, usage.units)].into_iter(), START) == 0
}

fn state(ledger: &Ledger) -> State {
    let mut all = (0..).map_while(|part| ledger.states(part)).flatten();
    all.next().unwrap().state
}

pub(super) fn ledgers<const N: usize>() -> [Ledger; N] {
    std::array::from_fn(|_| Ledger::new(1_000, None))
}

#[test]
fn an_idle_node_agrees_after_a_sync() {
    for text in TEXTS {
        let limit = limit(text);
        let [one, other] = ledgers();
        for (after, cost) in [(0, 3), (2, 1), (5, 2), (70, 4), (71, 1)] {
            let now = START + Duration::from_secs(after);
            claim(&one, &limit, cost, now, Mode::Charge);
            sync(&one, &other);
            for later in [0, 7, 30, 61, 130] {
                let then = now + Duration::from_secs(later);
                assert_eq!(remaining(&one, &limit, then), remaining(&other, &limit, then), "{text} {then:?}");
            }
        }
        assert_eq!(take(&one), []);
    }
}

#[test]
fn usages_are_taken_once_and_put_back_with_later_ones() {
    for text in TEXTS {
        let limit = limit(text);
        let [one, other] = ledgers();
        claim(&one, &limit, 3, START, Mode::Charge);
        claim(&one, &limit, 90, START, Mode::Charge); // refused
        claim(&one, &limit, 1, START, Mode::Peek);
        let taken = take(&one);
        assert_eq!((taken.len(), take(&one).len()), (1, 0), "{text}");
        claim(&one, &limit, 2, START, Mode::Charge);
        one.put_back(taken);
        let taken = take(&one);
        assert_eq!(taken.len(), 1, "{text}");
        assert!(merge(&other, &taken[0]));
        assert_eq!(remaining(&other, &limit, START), limit.burst() - 5, "{text}");
        assert_eq!(remaining(&one, &limit, START), limit.burst() - 5, "{text}");
    }
}

#[test]
fn a_meter_that_refuses_is_listed_once_and_not_broadcast() {
    for text in TEXTS {
        let limit = limit(text);
        let [ledger] = ledgers();
        claim(&ledger, &limit, 3, START, Mode::Charge);
        take(&ledger);
        let refuse = || assert!(!claim(&ledger, &limit, limit.burst(), START, Mode::Charge).0);
        (0..3).for_each(|_| refuse());
        let taken = take(&ledger);
        assert!(matches!(&taken[..], [usage] if usage.units.is_reading()), "{text}: {taken:?}");
        ledger.put_back(taken);
        claim(&ledger, &limit, limit.burst(), START, Mode::Peek);
        assert_eq!(take(&ledger), [], "{text}");
        refuse();
        ledger.take_each(|_, _, units| panic!("{text}: {units:?}"));
        assert_eq!(take(&ledger), [], "{text}");
    }
}

#[test]
fn parts_are_full_and_keep_each_meter_together() {
    let limit = limit("20/min fixed");
    let ledger = Ledger::new(100_000, None);
    let charge = |keys: std::ops::Range<u32>, second| {
        for key in keys.map(u32::to_be_bytes) {
            let id = MeterId { key: &key, ..id(&limit) };
            let claim = Claim { id, cost: 1, meter: limit.meter_for(&key) };
            let now = START + Duration::from_secs(second);
            assert!(claim_on(&ledger, now, Mode::Charge, &claim).unwrap().0);
        }
    };
    let lengths = |parts: &[Vec<Usage>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
    charge(0..1_700, 0);
    assert_eq!(lengths(&ledger.take_parts(500)), [500, 500, 500, 200]);
    assert!(ledger.take_parts(500).is_empty());
    // Two usages of each key, one for each minute.
    charge(0..1_700, 0);
    charge(0..1_700, 60);
    let parts = ledger.take_parts(7);
    assert_eq!(lengths(&parts).iter().sum::<usize>(), 3_400);
    for (place, part) in parts.iter().enumerate() {
        let has = |usage: &Usage| part.iter().filter(|other| other.name == usage.name).count() == 2;
        assert!(part.iter().all(has), "{place}");
    }
}

#[test]
fn refunds_are_merged() {
    for text in TEXTS {
        let limit = limit(text);
        let [one, other] = ledgers();
        let receipt = claim(&one, &limit, 5, START, Mode::Charge).1.receipt;
        refund(&one, &limit, 2, receipt, START);
        sync(&one, &other);
        assert_eq!(remaining(&other, &limit, START), limit.burst() - 3, "{text}");
        refund(&one, &limit, 1, receipt, START);
        sync(&one, &other);
        assert_eq!(remaining(&other, &limit, START), limit.burst() - 2, "{text}");
        // A charge that was refunded before it was sent is not sent.
        let receipt = claim(&one, &limit, 4, START, Mode::Charge).1.receipt;
        refund(&one, &limit, 4, receipt, START);
        assert_eq!(take(&one), [], "{text}");
    }
}

#[test]
fn late_units_are_added_to_their_own_segment_or_dropped() {
    let limit = limit("20/min precision 15s strict");
    let [one, other, third] = ledgers();
    claim(&one, &limit, 5, START, Mode::Charge);
    claim(&one, &limit, 1, START + Duration::from_secs(15), Mode::Charge);
    let late = take(&one);
    assert_eq!(late.len(), 2, "one for each segment");
    claim(&other, &limit, 1, START + Duration::from_secs(45), Mode::Charge);
    claim(&third, &limit, 1, START + Duration::from_secs(75), Mode::Charge);
    for usage in late.iter().rev() {
        assert!(merge(&other, usage) && merge(&third, usage));
    }
    assert_eq!(remaining(&other, &limit, START + Duration::from_secs(45)), 13);
    assert_eq!(remaining(&third, &limit, START + Duration::from_secs(75)), 18, "the first one has left");
}

#[test]
fn a_state_merged_twice_or_beside_usages_counts_once() {
    for text in TEXTS {
        let limit = limit(text);
        let [one, other] = ledgers();
        claim(&one, &limit, 3, START, Mode::Charge);
        claim(&other, &limit, 2, START, Mode::Charge); // pending: the other node cannot know it
        for _ in 0..2 {
            for known in (0..).map_while(|part| one.states(part)).flatten() {
                assert!(other.raise(&known.name.id(), &known.meter, known.state, START));
            }
        }
        assert_eq!(remaining(&other, &limit, START), limit.burst() - 5, "{text}");
        sync(&other, &one);
        assert_eq!(remaining(&one, &limit, START), limit.burst() - 5, "{text}");
    }
}

#[test]
fn usages_keep_the_limit_that_was_changed() {
    let [one, other] = ledgers();
    let (before, after) = (limit("60/min burst 15"), limit("30/min burst 15"));
    assert_eq!(before.scope(), after.scope());
    claim(&one, &before, 5, START, Mode::Charge);
    claim(&one, &after, 5, START, Mode::Charge);
    let usages = take(&one);
    assert_eq!(usages.len(), 2);
    usages.iter().for_each(|usage| assert!(merge(&other, usage)));
    assert_eq!(remaining(&other, &after, START), 5);
    claim(&one, &limit("20/min"), 5, START, Mode::Charge);
    assert_eq!(other.len(), 1);
}

#[test]
fn received_meters_expire_while_others_are_received() {
    let limit = limit("20/min fixed");
    // At the end of a minute, those of the minute before have expired, or have not quite expired.
    for pause in [62, 60] {
        let [one, merged, raised] = ledgers();
        for number in 0..20_u32 {
            let now = START + Duration::from_secs(pause * u64::from(number));
            for key in (300 * number..300 * (number + 1)).map(u32::to_be_bytes) {
                let id = MeterId { key: &key, ..id(&limit) };
                let claim = Claim { id, cost: 1, meter: limit.meter_for(&key) };
                assert!(claim_on(&one, now, Mode::Charge, &claim).unwrap().0);
                let fingerprint = one.fingerprints.of(&id);
                let state = one.shard(fingerprint).state(fingerprint).unwrap();
                assert!(raised.raise(&id, &claim.meter, state, now), "{number}");
            }
            let usages = take(&one);
            let usages = usages.iter().map(|usage| (usage.name.id(), usage.meter, usage.units));
            assert_eq!(merged.merge(usages, now), 0, "{number}");
        }
    }
}

#[test]
fn a_reset_removes_pending_usages_and_a_full_ledger_refuses() {
    let limit = limit("20/min");
    let ledger = Ledger::new(1, None);
    claim(&ledger, &limit, 3, START, Mode::Charge);
    let other =
        Claim { id: MeterId { key: b"other", ..id(&limit) }, cost: 1, meter: limit.meter_for(b"other") };
    let both = [Claim { id: id(&limit), ..other }, other];
    let error = claim_on(&ledger, START, Mode::Charge, &other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(ledger.claim_now(Claims::new(START, Mode::Charge, &both).unwrap()).is_err());
    assert_eq!(remaining(&ledger, &limit, START), 17, "a slice that found no room was charged");
    ledger.reset_now(Claims::new(START, Mode::Charge, &both[..1]).unwrap(), false);
    assert_eq!((ledger.len(), take(&ledger).len()), (0, 0));
    claim_on(&ledger, START, Mode::Charge, &other).unwrap();
    // The other key expires after two minutes.
    claim(&ledger, &limit, 1, START + Duration::from_secs(150), Mode::Charge);
    assert_eq!(ledger.len(), 1);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Charge { here: bool, cost: u64, millis: u64 },
    Sync { here: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let charge = (any::<bool>(), 1..6_u64, 0..20_000_u64);
    let step = prop_oneof![
        4 => charge.prop_map(|(here, cost, millis)| Step::Charge { here, cost, millis }),
        1 => any::<bool>().prop_map(|here| Step::Sync { here }),
    ];
    prop::collection::vec(step, 1..40)
}

#[test]
fn in_a_full_ledger_a_few_expired_meters_make_room_for_usages_of_other_nodes() {
    let [short, long] = ["1/s", "1/h"].map(limit);
    let ledger = Ledger::new(200, Some(1));
    for key in 0..200_u32 {
        let limit = if key < 3 { &short } else { &long };
        let key = key.to_be_bytes();
        let claim = Claim { id: MeterId { key: &key, ..id(limit) }, cost: 1, meter: limit.meter_for(&key) };
        assert!(claim_on(&ledger, START, Mode::Charge, &claim).unwrap().0);
    }
    let uncounted = |key: &[u8], seconds| {
        let now = START + Duration::from_secs(seconds);
        let units = Units::Window { segment: now.as_nanos() / 3_600_000_000_000, units: 1 };
        ledger.merge([(MeterId { key, ..id(&long) }, long.meter_for(key), units)].into_iter(), now)
    };
    assert_eq!(uncounted(b"early", 1), 1);
    assert_eq!([b"a", b"b", b"c", b"d"].map(|key| uncounted(key, 60)), [0, 0, 0, 1]);
    assert_eq!(ledger.len(), 200);
}

proptest! {
    /// After all usages are merged, a node counts no less than was charged; windows are exact.
    #[test]
    fn merged_usages_are_never_lost(which in 0..TEXTS.len(), steps in steps()) {
        let limit = limit(TEXTS[which]);
        let [one, other, truth] = ledgers();
        let mut now = START;
        for step in steps {
            match step {
                Step::Charge { here, cost, millis } => {
                    now = now + Duration::from_millis(millis);
                    let node = if here { &one } else { &other };
                    if claim(node, &limit, cost, now, Mode::Charge).0 {
                        claim(&truth, &limit, cost, now, Mode::Force);
                    }
                }
                Step::Sync { here: true } => sync(&one, &other),
                Step::Sync { here: false } => sync(&other, &one),
            }
        }
        sync(&one, &other);
        sync(&other, &one);
        for later in 0..9 {
            let then = now + Duration::from_secs(later * 9);
            let left = remaining(&truth, &limit, then);
            for node in [&one, &other] {
                if which < 4 {
                    prop_assert_eq!(remaining(node, &limit, then), left);
                } else {
                    prop_assert!(remaining(node, &limit, then) <= left);
                }
            }
        }
    }

    /// A usage that is merged at once leaves the same state as the charge itself, whatever the order of the nodes.
    #[test]
    fn immediately_merged_charges_are_exact(which in 0..TEXTS.len(), steps in steps()) {
        let limit = limit(TEXTS[which]);
        let [one, other, truth] = ledgers();
        let mut now = START;
        for step in steps {
            let Step::Charge { here, cost, millis } = step else { continue };
            now = now + Duration::from_millis(millis);
            let (from, to) = if here { (&one, &other) } else { (&other, &one) };
            let expected = claim(&truth, &limit, cost, now, Mode::Charge);
            let found = claim(from, &limit, cost, now, Mode::Charge);
            prop_assert_eq!((found.0, found.1.remaining), (expected.0, expected.1.remaining));
            sync(from, to);
        }
        if truth.len() > 0 {
            let meter = limit.meter_for(b"k");
            prop_assert_eq!(meter.forget_at(&state(&one)), meter.forget_at(&state(&truth)));
        }
    }
}
