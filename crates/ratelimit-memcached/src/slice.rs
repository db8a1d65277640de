//! Slices of claims in a form that a task can own.

use std::sync::Arc;

use ratelimit_core::{
    Answer, Claim, Claims, ErrorKind, Meter, MeterId, Mode, Refund, State, Timestamp, decide,
};

use crate::error::Failure;
use crate::keys::{name_of, place_of};
use crate::servers::Servers;

/// A meter's place: its name on its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) name: Arc<str>,
    pub(crate) server: usize,
}

/// A claim on a meter.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) spot: Spot,
    pub(crate) cost: u64,
    pub(crate) meter: Meter,
}

/// A slice of claims.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) now: Timestamp,
    pub(crate) mode: Mode,
    pub(crate) asks: Vec<Ask>,
}

/// Units to give back to a meter.
#[derive(Clone, Debug)]
pub(crate) struct GiveBack {
    pub(crate) ask: Ask,
    pub(crate) receipt: Timestamp,
    pub(crate) now: Timestamp,
}

impl Spot {
    pub(crate) fn new(servers: &Servers, prefix: &str, id: &MeterId<'_>) -> Self {
        Self { name: name_of(prefix, id).into(), server: servers.choose(place_of(id)) }
    }
}

impl Ask {
    /// Names of meters are as different as their identities, and nothing else of an identity matters for a decision.
    fn claim(&self) -> Claim<'_> {
        let id = MeterId { namespace: "", scope: "", key: self.spot.name.as_bytes() };
        Claim { id, cost: self.cost, meter: self.meter }
    }
}

impl Slice {
    pub(crate) fn new(servers: &Servers, prefix: &str, claims: &Claims<'_>) -> Self {
        let ask = |claim: &Claim<'_>| Ask {
            spot: Spot::new(servers, prefix, &claim.id),
            cost: claim.cost,
            meter: claim.meter,
        };
        Self { now: claims.now(), mode: claims.mode(), asks: claims.iter().map(ask).collect() }
    }

    /// Whether one of its costs is above its limit, so that it cannot be admitted, ever.
    pub(crate) fn never_fits(&self) -> bool {
        self.mode == Mode::Charge && self.asks.iter().any(|ask| ask.cost > ask.meter.limit())
    }

    /// Decides it on these states, as [`decide`] does.
    pub(crate) fn decide(&self, mode: Mode, states: &mut [Option<State>]) -> Result<Answer, Failure> {
        let claims: Vec<Claim<'_>> = self.asks.iter().map(Ask::claim).collect();
        let invalid =
            |error: ratelimit_core::InvalidClaims| Failure::new(ErrorKind::Server, error.to_string());
        let claims = Claims::new(self.now, mode, &claims).map_err(invalid)?;
        Ok(decide(&claims, states))
    }
}

impl GiveBack {
    pub(crate) fn new(servers: &Servers, prefix: &str, refund: &Refund<'_>, now: Timestamp) -> Self {
        let spot = Spot::new(servers, prefix, &refund.id);
        Self { ask: Ask { spot, cost: refund.cost, meter: refund.meter }, receipt: refund.receipt, now }
    }
}
