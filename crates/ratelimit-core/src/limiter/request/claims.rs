//! What the limiter makes of a request: claims, the names of meters, bans, and the keys of a decision.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{Request, RequestKey, RequestKeys};
use crate::decision::AskedKey;
use crate::limit::Ban;
use crate::{Algorithm, Claim, Claims, Limit, LimitError, Limits, MeterId, Mode, Timestamp};

impl<'k, 'l> Request<'k, 'l> {
    /// The claims that this request makes, in the order of its keys and their limits.
    #[inline]
    pub(in crate::limiter) fn claims<'s>(
        &'s self,
        namespace: &'s str,
        default_limits: &'s Limits,
    ) -> SmallVec<[Claim<'s>; 4]> {
        let mut claims = SmallVec::new();
        for part in self.parts() {
            for limit in part.limits(default_limits).iter() {
                let id = MeterId { namespace, scope: limit.scope(), key: part.key };
                let cost = limit.cost_of(part.cost);
                claims.push(Claim { id, cost, meter: limit.meter_for(part.key) });
            }
        }
        claims
    }

    /// Builds [`Claims`] from this request's claims. `default_limits` are the limiter's. If a cost is above a limit, the mode is
    /// [`Mode::Peek`], since the request can never be charged.
    pub(in crate::limiter) fn slice<'c>(
        &self,
        claims: &'c [Claim<'c>],
        default_limits: &Limits,
        now: Timestamp,
        mode: Mode,
    ) -> Result<Claims<'c>, LimitError> {
        let never_fits = |claim: &Claim<'_>| claim.cost > claim.meter.limit();
        let mode = if mode == Mode::Charge && claims.iter().any(never_fits) { Mode::Peek } else { mode };
        // Claims on one key are never on the same meter: `Limits::new` has checked that.
        match &self.parts {
            RequestKeys::One(_) if !claims.is_empty() => Ok(Claims::known(now, mode, claims)),
            // A key that nothing limits is a mistake, even if others are limited.
            RequestKeys::Several(parts)
                if parts.iter().any(|part| part.limits(default_limits).is_empty()) =>
            {
                Err(LimitError::NoLimits)
            }
            _ => Claims::new(now, mode, claims),
        }
    }

    /// The names of the meters under concurrency limits from which it needs units. A request that can never be admitted
    /// has none.
    pub(in crate::limiter) fn held_meters<'s>(
        &'s self,
        namespace: &'s str,
        default_limits: &'s Limits,
    ) -> impl Iterator<Item = MeterId<'s>> {
        let never_fits = |part: &RequestKey<'_, '_>| {
            part.limits(default_limits).iter().any(|limit| limit.cost_of(part.cost) > limit.burst())
        };
        let parts = if self.parts().iter().any(never_fits) { &[] } else { self.parts() };
        parts.iter().filter(|part| part.cost > 0).flat_map(move |part| {
            let held = part
                .limits(default_limits)
                .iter()
                .filter(|limit| limit.algorithm() == Algorithm::Concurrency);
            held.map(move |limit| MeterId { namespace, scope: limit.scope(), key: part.key })
        })
    }

    /// The bytes of a key.
    pub(crate) fn key(&self, index: usize) -> Option<&'k [u8]> {
        self.parts().get(index).map(|part| part.key)
    }

    /// The bans among the limits, each with its key.
    pub(in crate::limiter) fn bans(&self, default_limits: &Limits) -> Vec<(&'k [u8], Ban)> {
        let bans = |part: &RequestKey<'k, 'l>| {
            part.limits(default_limits).iter().filter_map(Limit::ban_meters).collect::<Vec<_>>()
        };
        self.parts().iter().flat_map(|part| bans(part).into_iter().map(|ban| (part.key, ban))).collect()
    }

    /// The keys, as parts of a decision.
    pub(in crate::limiter) fn keys(
        &self,
        default_limits: &'l Limits,
    ) -> impl Iterator<Item = AskedKey<'k, 'l>> {
        self.parts().iter().map(|part| {
            let limits = part.limits.clone().unwrap_or(Cow::Borrowed(default_limits));
            AskedKey { bytes: part.key, cost: part.cost, limits }
        })
    }
}
