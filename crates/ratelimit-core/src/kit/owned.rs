//! Claims and refunds that own their data.

use smallvec::SmallVec;

use super::OwnedName;
use crate::meter::decide_costs;
use crate::meter::refund;
use crate::{Answer, Claim, Claims, Meter, MeterId, Mode, Receipt, Refund, State, Timestamp};

/// [`Claims`] that own their data, so that a task, a thread or a queue can hold them.
///
/// `K` is the store's form of a [`MeterId`]: usually the key under which it stores the meter.
///
/// ```
/// use ratelimit_core::kit::OwnedClaims;
/// use ratelimit_core::store::{Answer, Claims, MeterId};
///
/// /// Decides on a thread of its own, as a store on a blocking database does.
/// fn decide_elsewhere(claims: &Claims<'_>) -> std::thread::Result<Answer> {
///     let claims = OwnedClaims::new(claims, MeterId::to_bytes);
///     std::thread::spawn(move || {
///         let mut states: Vec<_> = claims.claims.iter().map(|claim| read(&claim.key)).collect();
///         claims.decide(&mut states)
///     })
///     .join()
/// }
/// # fn read(_: &[u8]) -> Option<ratelimit_core::meter::State> { None }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedClaims<K> {
    /// As [`Claims::now`].
    pub now: Timestamp,
    /// As [`Claims::mode`].
    pub mode: Mode,
    /// The claims, in their order.
    pub claims: SmallVec<[OwnedClaim<K>; 2]>,
}

/// A [`Claim`] in a store's own form.
#[derive(Clone, Debug)]
pub struct OwnedClaim<K> {
    /// Where the meter is stored.
    pub key: K,
    /// As [`Claim::cost`].
    pub cost: u64,
    /// As [`Claim::meter`].
    pub meter: Meter,
}

/// A [`Refund`] in a store's own form.
///
/// ```
/// use ratelimit_core::kit::OwnedRefund;
/// use ratelimit_core::store::{MeterId, Refund};
///
/// fn own(refunds: &[Refund<'_>]) -> Vec<OwnedRefund<Vec<u8>>> {
///     refunds.iter().map(|given| OwnedRefund::new(given, MeterId::to_bytes)).collect()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedRefund<K> {
    /// Where the meter is stored, how many units are returned, and how the meter counts.
    pub claim: OwnedClaim<K>,
    /// As [`Refund::receipt`].
    pub receipt: Receipt,
}

impl<K> OwnedClaims<K> {
    /// Copies `claims`. `key` converts each name to the store's form.
    pub fn new<'a>(claims: &Claims<'a>, mut key: impl FnMut(&MeterId<'a>) -> K) -> Self {
        let copy =
            |claim: &Claim<'a>| OwnedClaim { key: key(&claim.id), cost: claim.cost, meter: claim.meter };
        Self { now: claims.now(), mode: claims.mode(), claims: claims.iter().map(copy).collect() }
    }

    /// Decides the claims on the states of their meters, as [`decide`](crate::meter::decide) does.
    ///
    /// # Panics
    /// If there are fewer states than claims.
    pub fn decide(&self, states: &mut [Option<State>]) -> Answer {
        self.decide_as(self.mode, states)
    }

    /// Decides the claims in another mode than theirs, for example to look before units are reserved.
    ///
    /// # Panics
    /// If there are fewer states than claims.
    pub fn decide_as(&self, mode: Mode, states: &mut [Option<State>]) -> Answer {
        let costs = self.claims.iter().map(|claim| (claim.cost, &claim.meter));
        decide_costs(self.now, mode, costs, states)
    }

    /// Whether these claims are refused whatever the state, because a cost is above its limit.
    pub fn never_fit(&self) -> bool {
        self.mode == Mode::Charge && self.claims.iter().any(|claim| claim.cost > claim.meter.limit())
    }

    /// Whether `claim`, which must be one of these, changes its meter if all of them are admitted.
    pub fn charges(&self, claim: &OwnedClaim<K>) -> bool {
        self.mode != Mode::Peek && claim.cost > 0
    }
}

impl OwnedClaims<OwnedName> {
    /// The claims, borrowed.
    pub fn borrowed(&self) -> impl Iterator<Item = Claim<'_>> {
        self.claims.iter().map(|claim| Claim { id: claim.key.id(), cost: claim.cost, meter: claim.meter })
    }
}

impl<K> OwnedRefund<K> {
    /// Copies `refund`. `key` converts its name to the store's form.
    ///
    /// ```
    /// use ratelimit_core::kit::OwnedRefund;
    /// use ratelimit_core::store::{MeterId, Refund};
    ///
    /// fn own(refund: &Refund<'_>) -> OwnedRefund<Vec<u8>> {
    ///     OwnedRefund::new(refund, MeterId::to_bytes)
    /// }
    /// ```
    pub fn new<'a>(refund: &Refund<'a>, key: impl FnOnce(&MeterId<'a>) -> K) -> Self {
        let claim = OwnedClaim { key: key(&refund.id), cost: refund.cost, meter: refund.meter };
        Self { claim, receipt: refund.receipt }
    }

    /// Refunds the units on the state of their meter, as [`refund`](crate::meter::refund()) does. Returns `true` if you have to write
    /// the state back.
    pub fn apply(&self, state: &mut Option<State>, now: Timestamp) -> bool {
        refund(&self.claim.meter, state, self.claim.cost, self.receipt, now)
    }
}
