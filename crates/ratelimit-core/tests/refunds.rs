//! Refunds, compared with histories in which the refunded requests were never made.

use proptest::prelude::*;
use ratelimit_core::meter::{Bucket, Meter, State};
use ratelimit_core::{Limit, Timestamp};

const START: u64 = 1_000_000_000_000_123_456;
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn bucket(text: &str) -> Meter {
    text.parse::<Limit>().unwrap().meter_for(b"k")
}

fn left(meter: &Meter, state: &State, now: u64) -> u64 {
    meter.verdict(state, 0, at(now), None).remaining
}

/// A charge, and after how long it is made and refunded, if it is.
#[derive(Clone, Copy, Debug)]
struct Charge {
    after: u64,
    cost: u64,
    refunded: bool,
}

fn charges(longest: u64) -> impl Strategy<Value = Vec<Charge>> {
    let after = prop_oneof![2 => Just(0), 6 => 0..longest / 8, 1 => 0..longest];
    let charge = (after, 1..9u64, any::<bool>());
    prop::collection::vec(charge.prop_map(|(after, cost, refunded)| Charge { after, cost, refunded }), 1..16)
}

fn buckets_in_steps() -> impl Strategy<Value = Bucket> {
    let any = (1..20u64, 1_000..30_000u64, 1..40u64).prop_map(|(units, step, burst)| {
        Bucket::in_steps(units, step, burst).or_else(|_| Bucket::in_steps(1, step, burst)).unwrap()
    });
    prop_oneof![4 => any, 1 => (1..40u64).prop_map(|units| Bucket::in_total(units).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    /// Of a bucket in steps, refunds in the order of their charges, and each before its units have drained.
    #[test]
    fn a_refund_in_steps_never_leaves_more_than_without_the_charge(
        bucket in buckets_in_steps(), charges in charges(40_000), after in 0..20_000u64, apart in prop_oneof![Just(0), 0..3_000u64],
        later in prop::collection::vec(0..100_000u64, 1..12),
    ) {
        let meter = Meter::Bucket(bucket);
        let (mut with, mut without, mut now) = (meter.fresh(), meter.fresh(), START);
        let mut refunds = Vec::new();
        for charge in &charges {
            now += charge.after;
            let charged = meter.charge(&mut with, charge.cost, at(now));
            if charge.refunded {
                refunds.push((charge.cost, charged.receipt));
            } else {
                meter.charge(&mut without, charge.cost, at(now));
            }
        }
        now += after;
        for (cost, receipt) in refunds {
            let State::Bucket(state) = &with else { unreachable!() };
            // What has drained stays: it was used.
            if state.drained_to(bucket.interval(), at(now)).is_none_or(|drained| drained >= receipt.instant()) {
                return Ok(());
            }
            let before = left(&meter, &with, now);
            meter.refund(&mut with, cost, receipt, at(now));
            prop_assert!(left(&meter, &with, now) >= before, "a refund takes nothing");
            now += apart;
        }
        for instant in later.iter().map(|later| now + later).chain([now]) {
            prop_assert!(
                left(&meter, &with, instant) <= left(&meter, &without, instant),
                "{} after the refunds, {:?} and {:?}", instant - now, with, without
            );
        }
        prop_assert_eq!(State::from_bytes(&with.to_bytes()), Ok(with.clone()));
    }

    /// Refunded in any order, and later than the newest charge: the others have their units, and the same ones as without.
    #[test]
    fn refunds_in_a_window_return_exactly_their_units(
        units in 1..200u64, charges in charges(4_000), order: prop::sample::Index, apart in 0..100u64,
    ) {
        let window = Meter::Bucket(Bucket::in_steps(units, 1_000_000, units).unwrap());
        let (mut state, mut now, mut kept) = (window.fresh(), START, 0);
        let mut refunds = Vec::new();
        for charge in &charges {
            now += charge.after;
            let charged = window.charge(&mut state, charge.cost, at(now));
            if charge.refunded {
                refunds.push((charge.cost, charged.receipt));
            } else {
                kept += charge.cost;
            }
        }
        if !refunds.is_empty() {
            let turned = order.index(refunds.len());
            refunds.rotate_left(turned);
        }
        for (cost, receipt) in refunds {
            now += apart;
            window.refund(&mut state, cost, receipt, at(now));
        }
        prop_assert_eq!(left(&window, &state, now), units.saturating_sub(kept));
    }
}

/// The units that remain behind the refunded ones may have come at any time up to the refund.
#[test]
fn a_refund_of_what_began_a_step_begins_it_anew() {
    let window = bucket("100/5h from first request");
    let mut state = window.fresh();
    let first = window.charge(&mut state, 1, at(START));
    window.charge(&mut state, 99, at(START + 4 * HOUR));
    window.refund(&mut state, 1, first.receipt, at(START + 4 * HOUR));
    assert_eq!(left(&window, &state, START + 5 * HOUR), 1);
    assert_eq!([9 * HOUR - 1, 9 * HOUR].map(|later| left(&window, &state, START + later)), [1, 100]);

    let steps = bucket("10/s burst 20 step 500ms");
    let mut state = steps.fresh();
    let first = steps.charge(&mut state, 1, at(START));
    steps.charge(&mut state, 19, at(START + 499_000_000));
    steps.refund(&mut state, 1, first.receipt, at(START + 499_000_000));
    let left = [500_000_000, 998_999_999, 999_000_000, 2_499_000_000]
        .map(|later| left(&steps, &state, START + later));
    assert_eq!(left, [1, 1, 6, 20]);
}

#[test]
fn a_refund_of_part_of_what_began_a_step_keeps_the_step() {
    let window = bucket("100/5h from first request");
    let mut state = window.fresh();
    let first = window.charge(&mut state, 5, at(START));
    let second = window.charge(&mut state, 90, at(START + HOUR));
    window.refund(&mut state, 4, first.receipt, at(START + 2 * HOUR));
    window.refund(&mut state, 90, second.receipt, at(START + 3 * HOUR));
    assert_eq!([5 * HOUR - 1, 5 * HOUR].map(|later| left(&window, &state, START + later)), [99, 100]);
}

/// A step begins anew as often as all that may have begun it is refunded.
#[test]
fn refunds_one_after_another_each_begin_the_step_anew() {
    let window = bucket("100/5h from first request");
    let mut state = window.fresh();
    let first = window.charge(&mut state, 1, at(START));
    let second = window.charge(&mut state, 2, at(START + HOUR / 2));
    window.refund(&mut state, 1, first.receipt, at(START + HOUR));
    let third = window.charge(&mut state, 97, at(START + 4 * HOUR));
    window.refund(&mut state, 2, second.receipt, at(START + 4 * HOUR));
    assert_eq!([9 * HOUR - 1, 9 * HOUR].map(|later| left(&window, &state, START + later)), [3, 100]);
    window.refund(&mut state, 97, third.receipt, at(START + 4 * HOUR));
    assert_eq!(left(&window, &state, START + 4 * HOUR), 100);
    window.charge(&mut state, 100, at(START + 4 * HOUR + 1));
    assert_eq!([0, 1].map(|later| left(&window, &state, START + 9 * HOUR + later)), [0, 100]);
}

/// A total has no end that could move, so its state stays as short as it was.
#[test]
fn a_refund_of_a_total_returns_exactly_its_units() {
    let total = bucket("10 in total");
    let mut state = total.fresh();
    let first = total.charge(&mut state, 3, at(START));
    let second = total.charge(&mut state, 4, at(START + HOUR));
    total.refund(&mut state, 3, first.receipt, at(START + 2 * HOUR));
    assert_eq!(left(&total, &state, START + 1_000 * HOUR), 6);
    total.refund(&mut state, 4, second.receipt, at(START + 3 * HOUR));
    assert_eq!(left(&total, &state, START + 3 * HOUR), 10);
    let State::Bucket(state) = &state else { unreachable!() };
    assert_eq!(state.numbers().len(), 3);
}

/// Units under several quotas: which of them came first is not known, so the step begins anew.
#[test]
fn a_refund_under_another_quota_never_ends_a_window_sooner() {
    let (small, large) = (bucket("4/h from first request"), bucket("8/h from first request"));
    let mut state = small.fresh();
    let first = small.charge(&mut state, 2, at(START));
    large.charge(&mut state, 3, at(START + HOUR / 2));
    small.refund(&mut state, 2, first.receipt, at(START + HOUR / 2));
    let later = [HOUR, HOUR + HOUR / 2 - 1, HOUR + HOUR / 2];
    assert_eq!(later.map(|later| left(&large, &state, START + later)), [5, 5, 8]);
}

/// Units of a slower rate that have partly drained leave nothing behind, not even for a nanosecond.
#[test]
fn a_refund_at_another_rate_leaves_nothing() {
    let (slow, fast) = (bucket("1/min burst 10 name b"), bucket("60/min burst 10 name b"));
    let mut state = slow.fresh();
    let slowly = slow.charge(&mut state, 3, at(START));
    fast.charge(&mut state, 1, at(START));
    slow.refund(&mut state, 3, slowly.receipt, at(START + 61 * SECOND));
    assert_eq!([&slow, &fast].map(|limit| left(limit, &state, START + 61 * SECOND)), [10, 10]);
}
