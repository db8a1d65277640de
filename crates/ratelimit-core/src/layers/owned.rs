//! A set of claims that owns its names, for claims that wait.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{Claim, Claims, Meter, MeterId, Mode, Timestamp};

/// A set of claims with its names, most of them in one block of memory.
pub(super) struct OwnedSlice {
    now: Timestamp,
    mode: Mode,
    /// Namespace, scope and key of each claim, one after another.
    names: SmallVec<[u8; 64]>,
    claims: SmallVec<[OwnedClaim; 1]>,
}

/// The ends of a claim's names. Each name begins where the previous one ends.
struct OwnedClaim {
    namespace_end: usize,
    scope_end: usize,
    key_end: usize,
    cost: u64,
    meter: Meter,
}

impl OwnedSlice {
    pub(super) fn new(claims: &Claims<'_>) -> Box<Self> {
        let parts = |id: MeterId<'_>| id.namespace.len() + id.scope.len() + id.key.len();
        let mut names = SmallVec::with_capacity(claims.iter().map(|claim| parts(claim.id)).sum());
        let mut end = |name: &[u8]| {
            names.extend_from_slice(name);
            names.len()
        };
        let own = |claim: &Claim<'_>| OwnedClaim {
            namespace_end: end(claim.id.namespace.as_bytes()),
            scope_end: end(claim.id.scope.as_bytes()),
            key_end: end(claim.id.key),
            cost: claim.cost,
            meter: claim.meter,
        };
        let owned = claims.iter().map(own).collect();
        Box::new(Self { now: claims.now(), mode: claims.mode(), names, claims: owned })
    }

    /// The number of claims.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// The claims, borrowed.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        let mut begin = 0;
        self.claims.iter().map(move |claim| {
            let id = MeterId {
                namespace: self.text(begin..claim.namespace_end),
                scope: self.text(claim.namespace_end..claim.scope_end),
                key: &self.names[claim.scope_end..claim.key_end],
            };
            begin = claim.key_end;
            Claim { id, cost: claim.cost, meter: claim.meter }
        })
    }

    /// A name that was stored as text.
    fn text(&self, place: Range<usize>) -> &str {
        std::str::from_utf8(&self.names[place]).unwrap_or_default()
    }

    /// The set as [`Claims`], of the claims that [`OwnedSlice::claims`] returned.
    pub(super) fn slice<'a>(&self, claims: &'a [Claim<'a>]) -> Claims<'a> {
        Claims::known(self.now, self.mode, claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;

    #[test]
    fn it_is_the_slice_that_it_was_made_of() {
        let limit: Limit = "5/s".parse().unwrap();
        let claim = |namespace, scope, key, cost| Claim {
            id: MeterId { namespace, scope, key },
            cost,
            meter: limit.meter_for(key),
        };
        let claims = [
            claim("", "a", b"".as_slice(), 1),
            claim("n", "b", b"\xff\0", 0),
            claim("nn", "c", b"k", 7),
            claim("", "d", b"", 2),
        ];
        let slice = Claims::new(Timestamp::from_secs(9), Mode::Force, &claims).unwrap();
        let owned = OwnedSlice::new(&slice);
        let borrowed: Vec<_> = owned.claims().collect();
        let again = owned.slice(&borrowed);
        assert_eq!((again.now(), again.mode()), (slice.now(), slice.mode()));
        for (one, other) in again.iter().zip(slice.iter()) {
            assert_eq!((one.id, one.cost, one.meter), (other.id, other.cost, other.meter));
        }
        assert_eq!((again.len(), owned.len()), (4, 4));
    }
}
