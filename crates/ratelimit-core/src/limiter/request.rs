//! Requests: what a limiter is asked.

use smallvec::SmallVec;

use crate::{Claim, InvalidClaims, Key, Limit, Limits, Refund, Verdict};

/// What to check: a key, what it costs, and the limits if they are known only now.
///
/// A string or byte slice is a request of cost 1 under the limiter's own limits, so most programs never name this type:
///
/// ```
/// use ratelimit_core::{Limit, Limits, Request};
///
/// let per_address: Limits = "1000/min name address".parse::<Limit>()?.into();
/// let plan: Limits = "100/min name plan".parse::<Limit>()?.into();
///
/// let simple = Request::from("user:7");
/// let weighted = Request::new("user:7").cost(5);
/// // Two identifiers under limits of their own, admitted both or not at all:
/// let both = Request::new("user:7").limits(&plan).and(Request::new("192.0.2.1").limits(&per_address));
/// # let _ = (simple, weighted, both);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    parts: Parts<'a>,
}

/// Nearly always there is one, and then it is no list, so that a check takes it by registers.
#[derive(Clone, Debug)]
enum Parts<'a> {
    One(Part<'a>),
    Several(Vec<Part<'a>>),
}

/// One key of a request.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    key: &'a [u8],
    cost: u64,
    limits: Option<&'a Limits>,
}

impl std::fmt::Debug for Part<'_> {
    /// Keys identify people: only the length is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key of {} bytes, cost {}", self.key.len(), self.cost)
    }
}

impl<'a> Request<'a> {
    /// One unit for `key`.
    #[inline]
    pub fn new<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Part { key: key.as_ref(), cost: 1, limits: None }.into()
    }

    /// Costs `units` instead of one. Zero asks without charging; it always fits.
    #[must_use]
    #[inline]
    pub fn cost(mut self, units: u64) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.cost = units);
        self
    }

    /// Under these limits instead of the limiter's own.
    #[must_use]
    #[inline]
    pub fn limits(mut self, limits: &'a Limits) -> Self {
        self.parts_mut().iter_mut().for_each(|part| part.limits = Some(limits));
        self
    }

    /// Together with `other`: both are admitted or neither is.
    #[must_use]
    pub fn and(self, other: impl Into<Request<'a>>) -> Self {
        let mut parts = match self.parts {
            Parts::One(part) => vec![part],
            Parts::Several(parts) => parts,
        };
        parts.extend_from_slice(other.into().parts());
        Self { parts: Parts::Several(parts) }
    }

    #[inline]
    fn parts(&self) -> &[Part<'a>] {
        match &self.parts {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Several(parts) => parts,
        }
    }

    #[inline]
    fn parts_mut(&mut self) -> &mut [Part<'a>] {
        match &mut self.parts {
            Parts::One(part) => std::slice::from_mut(part),
            Parts::Several(parts) => parts,
        }
    }

    /// Whether it is on one key only. Then no two of its claims are on one meter: [`Limits`] has seen to it.
    #[inline]
    pub(super) fn has_one_key(&self) -> bool {
        self.parts().len() == 1
    }

    /// The claims that this request makes, in the order of its keys and their limits.
    #[inline]
    pub(super) fn claims<'s>(&'s self, namespace: &'s str, own: &'s Limits) -> SmallVec<[Claim<'s>; 4]> {
        let mut claims = SmallVec::new();
        for part in self.parts() {
            for limit in part.limits.unwrap_or(own).iter() {
                let id = crate::MeterId { namespace, scope: limit.scope(), key: part.key };
                claims.push(Claim { id, cost: part.cost, meter: limit.meter_for(part.key) });
            }
        }
        claims
    }

    /// The key that this request is on, if it is only one.
    #[inline]
    pub(super) fn only_part(&self) -> Option<Part<'a>> {
        match &self.parts {
            Parts::One(part) => Some(*part),
            Parts::Several(_) => None,
        }
    }

    /// What to give back of a request that was admitted with these verdicts.
    pub(super) fn refunds<'s>(
        &'s self,
        namespace: &'s str,
        own: &'s Limits,
        verdicts: &[Verdict],
        units: impl Fn(u64) -> u64,
    ) -> Result<SmallVec<[Refund<'s>; 4]>, InvalidClaims> {
        let claims = self.claims(namespace, own);
        if claims.len() != verdicts.len() {
            return Err(InvalidClaims::OtherRequest);
        }
        let refund = |(claim, verdict): (Claim<'s>, &Verdict)| Refund {
            id: claim.id,
            cost: units(claim.cost),
            meter: claim.meter,
            receipt: verdict.receipt,
        };
        Ok(claims.into_iter().zip(verdicts).map(refund).filter(|refund| refund.cost > 0).collect())
    }
}

impl<'a> Part<'a> {
    /// The key, the cost and the limit of the claim that is made on this key, if it is only one.
    #[inline]
    pub(super) fn only_claim<'s>(self, own: &'s Limits) -> Option<(&'a [u8], u64, &'s Limit)>
    where
        'a: 's,
    {
        let [limit] = &**self.limits.unwrap_or(own) else { return None };
        Some((self.key, self.cost, limit))
    }
}

impl<'a> From<Part<'a>> for Request<'a> {
    #[inline]
    fn from(part: Part<'a>) -> Self {
        Self { parts: Parts::One(part) }
    }
}

impl<'a> From<&'a str> for Request<'a> {
    fn from(key: &'a str) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a String> for Request<'a> {
    fn from(key: &'a String) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a [u8]> for Request<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self::new(key)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Request<'a> {
    fn from(key: &'a [u8; N]) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a Vec<u8>> for Request<'a> {
    fn from(key: &'a Vec<u8>) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&'a Key> for Request<'a> {
    fn from(key: &'a Key) -> Self {
        Self::new(key)
    }
}

impl<'a> From<&Request<'a>> for Request<'a> {
    fn from(request: &Request<'a>) -> Self {
        request.clone()
    }
}
