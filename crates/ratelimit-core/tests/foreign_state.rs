//! States of another kind or shape, as limits change; when a state may be forgotten, and when there is nothing to write.

use std::time::Duration;

use ratelimit_core::meter::{CorruptState, MAX_UNITS, Meter, State, decide, refund};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Receipt};
use ratelimit_core::{Limit, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_000_020);

/// One limit of each kind and shape of state, all with 10 units.
const LIMITS: [&str; 6] = [
    "10/min fixed",
    "10/min",
    "10/min precision 15s",
    "10/min precision 15s strict",
    "10/min burst 10",
    "10/min log",
];

fn meter(text: &str) -> Meter {
    text.parse::<Limit>().unwrap_or_else(|error| panic!("{text}: {error}")).meter_for(b"k")
}

/// The state after 7 units at [`START`].
fn charged(meter: &Meter) -> State {
    let mut state = meter.fresh();
    meter.charge(&mut state, 7, START);
    state
}

#[test]
fn a_state_of_another_shape_is_a_fresh_one() {
    let now = START + Duration::from_secs(1);
    for (one, other) in LIMITS.iter().flat_map(|one| LIMITS.iter().map(move |other| (one, other))) {
        let (meter, foreign) = (meter(one), charged(&meter(other)));
        if meter.owns(&foreign) {
            assert_eq!(meter.verdict(&foreign, 1, now, None).remaining, 3, "{one} on {other}");
            continue;
        }
        let what = format!("{one} on {other}");
        let fresh = meter.fresh();
        assert_eq!(meter.forget_at(&foreign), Timestamp::EPOCH, "{what}");
        assert!(meter.fits(&foreign, 10, now) && !meter.fits(&foreign, 11, now), "{what}");
        assert_eq!(meter.verdict(&foreign, 4, now, None), meter.verdict(&fresh, 4, now, None), "{what}");
        let mut refunded = foreign.clone();
        meter.refund(&mut refunded, 7, Receipt::at(START), now);
        assert_eq!(refunded, foreign, "{what}");
        let (mut one, mut other) = (fresh, foreign);
        let claimed = meter.claim(&mut one, 4, now, Mode::Charge);
        assert_eq!(meter.claim(&mut other, 4, now, Mode::Charge), claimed, "{what}");
        assert_eq!(one, other, "{what}");
    }
}

/// A window has as many counts as segments, strict or not; each of the others has a shape of its own.
#[test]
fn each_shape_owns_its_own_states() {
    for (one, other) in LIMITS.iter().flat_map(|one| LIMITS.iter().map(move |other| (one, other))) {
        let is_same = one.trim_end_matches(" strict") == other.trim_end_matches(" strict");
        assert_eq!(meter(one).owns(&charged(&meter(other))), is_same, "{one} on {other}");
    }
}

#[test]
fn a_state_decides_like_a_fresh_one_from_the_instant_at_which_it_may_be_forgotten() {
    for text in LIMITS {
        let meter = meter(text);
        let state = charged(&meter);
        let at = meter.forget_at(&state);
        assert_eq!(at, meter.verdict(&state, 1, START, None).reset_at, "{text}");
        assert!(meter.fits(&state, 10, at), "{text}");
        let just_before = Timestamp::from_nanos(at.as_nanos() - 1);
        assert!(!meter.fits(&state, 10, just_before), "{text}: it could be forgotten earlier");
    }
}

#[test]
fn a_refunded_charge_does_not_keep_a_state_from_being_forgotten() {
    for (text, after) in LIMITS.iter().flat_map(|text| [15, 75].map(|after| (text, after))) {
        let (meter, later) = (meter(text), START + Duration::from_secs(after));
        let (mut refunded, without) = (charged(&meter), charged(&meter));
        let again = meter.charge(&mut refunded, 2, later);
        meter.refund(&mut refunded, 2, again.receipt, later);
        let at = meter.forget_at(&refunded);
        assert!(at <= meter.forget_at(&without).max(later), "{text} after {after} s: {at:?}");
        assert!(meter.fits(&refunded, 10, at.max(later)), "{text} after {after} s");
    }
}

#[test]
fn a_cost_of_zero_leaves_nothing_to_write() {
    for text in LIMITS {
        let meter = meter(text);
        let claim = |key, cost| Claim { id: MeterId { namespace: "", scope: "s", key }, cost, meter };
        let (free, paid) = (claim(b"free", 0), claim(b"paid", 1));
        for slice in [&[free][..], &[free, paid][..]] {
            let mut states = vec![None; slice.len()];
            let answer = decide(&Claims::new(START, Mode::Charge, slice).unwrap(), &mut states);
            assert!(answer.admitted && states[0].is_none(), "{text}: {states:?}");
            assert_eq!(states.get(1).is_some_and(Option::is_some), slice.len() == 2, "{text}: {states:?}");
        }
        let foreign = if text.ends_with("log") { LIMITS[0] } else { "10/min log" };
        for (state, cost, writes) in [(charged(&meter), 0, false), (charged(&meter), 1, true)] {
            assert_eq!(refund(&meter, &mut Some(state), cost, Receipt::at(START), START), writes, "{text}");
        }
        let state = charged(&self::meter(foreign));
        assert!(!refund(&meter, &mut Some(state), 1, Receipt::at(START), START), "{text}");
        assert!(!refund(&meter, &mut None, 1, Receipt::at(START), START), "{text}");
    }
}

/// The largest number that every store can hold is 2^63 - 1: PostgreSQL has no larger one.
#[test]
fn stored_numbers_beyond_those_of_every_store_are_refused() {
    let bytes = |tag: u8, numbers: &[u64]| {
        let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
        State::from_bytes(&std::iter::once(tag).chain(numbers).collect::<Vec<_>>())
    };
    let (most, latest, second) = (i64::MAX as u64, Timestamp::MAX.as_nanos(), 1_000_000_000);
    assert!(bytes(b'l', &[1, most]).is_ok() && bytes(b'l', &[1, most + 1]).is_err());
    assert!(bytes(b'w', &[latest, MAX_UNITS]).is_ok());
    assert!(bytes(b'w', &[latest + 1, 1]).is_err() && bytes(b'w', &[latest, MAX_UNITS + 1]).is_err());
    assert!(bytes(b'b', &[latest, most, second]).is_ok());
    assert!(bytes(b'b', &[latest + 1, most, second]).is_err());
    assert!(bytes(b'b', &[latest, most + 1, second]).is_err());
    assert!(bytes(b'b', &[latest, most, second, most]).is_ok());
    assert!(bytes(b'b', &[latest, most, second, most + 1]).is_err());
    assert!(bytes(b'b', &[latest, most, 0]).is_err());
    assert!(CorruptState.to_string().contains("written by another program"));
}

#[test]
fn the_widest_meter_says_what_was_charged_beyond_the_limit() {
    for text in LIMITS {
        let (meter, mut state) = (meter(text), charged(&meter(text)));
        meter.claim(&mut state, 7, START, Mode::Force);
        let widest = meter.widest().verdict(&state, 0, START, None);
        // A log keeps no more units than it admits.
        let used = if text.ends_with("log") { 10 } else { 14 };
        assert_eq!(widest.limit - widest.remaining, used, "{text}");
        assert_eq!(meter.verdict(&state, 0, START, None).remaining, 0, "{text}");
    }
}
