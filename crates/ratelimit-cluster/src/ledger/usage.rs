//! What nodes exchange about one meter: a usage, or the whole state.

use ratelimit_core::{Meter, State};

use super::units::Units;
use ratelimit_core::kit::OwnedName;

/// Units charged to one meter on one node that have not been sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) name: OwnedName,
    /// The meter at the time of the charge.
    pub(crate) meter: Meter,
    pub(crate) units: Units,
}

/// The state of one meter on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: OwnedName,
    pub(crate) meter: Meter,
    pub(crate) state: State,
}

impl Usage {
    /// Whether the usage can still change a decision on this state.
    pub(super) fn matters_to(&self, state: &State) -> bool {
        match (&self.meter, state, self.units) {
            (Meter::Window(window), State::Window(state), Units::Window { segment, .. }) => {
                window.place(state.at).0.saturating_sub(segment) <= u64::from(window.carried())
            }
            _ => true,
        }
    }
}
