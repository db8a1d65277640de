//! A slice of claims that owns its names: what waits has to.

use smallvec::SmallVec;

use crate::{Claim, Claims, Meter, MeterId, Mode, Timestamp};

/// A slice of claims, its names in one piece.
pub(super) struct OwnedSlice {
    now: Timestamp,
    mode: Mode,
    text: String,
    keys: Vec<u8>,
    claims: SmallVec<[OwnedClaim; 1]>,
}

/// The ends of a claim's names in the pieces; each begins where the one before it ends.
struct OwnedClaim {
    namespace_end: usize,
    scope_end: usize,
    key_end: usize,
    cost: u64,
    meter: Meter,
}

impl OwnedSlice {
    pub(super) fn new(claims: &Claims<'_>) -> Self {
        let (mut text, mut keys) = (String::new(), Vec::new());
        let own = |claim: &Claim<'_>| {
            text.push_str(claim.id.namespace);
            let namespace_end = text.len();
            text.push_str(claim.id.scope);
            keys.extend_from_slice(claim.id.key);
            OwnedClaim {
                namespace_end,
                scope_end: text.len(),
                key_end: keys.len(),
                cost: claim.cost,
                meter: claim.meter,
            }
        };
        let owned = claims.iter().map(own).collect();
        Self { now: claims.now(), mode: claims.mode(), text, keys, claims: owned }
    }

    /// How many claims it has.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Its claims, borrowed.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        let (mut text, mut key) = (0, 0);
        self.claims.iter().map(move |claim| {
            let id = MeterId {
                namespace: &self.text[text..claim.namespace_end],
                scope: &self.text[claim.namespace_end..claim.scope_end],
                key: &self.keys[key..claim.key_end],
            };
            (text, key) = (claim.scope_end, claim.key_end);
            Claim { id, cost: claim.cost, meter: claim.meter }
        })
    }

    /// The slice, of the claims that [`OwnedSlice::claims`] gave.
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
