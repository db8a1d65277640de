//! Decides a set of claims all or nothing, on states in memory.

use super::{Meter, State};
use crate::{Answer, Claim, Claims, Mode, Timestamp, Verdicts};

/// Decides `claims` on the states of their meters, and charges them if all of them are admitted.
///
/// `states[i]` is the state of the meter of `claims[i]`, or `None` for a meter that the store does not have. If the
/// claims are charged, this updates the states; otherwise it leaves them unchanged, but replaces a state of another kind
/// of meter by `None`. Hold a lock or a transaction on all of the states during the call.
///
/// If the answer is [`charged`](Answer::charged), write back the states of the claims whose cost is not zero. Otherwise
/// write nothing.
///
/// ```
/// use ratelimit_core::{Claim, Claims, Limit, MeterId, Mode, Timestamp, decide};
///
/// let limit: Limit = "2/s".parse()?;
/// let id = MeterId { namespace: "", scope: limit.scope(), key: b"user:7" };
/// let claims = [Claim { id, cost: 2, meter: limit.meter_for(b"user:7") }];
/// let claims = Claims::new(Timestamp::from_secs(5), Mode::Charge, &claims)?;
///
/// let mut states = [None]; // never seen before
/// assert!(decide(&claims, &mut states).admitted);
/// assert!(!decide(&claims, &mut states).admitted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If there are fewer states than claims.
pub fn decide(claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
    let now = claims.now();
    for (claim, state) in claims.iter().zip(states.iter_mut()) {
        if state.as_ref().is_some_and(|state| !claim.meter.owns(state)) {
            *state = None;
        }
    }
    let fits = |(claim, state): (&Claim<'_>, &Option<State>)| match state {
        Some(state) => claim.meter.fits(state, claim.cost, now),
        None => claim.cost <= claim.meter.limit(),
    };
    let admitted = claims.mode() == Mode::Force || claims.iter().zip(states.iter()).all(fits);
    let charging = admitted && claims.mode() != Mode::Peek;
    let verdicts = claims.iter().zip(states).map(|(claim, state)| {
        let charged = (charging && claim.cost > 0).then(|| {
            let state = state.get_or_insert_with(|| claim.meter.fresh());
            claim.meter.charge(state, claim.cost, now)
        });
        let fresh;
        let state = match &*state {
            Some(state) => state,
            None => {
                fresh = claim.meter.fresh();
                &fresh
            }
        };
        claim.meter.verdict(state, claim.cost, now, charged)
    });
    let verdicts: Verdicts = verdicts.collect();
    assert_eq!(verdicts.len(), claims.len(), "one state for each claim");
    Answer { admitted, charged: charging, now, verdicts }
}

/// Refunds `cost` units that were charged with `receipt`, on a state in memory. Does nothing if there is no state, or if it
/// is of another kind of meter.
///
/// Returns `true` if you have to write the state back.
pub fn refund(
    meter: &Meter,
    state: &mut Option<State>,
    cost: u64,
    receipt: Timestamp,
    now: Timestamp,
) -> bool {
    match state {
        Some(state) if cost > 0 && meter.owns(state) => {
            meter.refund(state, cost, receipt, now);
            true
        }
        _ => false,
    }
}
