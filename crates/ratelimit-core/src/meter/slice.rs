//! Decides a set of claims all or nothing, on states in memory.

use super::{Meter, State};
use crate::{Answer, Claims, Mode, Receipt, Timestamp, Verdicts};

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
/// use ratelimit_core::{Limit, Timestamp};
/// use ratelimit_core::meter::decide;
/// use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
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
    let costs = claims.iter().map(|claim| (claim.cost, &claim.meter));
    decide_costs(claims.now(), claims.mode(), costs, states)
}

/// Decides claims of these costs on these meters, as [`decide`] does.
pub(crate) fn decide_costs<'a>(
    now: Timestamp,
    mode: Mode,
    claims: impl ExactSizeIterator<Item = (u64, &'a Meter)> + Clone,
    states: &mut [Option<State>],
) -> Answer {
    for ((_, meter), state) in claims.clone().zip(states.iter_mut()) {
        if state.as_ref().is_some_and(|state| !meter.owns(state)) {
            *state = None;
        }
    }
    let fits = |((cost, meter), state): ((u64, &Meter), &Option<State>)| match state {
        Some(state) => meter.fits(state, cost, now),
        None => cost <= meter.limit(),
    };
    let admitted = mode == Mode::Force || claims.clone().zip(states.iter()).all(fits);
    let charging = admitted && mode != Mode::Peek;
    let count = claims.len();
    let verdicts = claims.zip(states).map(|((cost, meter), state)| {
        let charged = (charging && cost > 0).then(|| {
            let state = state.get_or_insert_with(|| meter.fresh());
            meter.charge(state, cost, now)
        });
        let fresh;
        let state = match &*state {
            Some(state) => state,
            None => {
                fresh = meter.fresh();
                &fresh
            }
        };
        meter.verdict(state, cost, now, charged)
    });
    let verdicts: Verdicts = verdicts.collect();
    assert_eq!(verdicts.len(), count, "one state for each claim");
    Answer { admitted, charged: charging, now, verdicts }
}

/// Refunds `cost` units that were charged with `receipt`, on a state in memory. Does nothing if there is no state, or if it
/// is of another kind of meter.
///
/// Returns `true` if you have to write the state back.
pub fn refund(meter: &Meter, state: &mut Option<State>, cost: u64, receipt: Receipt, now: Timestamp) -> bool {
    match state {
        Some(state) if cost > 0 && meter.owns(state) => {
            meter.refund(state, cost, receipt, now);
            true
        }
        _ => false,
    }
}
