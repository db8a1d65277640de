//! When a state is as good as none.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};

/// The instant from which on a state that was written by this meter equals a new one, for other meters as well: the units of a
/// log count for longer under a longer lease.
pub(super) fn forget_at(meter: &Meter, state: &State, former: Option<Timestamp>) -> Timestamp {
    let forgotten_at = meter.forget_at(state);
    match (state, former) {
        (State::Log(log), Some(former)) if !log.units.is_empty() => forgotten_at.max(former),
        _ => forgotten_at,
    }
}
