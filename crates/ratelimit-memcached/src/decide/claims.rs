//! Owned claims, so that a task can hold them.

use std::sync::Arc;

use ratelimit_core::kit;

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
