//! Buckets at their bounds and in rare combinations; `tests/oracle.rs` compares the usual ones with their definition.

use super::*;
use crate::{Meter, State};

/// The longest time that a burst may take to drain.
const LONGEST: u64 = 1 << 61;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn a_burst_drains_within_the_longest_time_of_one() {
    let interval = 1 << 51;
    assert_eq!(Bucket::with_interval(interval, 1 << 10).unwrap().tolerance(), LONGEST);
    assert_eq!(Bucket::with_interval(interval, (1 << 10) + 1), Err(LimitError::BurstTooLong));
}

#[test]
fn forced_charges_owe_at_most_the_largest_debt() {
    let bucket = Bucket::with_interval(1_000_000, 1).unwrap();
    let mut state = Bucket::fresh();
    bucket.charge(&mut state, MAX_UNITS, at(5));
    assert_eq!(state.tat(), Some(Timestamp::derived(5 + (1 << 62) - 1)));
}

#[test]
fn a_gate_is_open_while_the_bucket_is_empty() {
    let (bucket, gate) = (Bucket::with_interval(10, 5).unwrap(), Bucket::gate(10).unwrap());
    let mut state = Bucket::fresh();
    let open = |state: &BucketState, now| gate.fits(state, 0, at(now));
    assert!(open(&state, 100) && !gate.fits(&state, 1, at(100)));
    bucket.charge(&mut state, 2, at(100));
    assert_eq!([100, 119, 120].map(|now| open(&state, now)), [false, false, true]);
    for mode in [Mode::Charge, Mode::Peek] {
        let claim = |now| Meter::Bucket(gate).claim(&mut State::Bucket(state.clone()), 0, at(now), mode);
        let seen = [119, 120].map(|now| (claim(now).0, claim(now).1.fits_at));
        assert_eq!(seen, [(false, Some(at(120))), (true, Some(at(120)))]);
    }
}

#[test]
fn another_rate_keeps_the_steps_and_the_turns() {
    let bucket = Bucket::in_steps(3, 3_000, 6).unwrap().with_immediate(2).with_rate(50, 4).unwrap();
    let is = (bucket.interval(), bucket.burst(), bucket.step(), bucket.immediate());
    assert_eq!(is, (50, 4, 3_000, 2));
    let long = Bucket::with_interval(3_000_000_000_000_000, 2).unwrap().with_immediate(1).widest();
    assert_eq!((long.burst(), long.immediate()), (LONGEST / 3_000_000_000_000_000, u64::MAX));
    assert_eq!(bucket.widest().burst(), MAX_UNITS);
}

#[test]
fn a_queue_takes_units_back_unless_that_gives_away_a_turn() {
    let queue = Bucket::with_interval(10, 9).unwrap().with_immediate(2);
    let mut state = Bucket::fresh();
    let left = |state: &BucketState| 9 - state.owed(at(100));
    let charge = |state: &mut BucketState| queue.charge(state, 1, at(100));
    let [first, _] = [(); 2].map(|()| charge(&mut state));
    queue.refund(&mut state, 1, first.receipt, at(100));
    assert_eq!(left(&state), 8, "nobody waits");
    let [immediate, waiting] = [(); 2].map(|()| charge(&mut state));
    assert_eq!([immediate.ready_at, waiting.ready_at], [at(100), at(110)]);
    queue.refund(&mut state, 1, immediate.receipt, at(100));
    assert_eq!(left(&state), 6, "the turn of another has been assigned");
    queue.refund(&mut state, 1, waiting.receipt, at(100));
    assert_eq!(left(&state), 7, "nothing was charged after it");
}

#[test]
fn a_queue_in_steps_gives_turns_at_the_ends_of_steps() {
    let queue = Bucket::in_steps(2, 10, 9).unwrap().with_immediate(2);
    let mut state = Bucket::fresh();
    let mut turn = |now| queue.charge(&mut state, 1, at(now)).ready_at.as_nanos();
    assert_eq!([turn(100), turn(103), turn(104), turn(109)], [100, 103, 110, 110]);
}

/// A caller whose clock is behind is decided as of the latest charge, but no figure delays it if nothing has to drain.
#[test]
fn callers_behind_an_empty_bucket_do_not_wait_for_it() {
    for bucket in [Bucket::with_interval(10, 5).unwrap(), Bucket::in_steps(1, 10, 5).unwrap()] {
        let mut state = Bucket::fresh();
        let charged = bucket.charge(&mut state, 2, at(100));
        bucket.refund(&mut state, 2, charged.receipt, at(100));
        let verdict = bucket.verdict(&state, 1, at(50), None);
        assert_eq!((verdict.remaining, verdict.reset_at), (5, at(50)));
    }
    let queue = Bucket::with_interval(10, 5).unwrap().with_immediate(2);
    let mut state = Bucket::fresh();
    queue.charge(&mut state, 1, at(100));
    assert_eq!(queue.verdict(&state, 1, at(50), None).ready_at, at(50));
    assert_eq!(queue.charge(&mut state, 1, at(50)).ready_at, at(50));
    assert_eq!(queue.charge(&mut state, 1, at(50)).ready_at, at(110));
}

#[test]
fn a_total_that_is_charged_at_the_epoch_never_drains() {
    let total = Bucket::in_total(3).unwrap();
    let mut state = Bucket::fresh();
    total.charge(&mut state, 3, Timestamp::EPOCH);
    let verdict = total.verdict(&state, 1, at(9), None);
    assert_eq!((verdict.fits_at, verdict.reset_at), (None, Timestamp::MAX));
    assert_eq!(total.forget_at(&state), Timestamp::MAX);
}

/// Of a change of the quota in the middle of a window as well: what all of them have charged has drained at its end.
#[test]
fn windows_of_all_quotas_end_together() {
    const HOUR: u64 = 3_600_000_000_000;
    let window = |quota| Bucket::in_steps(quota, HOUR, quota).unwrap();
    let quotas = [1, 2, 3, 6, 7, 11, 13, 700, 1_001];
    for quotas in quotas.iter().flat_map(|one| quotas.map(|other| [*one, other])) {
        let mut state = Bucket::fresh();
        for (nth, quota) in quotas.into_iter().enumerate() {
            let now = at(1_000 + nth as u64);
            let left = window(quota).verdict(&state, 0, now, None).remaining;
            window(quota).charge(&mut state, left, now);
            assert_eq!(window(quota).verdict(&state, 0, now, None).remaining, 0, "{quotas:?}");
        }
        for quota in quotas {
            let left = |now| window(quota).verdict(&state, 0, at(now), None).remaining;
            let most = quotas[0].max(quotas[1]);
            assert_eq!(
                [left(999 + HOUR), left(1_000 + HOUR)],
                [quota.saturating_sub(most), quota],
                "{quotas:?}"
            );
        }
    }
}
