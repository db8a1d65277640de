//! States in three words, there and back.

use ratelimit_core::meter::LogState;

use super::*;

#[test]
fn states_round_trip_or_are_too_large() {
    let at = Timestamp::MAX;
    let window = |counts: &[u64]| State::Window(WindowState { at, counts: counts.into() });
    let debt = Debt::only(Timestamp::derived(u64::MAX), u64::MAX);
    let bucket = |debts: &[Debt]| BucketState { at, debts: debts.iter().copied().collect() };
    let behind = Debt { receipt: at, ..debt };
    let large = [&[][..], &[behind], &[debt, debt]].map(|debts| State::Bucket(bucket(debts)));
    for large in [window(&[1, 2, 3]), State::Log(LogState::default())].into_iter().chain(large) {
        assert_eq!(CompactState::of(&large), None);
    }
    let bucket = bucket(&[debt]);
    for state in [window(&[u64::MAX]), window(&[7, u64::MAX]), State::Bucket(bucket.clone())] {
        let compact = CompactState::of(&state).unwrap();
        assert_eq!((compact.state(), compact.at(), compact.number()), (Ok(state), at, None));
        assert_eq!(CompactState::from_words(compact.words()), compact);
    }
    let ahead = BucketState { at: Timestamp::derived(u64::MAX), ..bucket.clone() };
    let compact = CompactState::of(&State::Bucket(ahead)).unwrap();
    assert_eq!(compact.state(), Ok(State::Bucket(bucket)), "no clock can be ahead of it");
    let elsewhere = CompactState::elsewhere(7);
    assert_eq!((elsewhere.state(), elsewhere.number()), (Err(7), Some(7)));
}
