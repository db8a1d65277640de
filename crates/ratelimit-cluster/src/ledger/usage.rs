//! What nodes exchange about one meter: a usage, or the whole state.

use ratelimit_core::meter::{Meter, State};

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
