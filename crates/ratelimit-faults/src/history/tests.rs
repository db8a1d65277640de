//! Histories by hand: each promise that is broken is found, and what is allowed is not.

use std::collections::HashSet;

use ratelimit_core::ErrorKind;

use super::{Call, Checked, Evidence, Loss, Outcome, Used, check};
use crate::load::{Class, KeyId};
use crate::rule::Rule;

const MILLIS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLIS;
const DAY: u64 = 86_400 * SECOND;
/// An hour after midnight, and the beginning of a second.
const START: u64 = 20_000 * DAY + 3_600 * SECOND;
const QUOTA: u64 = 3;

const LOG: u8 = 0;
const BUCKET: u8 = 1;
const FIXED: u8 = 2;
const SHORT: u8 = 3;
const SHORT_SLIDING: u8 = 4;
const SHORT_LOG: u8 = 5;
const SHORT_BUCKET: u8 = 6;

fn classes() -> Vec<Class> {
    let class = |rule, is_long| Class { text: String::new(), rule, keys: 9, share: 1, is_long };
    vec![
        class(Rule::Log { quota: QUOTA, period: DAY }, true),
        class(Rule::Bucket { burst: QUOTA, interval: DAY }, true),
        class(Rule::Fixed { quota: QUOTA, period: DAY }, true),
        class(Rule::Fixed { quota: QUOTA, period: SECOND }, false),
        class(Rule::Sliding { quota: QUOTA, period: SECOND }, false),
        class(Rule::Log { quota: QUOTA, period: SECOND }, false),
        class(Rule::Bucket { burst: QUOTA, interval: SECOND / QUOTA }, false),
    ]
}

fn key(class: u8) -> KeyId {
    KeyId { class, number: 1 }
}

/// A call at this many milliseconds that takes one.
fn call(class: u8, at: u64, outcome: Outcome) -> Call {
    let start = START + at * MILLIS;
    Call {
        worker: 0,
        key: key(class),
        cost: 1,
        start,
        end: start + MILLIS,
        outcome,
        degraded: false,
        paired: false,
    }
}

/// So many admitted calls, one every hundred milliseconds from this on.
fn admitted(class: u8, from: u64, count: u64) -> Vec<Call> {
    (0..count).map(|nth| call(class, from + nth * 100, Outcome::Admitted)).collect()
}

fn loss(from: u64, to: u64, keys: Option<&[u8]>) -> Loss {
    let keys = keys.map(|classes| classes.iter().map(|class| key(*class)).collect::<HashSet<_>>());
    Loss { from: START + from * MILLIS, to: START + to * MILLIS, keys, is_split: false }
}

/// Everything that a test does not say.
#[derive(Default)]
struct Case {
    losses: Vec<Loss>,
    stalls: Vec<(usize, u64, u64)>,
    used: Used,
    evicted: u64,
    apart: u64,
    is_conservative: bool,
    is_spread: bool,
    healed: u64,
}

impl Case {
    fn check(&self, calls: &[Call]) -> Checked {
        check(&Evidence {
            classes: &classes(),
            calls,
            stalls: &self.stalls,
            losses: &self.losses,
            evicted: self.evicted,
            clocks: (self.apart, self.apart),
            deadline: SECOND,
            timeout: SECOND / 2,
            is_exact: !self.is_conservative,
            is_spread: self.is_spread,
            instances: 3,
            used: &self.used,
            healed: START + self.healed * MILLIS,
        })
    }
}

fn checked(calls: &[Call]) -> Checked {
    Case::default().check(calls)
}

fn beyond(calls: &[Call], losses: &[Loss]) -> u64 {
    Case { losses: losses.to_vec(), ..Case::default() }.check(calls).beyond
}

#[test]
fn a_unit_more_than_the_quota_is_beyond() {
    for class in [LOG, BUCKET, FIXED] {
        assert_eq!(beyond(&admitted(class, 0, QUOTA), &[]), 0, "{class}");
        assert_eq!(beyond(&admitted(class, 0, QUOTA + 1), &[]), 1, "{class}");
    }
    let mut costly = admitted(LOG, 0, QUOTA);
    costly[0].cost = 4;
    assert_eq!(beyond(&costly, &[]), 3);
}

#[test]
fn each_window_of_a_second_has_its_own_quota() {
    let windows =
        |count| (0..3).flat_map(|second| admitted(SHORT, second * 1_000 + 100, count)).collect::<Vec<_>>();
    assert_eq!(beyond(&windows(QUOTA), &[]), 0);
    assert_eq!(beyond(&windows(QUOTA + 1), &[]), 3);
    // A call over the boundary may have been charged on either side of it.
    let mut over = admitted(SHORT, 100, QUOTA);
    over.push(Call { end: START + SECOND + MILLIS, ..call(SHORT, 900, Outcome::Admitted) });
    assert_eq!(beyond(&over, &[]), 0);
    over.extend(admitted(SHORT, 1_100, QUOTA));
    assert_eq!(beyond(&over, &[]), 1);
}

#[test]
fn a_sliding_window_counts_a_part_of_the_one_before() {
    let beyond_after =
        |at| beyond(&[admitted(SHORT_SLIDING, 700, QUOTA), admitted(SHORT_SLIDING, at, QUOTA)].concat(), &[]);
    // A fifth of the second window has passed, then two thirds, then all of it.
    assert_eq!([beyond_after(1_000), beyond_after(1_500), beyond_after(1_800)], [QUOTA, 1, 0]);
}

#[test]
fn each_loss_allows_the_quota_once_more_and_only_then() {
    let before_and_after = [admitted(LOG, 0, QUOTA), admitted(LOG, 2_000, QUOTA)].concat();
    assert_eq!(beyond(&before_and_after, &[loss(1_000, 1_500, None)]), 0);
    assert_eq!(beyond(&before_and_after, &[loss(1_000, 1_500, Some(&[LOG]))]), 0);
    assert_eq!(beyond(&before_and_after, &[loss(1_000, 1_500, Some(&[BUCKET]))]), QUOTA);
    assert_eq!(beyond(&before_and_after, &[loss(5_000, 6_000, None)]), QUOTA);
    // What was admitted after the loss is bound by itself.
    let after = admitted(LOG, 2_000, QUOTA + 2);
    assert_eq!(beyond(&after, &[loss(1_000, 1_500, None)]), 2);
}

#[test]
fn two_servers_at_once_allow_twice_the_limit_while_that_lasts() {
    let seconds =
        |count| (0..3).flat_map(|second| admitted(SHORT, second * 1_000 + 100, count)).collect::<Vec<_>>();
    let split = |from, to| [Loss { is_split: true, ..loss(from, to, None) }];
    assert_eq!(beyond(&seconds(2 * QUOTA), &split(0, 3_000)), 0);
    assert_eq!(beyond(&seconds(2 * QUOTA), &split(0, 1_900)), QUOTA);
    assert_eq!(beyond(&seconds(2 * QUOTA), &[loss(0, 3_000, None)]), 2 * QUOTA);
}

#[test]
fn evictions_excuse_as_many_keys_as_there_were() {
    let two = [admitted(LOG, 0, QUOTA + 1), admitted(FIXED, 0, QUOTA + 1)].concat();
    assert_eq!(Case { evicted: 2, ..Case::default() }.check(&two).beyond, 0);
    assert_eq!(Case { evicted: 1, ..Case::default() }.check(&two).beyond, 2);
}

#[test]
fn clocks_apart_blur_short_windows_but_not_long_ones() {
    let apart = Case { apart: SECOND, ..Case::default() };
    assert_eq!(apart.check(&admitted(SHORT, 100, QUOTA + 1)).beyond, 0);
    assert_eq!(apart.check(&admitted(LOG, 100, QUOTA + 1)).beyond, 1);
}

#[test]
fn a_refusal_needs_charges_or_calls_that_may_have_charged() {
    let failed = |maybe| Outcome::Failed { kind: ErrorKind::Timeout, maybe };
    let refused = call(LOG, 1_000, Outcome::Refused);
    for (before, early) in [
        (Outcome::Admitted, 0),
        (Outcome::Dropped, 0),
        (failed(true), 0),
        (failed(false), 1),
        (Outcome::Refused, 2),
    ] {
        let calls = [admitted(LOG, 0, QUOTA - 1), vec![call(LOG, 500, before), refused]].concat();
        assert_eq!(checked(&calls).refused_early, early, "{before:?}");
        if before != failed(false) {
            assert_eq!(Case { is_conservative: true, ..Case::default() }.check(&calls).refused_early, early);
        }
    }
    let late = [admitted(LOG, 2_000, QUOTA), vec![refused]].concat();
    assert_eq!(checked(&late).refused_early, 1);
}

#[test]
fn calls_in_progress_explain_refusals_of_a_store_that_is_not_exact() {
    let refused = call(LOG, 1_000, Outcome::Refused);
    for (at, early) in [(900, 2), (999, 0)] {
        // Together the two need a unit more than the quota.
        let larger = Call { cost: 3, ..call(LOG, at, Outcome::Refused) };
        assert_eq!(
            Case { is_conservative: true, ..Case::default() }.check(&[larger, refused]).refused_early,
            early
        );
        assert_eq!(checked(&[larger, refused]).refused_early, 2);
    }
}

#[test]
fn a_refusal_is_early_if_the_quota_has_become_free_since() {
    // When the last unit was charged, when the refusal came, and whether that was early.
    for (class, until, at, early) in [
        (SHORT, 900, 980, 0),
        (SHORT, 900, 1_020, 1),
        (SHORT_SLIDING, 900, 1_980, 0),
        (SHORT_SLIDING, 900, 2_020, 1),
        (SHORT_LOG, 900, 1_600, 0),
        (SHORT_LOG, 900, 1_950, 1),
        (SHORT_BUCKET, 900, 1_000, 0),
        (SHORT_BUCKET, 900, 1_250, 1),
    ] {
        let charges = admitted(class, until - 100 * (QUOTA - 1), QUOTA);
        let calls = [charges, vec![call(class, at, Outcome::Refused)]].concat();
        assert_eq!(checked(&calls).refused_early, early, "{class} at {at}");
        let apart = Case { apart: SECOND, ..Case::default() };
        assert_eq!(apart.check(&calls).refused_early, 0, "clocks that are apart");
        // A call that was given up may be decided later.
        let mut given_up = calls.clone();
        given_up.iter_mut().filter(|call| call.outcome == Outcome::Admitted).for_each(|call| {
            call.outcome = Outcome::Dropped;
        });
        assert_eq!(checked(&given_up).refused_early, 0, "{class}: calls that were given up");
    }
}

#[test]
fn the_store_has_counted_what_it_admitted_and_nothing_else() {
    let calls = [admitted(LOG, 0, 2), vec![call(LOG, 500, Outcome::Dropped)]].concat();
    for (units, forgotten, invented) in [(1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1)] {
        let counted = |losses: &[Loss]| {
            let (used, losses) = (Used::from([(key(LOG), units)]), losses.to_vec());
            let checked = Case { used, losses, ..Case::default() }.check(&calls);
            (checked.forgotten, checked.invented)
        };
        assert_eq!(counted(&[]), (forgotten, invented));
        // What was admitted before a loss may be gone.
        assert_eq!(counted(&[loss(800, 900, None)]), (0, invented));
    }
}

#[test]
fn late_calls_are_found_unless_the_machine_stalled() {
    let mut calls = admitted(LOG, 0, 2);
    calls[1].end = calls[1].start + SECOND + 1;
    assert_eq!(checked(&calls).in_time, 1);
    for (worker, in_time) in [(0, 2), (1, 1)] {
        let stalls = vec![(worker, calls[1].start + 5, calls[1].start + 9)];
        assert_eq!(Case { stalls, ..Case::default() }.check(&calls).in_time, in_time);
    }
}

#[test]
fn decisions_without_the_store_are_bound_for_each_worker() {
    let degraded = |worker, count| {
        let calls = admitted(LOG, 0, count).into_iter();
        calls.map(move |call| Call { worker, degraded: true, ..call }).collect::<Vec<_>>()
    };
    // A third of the quota each, besides what the store admits.
    let calls = [degraded(0, 1), degraded(1, 1), admitted(LOG, 500, QUOTA)].concat();
    assert_eq!(checked(&calls).beyond, 0);
    assert_eq!(checked(&[degraded(0, 2), degraded(1, 1)].concat()).beyond, 1);
    // What others admitted explains no refusal of this worker.
    let refused = Call { degraded: true, ..call(LOG, 900, Outcome::Refused) };
    for (before, early) in [(degraded(0, 1), 0), (degraded(1, 1), 1), (admitted(LOG, 0, QUOTA), 1)] {
        assert_eq!(checked(&[before, vec![refused]].concat()).refused_early, early);
    }
}

#[test]
fn a_refusal_of_two_keys_may_be_due_to_the_other() {
    let pair = |cost| {
        let one = Call { paired: true, cost, ..call(LOG, 1_000, Outcome::Refused) };
        [one, Call { key: KeyId { number: 2, ..one.key }, ..one }]
    };
    for degraded in [false, true] {
        let pair = pair(1).map(|call| Call { degraded, ..call });
        assert_eq!(checked(&pair).refused_early, 1, "neither key explains it");
        let full = admitted(LOG, 0, QUOTA).into_iter().map(|call| Call { degraded, ..call });
        assert_eq!(checked(&[pair.to_vec(), full.collect()].concat()).refused_early, 0);
    }
    // While it is in progress, units of one key may be reserved if the other is on another server.
    let other = [admitted(LOG, 0, QUOTA).as_slice(), &[]].concat();
    let other: Vec<Call> = other.into_iter().map(|call| Call { key: pair(3)[1].key, ..call }).collect();
    for (is_spread, at, early) in [(true, 1_000, 0), (true, 1_100, 1), (false, 1_000, 1)] {
        let case = Case { is_spread, ..Case::default() };
        let calls = [other.as_slice(), &pair(3), &[call(LOG, at, Outcome::Refused)]].concat();
        assert_eq!(case.check(&calls).refused_early, early, "{is_spread} {at}");
    }
}

#[test]
fn reservations_may_stay_if_a_connection_breaks() {
    let failed = call(BUCKET, 0, Outcome::Failed { kind: ErrorKind::Unreachable, maybe: false });
    let refused = [call(LOG, 500, Outcome::Refused), Call { cost: 3, ..call(LOG, 1_000, Outcome::Refused) }];
    for (is_conservative, early) in [(false, 2), (true, 1)] {
        let case = Case { is_conservative, used: Used::from([(key(LOG), 1)]), ..Case::default() };
        assert_eq!(case.check(&refused).refused_early, 2);
        let broken = case.check(&[refused.as_slice(), &[failed]].concat());
        assert_eq!((broken.refused_early, broken.invented), (early, u64::from(!is_conservative)));
    }
}

#[test]
fn a_time_out_while_connecting_is_a_time_out() {
    let failed = call(LOG, 0, Outcome::Failed { kind: ErrorKind::Unreachable, maybe: false });
    for (millis, name) in [(499, "unreachable"), (500, "timeout")] {
        let calls = [Call { end: failed.start + millis * MILLIS, ..failed }];
        assert_eq!(checked(&calls).errors.into_keys().collect::<Vec<_>>(), [name]);
    }
}

#[test]
fn a_store_without_an_order_may_count_late_calls_in_the_window_before() {
    let calls = [admitted(SHORT_SLIDING, 700, QUOTA), admitted(SHORT_SLIDING, 1_000, QUOTA)].concat();
    assert_eq!(checked(&calls).beyond, QUOTA);
    assert_eq!(Case { is_conservative: true, ..Case::default() }.check(&calls).beyond, 0);
}

#[test]
fn recovery_is_when_every_worker_is_served_and_no_call_fails_any_more() {
    let recovery = |calls: &[Call]| Case { healed: 1_000, ..Case::default() }.check(calls).recovery;
    let other = Call { worker: 1, ..call(LOG, 1_300, Outcome::Refused) };
    let served = [call(LOG, 1_100, Outcome::Admitted), other];
    assert_eq!(recovery(&served), Some(301 * MILLIS));
    assert_eq!(recovery(&[call(LOG, 0, Outcome::Admitted), other]), None);
    let failed = call(LOG, 1_700, Outcome::Failed { kind: ErrorKind::Unreachable, maybe: false });
    assert_eq!(recovery(&[served.to_vec(), vec![failed]].concat()), Some(701 * MILLIS));
}
