//! Owned claims, so that a task can hold them.

use std::sync::Arc;

use ratelimit_core::meter::{State, decide};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode};
use ratelimit_core::{ErrorKind, LimitError, StoreError, kit};

use crate::error;

/// Where a meter is stored: its name and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeterLocation {
    pub(crate) name: Arc<str>,
    pub(crate) server: usize,
}

/// Claims, and where their meters are stored.
pub(crate) type OwnedClaims = kit::OwnedClaims<MeterLocation>;

/// A claim, and where its meter is stored.
pub(crate) type OwnedClaim = kit::OwnedClaim<MeterLocation>;

/// Units to give back, and where their meter is stored.
pub(crate) type OwnedRefund = kit::OwnedRefund<MeterLocation>;

/// Decides claims in this mode on these states, as [`decide`] does.
pub(crate) fn decide_as(
    mode: Mode,
    owned: &OwnedClaims,
    states: &mut [Option<State>],
) -> Result<Answer, StoreError> {
    let claims: Vec<Claim<'_>> = owned.claims.iter().map(borrow).collect();
    let invalid = |error: LimitError| error::new(ErrorKind::Server, error.to_string());
    Ok(decide(&Claims::new(owned.now, mode, &claims).map_err(invalid)?, states))
}

/// The key is the name of the meter: names are as distinct as identities, and decisions depend on nothing else.
fn borrow(claim: &OwnedClaim) -> Claim<'_> {
    let id = MeterId { namespace: "", scope: "", key: claim.key.name.as_bytes() };
    Claim { id, cost: claim.cost, meter: claim.meter }
}
