//! Limits of several rates on one bucket, compared with core's meters on all charges in order.

use std::time::Duration;

use proptest::prelude::*;
use ratelimit_core::meter::{Bucket, BucketState, MAX_RATES, State};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Receipt, Refund, Verdict};
use ratelimit_core::{Limit, Timestamp};

use super::merge::raise;
use super::tests::{START, claim_on, ledgers, merge, sync, take};
use super::*;

const ID: MeterId<'_> = MeterId { namespace: "n", scope: "bucket", key: b"k" };

/// The number of cases of each property.
fn often() -> ProptestConfig {
    ProptestConfig { cases: 2_000, ..ProptestConfig::default() }
}

fn meters() -> [Meter; 5] {
    ["60/min burst 15", "6/min burst 30", "600/min burst 8", "20/min queue burst 15", "7/min leaky burst 9"]
        .map(|text| text.parse::<Limit>().unwrap().meter_for(b"k"))
}

/// The same meter, to which a refund always returns what has not drained.
fn without_turns(meter: Meter) -> Meter {
    match meter {
        Meter::Bucket(bucket) => Meter::Bucket(bucket.with_immediate(u64::MAX)),
        meter => meter,
    }
}

fn bucket(interval: u64) -> Meter {
    Meter::Bucket(Bucket::with_interval(interval, 1_000).unwrap())
}

fn claim(ledger: &Ledger, meter: Meter, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
    claim_on(ledger, now, mode, &Claim { id: ID, cost, meter }).unwrap()
}

/// Like [`claim`], in a slice with another meter that admits everything.
fn claim_in_slice(ledger: &Ledger, meter: Meter, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
    let roomy = "1000000/min fixed".parse::<Limit>().unwrap().meter_for(b"k");
    let other = Claim { id: MeterId { scope: "roomy", ..ID }, cost: 1, meter: roomy };
    let claims = [Claim { id: ID, cost, meter }, other];
    let answer = ledger.claim_now(Claims::new(now, mode, &claims).unwrap()).unwrap();
    (answer.admitted, answer.verdicts[0])
}

fn refund(ledger: &Ledger, meter: Meter, cost: u64, receipt: Receipt, now: Timestamp) {
    ledger.refund_now(now, &[Refund { id: ID, cost, meter, receipt }]);
}

/// The state of the bucket.
fn known(ledger: &Ledger) -> BucketState {
    let states = (0..).map_while(|part| ledger.states(part)).flatten().map(|known| known.state);
    let mut buckets =
        states.filter_map(|state| if let State::Bucket(state) = state { Some(state) } else { None });
    buckets.next().unwrap()
}

/// The units that the bucket owes.
fn owed(ledger: &Ledger, now: Timestamp) -> u64 {
    if ledger.len() > 0 { known(ledger).owed(now) } else { 0 }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim {
        limit: usize,
        cost: u64,
        mode: Mode,
        in_slice: bool,
    },
    /// Refunds a part of an earlier charge.
    Refund {
        back: usize,
        cost: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<(u64, u64, Step)>> {
    let mode = prop_oneof![6 => Just(Mode::Charge), 2 => Just(Mode::Force), 1 => Just(Mode::Peek)];
    let claim = (0..5_usize, 0..10_u64, mode, any::<bool>());
    let claim = claim.prop_map(|(limit, cost, mode, in_slice)| Step::Claim { limit, cost, mode, in_slice });
    let refund = (0..6_usize, 0..6_u64).prop_map(|(back, cost)| Step::Refund { back, cost });
    let after = prop_oneof![2 => Just(0), 5 => 0..3_000_000_000_u64, 1 => 0..60_000_000_000_u64];
    let late = prop_oneof![3 => Just(0), 1 => 0..1_000_000_000_u64];
    prop::collection::vec((after, late, prop_oneof![4 => claim, 1 => refund]), 1..60)
}

proptest! {
    #![proptest_config(often())]

    /// Covers states in slots and in cold parts, single claims, slices and late callers.
    #[test]
    fn a_ledger_decides_like_core(steps in steps()) {
        let [ledger] = ledgers();
        let (meters, mut expected) = (meters(), meters()[0].fresh());
        let (mut now, mut charged) = (START, Vec::new());
        for (after, late, step) in steps {
            now = now + Duration::from_nanos(after);
            let at = Timestamp::from_nanos(now.as_nanos() - late);
            match step {
                Step::Claim { limit, cost, mode, in_slice } => {
                    let meter = meters[limit];
                    let claim = if in_slice { claim_in_slice } else { claim };
                    let found = claim(&ledger, meter, cost, at, mode);
                    let wanted = meter.claim(&mut expected, cost, at, mode);
                    prop_assert_eq!(found, wanted, "{:?} {:?}", step, expected);
                    if found.0 && mode != Mode::Peek && cost > 0 {
                        charged.push((meter, cost, found.1.receipt));
                        prop_assert_eq!(State::Bucket(known(&ledger)), expected.clone());
                    }
                }
                Step::Refund { back, cost } => {
                    let Some((meter, of, receipt)) = charged.iter().nth_back(back).copied() else { continue };
                    refund(&ledger, meter, cost.min(of), receipt, at);
                    meter.refund(&mut expected, cost.min(of), receipt, at);
                }
            }
        }
    }

    /// After charges and refunds at one instant on several nodes, at several rates, each node owes exactly the rest.
    #[test]
    fn no_node_loses_units_of_any_rate(
        charges in prop::collection::vec((0..4_usize, 0..5_usize, 1..9_u64, 0..6_u64, any::<bool>()), 1..25),
        order in prop::collection::vec(0..4_usize, 0..8),
    ) {
        let nodes = ledgers::<4>();
        let merge_into_others = |from: usize, usages: &[Usage]| {
            let others = (0..4).filter(|to| *to != from).map(|to| &nodes[to]);
            others.for_each(|to| usages.iter().for_each(|usage| assert!(merge(to, usage))));
        };
        let mut sum = 0;
        for (node, limit, cost, back, syncs) in charges {
            let meter = meters()[limit];
            let receipt = claim(&nodes[node], meter, cost, START, Mode::Force).1.receipt;
            if syncs {
                merge_into_others(node, &take(&nodes[node]));
            }
            refund(&nodes[node], without_turns(meter), back.min(cost), receipt, START);
            sum += cost - back.min(cost);
        }
        for node in order.into_iter().chain(0..4) {
            merge_into_others(node, &take(&nodes[node]));
        }
        for node in &nodes {
            prop_assert_eq!(owed(node, START), sum);
        }
    }

    /// After all usages are merged, a node counts no less than was charged, however late they came.
    #[test]
    fn merged_usages_are_never_lost(
        charges in prop::collection::vec((any::<bool>(), 0..5_usize, 1..6_u64, 0..9_000_u64, 0..3_u8), 1..40),
    ) {
        let [one, other, truth] = ledgers();
        let (meters, mut now, mut sum) = (meters(), START, 0);
        for (here, limit, cost, millis, syncs) in charges {
            now = now + Duration::from_millis(millis);
            let node = if here { &one } else { &other };
            if claim(node, meters[limit], cost, now, Mode::Charge).0 {
                claim(&truth, meters[limit], cost, now, Mode::Force);
                sum += cost;
            }
            match syncs {
                0 => sync(&one, &other),
                1 => sync(&other, &one),
                _ => {}
            }
        }
        sync(&one, &other);
        sync(&other, &one);
        for later in 0..20 {
            let then = now + Duration::from_millis(later * later * 150);
            for node in [&one, &other] {
                let (found, charged) = (owed(node, then), owed(&truth, then));
                prop_assert!(found >= charged && found <= sum, "{} of {} after {}: {:?}", found, charged, later, node);
            }
        }
    }

    /// A node that only merges each charge at once agrees with the one that charges.
    #[test]
    fn a_node_that_only_merges_agrees_with_the_charging_node(
        charges in prop::collection::vec((0..5_usize, 1..6_u64, 0..9_000_u64), 1..30),
    ) {
        let [one, other] = ledgers();
        let (meters, mut now) = (meters(), START);
        for (limit, cost, millis) in charges {
            now = now + Duration::from_millis(millis);
            claim(&one, meters[limit], cost, now, Mode::Charge);
            sync(&one, &other);
            for later in [0, 1, 5, 30] {
                let then = now + Duration::from_secs(later);
                prop_assert_eq!(owed(&one, then), owed(&other, then));
            }
        }
    }

    /// Also with more rates than a state can hold.
    #[test]
    fn raised_states_owe_at_least_as_much_as_both_inputs(
        one in charges(), other in charges(), later in prop::collection::vec(0..30_000_000_u64, 5),
    ) {
        let states = [&one, &other].map(|charges| charged(charges).0);
        let [State::Bucket(one), State::Bucket(other)] = &states else { unreachable!() };
        let mut raised = states[0].clone();
        raise(&bucket(7), &mut raised, &states[1]);
        prop_assert_eq!(&State::from_bytes(&raised.to_bytes()), &Ok(raised.clone()));
        let State::Bucket(raised) = raised else { unreachable!() };
        prop_assert!(raised.debts.len() <= MAX_RATES);
        prop_assert_eq!(raised.at, one.at.max(other.at));
        for later in [0].into_iter().chain(later) {
            let then = raised.at + Duration::from_nanos(later);
            prop_assert!(raised.owed(then) >= one.owed(then).max(other.owed(then)), "{:?}", raised);
            prop_assert!(raised.owed(then) <= one.owed(raised.at) + other.owed(raised.at));
        }
    }

    /// A reading is never taken for less than the store owes if several rates are known; otherwise for less by at most what the
    /// requested rate drains in the time between the request and the decision. With one rate it is exact.
    #[test]
    fn bucket_readings_do_not_underestimate_the_debt_in_the_store(
        charges in charges(), interval in 1..100_000_u64, before in 0..300_000_u64, trip in 0..1_000_000_000_u64,
        later in prop::collection::vec(0..30_000_000_u64, 9),
    ) {
        let (State::Bucket(store), seen) = charged(&charges) else { unreachable!() };
        let (tat, units) = (store.tat().unwrap().max(seen), store.owed(seen));
        let early = |nanos| Timestamp::from_nanos(seen.as_nanos() - nanos);
        let says = |at, now, has_one_rate| BucketReading { units, tat, at, now, has_one_rate };
        let known = |reading: BucketReading| BucketState { at: reading.now, debts: [reading.debt(interval)].into_iter().collect() };
        let exact = known(says(early(trip), early(trip), false));
        let rough = known(says(early(before), seen, true));
        let drained = before.div_ceil(interval) + 1;
        for later in [0].into_iter().chain(later) {
            let then = seen + Duration::from_nanos(later);
            prop_assert!(exact.owed(then) >= store.owed(then), "{:?} for {:?}", exact, store);
            prop_assert!(rough.owed(then) + drained >= store.owed(then), "{:?} for {:?}", rough, store);
        }
        if let [debt] = store.debts[..] {
            let same = says(early(before), early(trip.min(before)), true).debt(debt.interval);
            prop_assert_eq!((same.interval, same.tat), (debt.interval, debt.tat));
        }
    }
}

/// Charges of one bucket: the interval, the units, the time since the previous charge.
fn charges() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let interval = prop_oneof![1..30_u64, 1..100_000_u64, (0..5_u64).prop_map(|nth| 1_000 << nth)];
    prop::collection::vec((interval, 1..20_u64, 0..20_000_u64), 1..30)
}

/// The state after the charges, and the time of the last one.
fn charged(charges: &[(u64, u64, u64)]) -> (State, Timestamp) {
    let (mut state, mut now) = (bucket(1).fresh(), START);
    for (interval, cost, after) in charges {
        now = now + Duration::from_nanos(*after);
        bucket(*interval).charge(&mut state, *cost, now);
    }
    (state, now)
}

#[test]
fn states_return_to_their_slot_once_one_rate_is_left() {
    let [ledger] = ledgers();
    let [second, slow, ..] = meters();
    let fingerprint = ledger.fingerprints.of(&ID);
    let is_in_slot = |meter| {
        let claim = Claim { id: ID, cost: 0, meter };
        ledger.shard(fingerprint).claim_in_slot(fingerprint, Demand::new(&claim, START, Mode::Peek)).is_some()
    };
    claim(&ledger, second, 3, START, Mode::Charge);
    assert!(is_in_slot(second));
    claim(&ledger, slow, 1, START, Mode::Charge);
    assert!(!is_in_slot(second) && !is_in_slot(slow), "two rates");
    assert_eq!(known(&ledger).debts.len(), 2);
    claim(&ledger, slow, 1, START + Duration::from_secs(5), Mode::Charge);
    assert!(is_in_slot(slow) && !is_in_slot(second), "the three have drained");
    claim(&ledger, second, 1, START + Duration::from_secs(25), Mode::Charge);
    assert!(is_in_slot(second), "all of before has drained");
    assert_eq!(owed(&ledger, START + Duration::from_secs(25)), 1);
}

#[test]
fn usages_of_each_rate_are_separate_and_refunds_keep_their_rate() {
    let [one, other] = ledgers();
    let [second, slow, ..] = meters();
    let early = claim(&one, second, 5, START, Mode::Charge).1.receipt;
    claim(&one, slow, 2, START, Mode::Charge);
    refund(&one, second, 3, early, START);
    let usages = take(&one);
    assert_eq!(usages.iter().map(|usage| usage.meter).filter(|meter| *meter == slow).count(), 1);
    usages.iter().for_each(|usage| assert!(merge(&other, usage)));
    assert_eq!(known(&other).owed(START), 4);
    assert_eq!(known(&other).owed(START + Duration::from_secs(19)), 1, "the slow ones drain at their rate");
}

#[test]
fn pending_usages_of_alternating_rates_are_combined() {
    let [one, other, truth] = ledgers();
    let [second, slow, ..] = meters();
    for nth in 0..20_000 {
        let now = START + Duration::from_millis(10 * nth);
        let meter = if nth % 2 == 0 { second } else { slow };
        claim(&one, meter, 1, now, Mode::Force);
        claim(&truth, meter, 1, now, Mode::Force);
        if nth % 1_000 == 999 {
            one.put_back(take(&one)); // it could not be sent
        }
    }
    let usages = take(&one);
    assert!(usages.len() < 4_000, "{} usages of two rates", usages.len());
    usages.iter().for_each(|usage| assert!(merge(&other, usage)));
    for later in [0, 300, 10_000, 90_000] {
        let then = START + Duration::from_secs(200 + later);
        let (found, charged) = (owed(&other, then), owed(&truth, then));
        // What is merged late counts from then on, at most for the 200 s longer.
        assert!((charged..=charged + 220).contains(&found), "{found} of {charged} after {later}");
    }
}
