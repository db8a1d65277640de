//! Bans: counts refusals, and starts a ban when there were too many, or by hand.

use std::time::Duration;

use super::request::Request;
use super::{CheckError, RateLimiter};
use crate::decision::Decision;
use crate::limit::Ban;
use crate::{
    Claim, Claims, Clock, CounterStore, ErrorKind, LimitError, Meter, MeterId, Mode, StoreError, Timestamp,
};

impl<S: CounterStore, C: Clock> RateLimiter<S, C> {
    /// Counts a refusal for the [bans](crate::Algorithm::Ban) among the limits of `request`. If this starts a ban, changes
    /// `decision` accordingly. Does nothing if there are no bans, if `decision` is not a refusal, or if a ban refused it
    /// already.
    ///
    /// [`check`](Self::check), [`check_many`](Self::check_many), [`take_up_to`](Self::take_up_to) and
    /// [`reserve`](Self::reserve) do this themselves. It takes one more round trip for a refusal under limits with a ban, and
    /// a few more when a ban starts. Call it if you refuse a request because of another decision, such as that of
    /// [`would_allow`](Self::would_allow). Requests that [wait](Self::acquire) until they are admitted count nothing.
    ///
    /// ```
    /// # use ratelimit_core::{CheckError, CounterStore, Limits, RateLimiter, Request};
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let log_ins = RateLimiter::new(store, "5/15min; ban 1h after 3 in 1h".parse::<Limits>()?);
    /// let request = Request::new("user:7");
    /// let mut decision = log_ins.would_allow(&request).await?;
    /// if !decision.allowed() {
    ///     log_ins.count_refusal(&request, &mut decision).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store did not answer. The refusal may then not be counted.
    pub async fn count_refusal(
        &self,
        request: &Request<'_, '_>,
        decision: &mut Decision<'_>,
    ) -> Result<(), StoreError> {
        count_refusal(&self.store, &self.namespace, &self.clock, request, decision).await
    }

    /// Bans the request's keys for this long from now on, whatever they have been refused. A [ban](crate::Algorithm::Ban)
    /// among the limits of a key refuses it until then, for all limiters that have this limit. A
    /// [`reset`](Self::reset) lifts it.
    ///
    /// A key that is banned for longer already stays banned for as long. The ban does not count as an earlier one of a ban that
    /// [grows](crate::LimitBuilder::growing). Lengths are rounded up to whole microseconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_core::{CheckError, CounterStore, Limits, RateLimiter};
    /// # async fn example(store: impl CounterStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::new(store, "100/min; ban 1h after 20 in 10min".parse::<Limits>()?);
    /// limiter.ban("192.0.2.1", Duration::from_secs(86_400)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no key has a ban among its limits, if the length is zero or more than 366 days, or if the store did not answer.
    pub async fn ban<'k, 'l>(
        &'l self,
        request: impl Into<Request<'k, 'l>>,
        length: Duration,
    ) -> Result<(), CheckError> {
        ban(&self.store, &self.namespace, &self.clock, request.into().bans(&self.limits), length).await
    }

    /// Removes the counted refusals and the earlier bans of the request's keys, but not a ban that they have now.
    pub(super) async fn forget_offences(&self, request: &Request<'_, '_>) -> Result<(), CheckError> {
        forget_offences(&self.store, &self.namespace, self.clock.now(), request.bans(&self.limits)).await
    }
}

pub(super) async fn count_refusal(
    store: &impl CounterStore,
    namespace: &str,
    clock: &impl Clock,
    request: &Request<'_, '_>,
    decision: &mut Decision<'_>,
) -> Result<(), StoreError> {
    for (index, key_index) in decision.refused_under_bans(request) {
        let Some(key) = request.key(key_index) else { continue };
        let Some(ban) = decision.ban_meters(index) else { continue };
        if let Some(left) = count_one(store, clock, namespace, key, &ban).await? {
            decision.set_banned(index, left);
        }
    }
    Ok(())
}

pub(super) async fn ban(
    store: &impl CounterStore,
    namespace: &str,
    clock: &impl Clock,
    bans: Vec<(&[u8], Ban)>,
    length: Duration,
) -> Result<(), CheckError> {
    let (all, bucket) = Ban::claim_of(length)?;
    if bans.is_empty() {
        return Err(LimitError::NoBan.into());
    }
    for (key, ban) in bans {
        let id = MeterId { namespace, scope: &ban.scope, key };
        let mut cost = all;
        // What an earlier ban leaves may become less by another one at the same time: each attempt is shorter.
        while cost > 0 {
            let only = [claim(id, cost, Meter::Bucket(bucket))];
            let answer = store.claim(Claims::known(clock.now(), Mode::Charge, &only)).await?;
            if answer.admitted && !answer.charged {
                let message =
                    "the key was not banned: the store did not answer, and its fallback counts nothing";
                return Err(StoreError::new("a fallback", ErrorKind::Unreachable, message)
                    .not_applied()
                    .into());
            }
            let left = answer.verdicts.first().map_or(0, |verdict| verdict.remaining);
            cost = if answer.admitted { 0 } else { left.min(cost - 1) };
        }
    }
    Ok(())
}

pub(super) async fn forget_offences(
    store: &impl CounterStore,
    namespace: &str,
    now: Timestamp,
    bans: Vec<(&[u8], Ban)>,
) -> Result<(), CheckError> {
    for (key, ban) in bans {
        let id = |scope| MeterId { namespace, scope, key };
        let refusals = ban.refusals.map(|log| claim(id(&ban.refusals_scope), 0, Meter::Log(log)));
        let earlier = ban.earlier.map(|bucket| claim(id(&ban.earlier_scope), 0, Meter::Bucket(bucket)));
        for only in refusals.iter().chain(&earlier) {
            store.reset(Claims::known(now, Mode::Force, std::slice::from_ref(only))).await?;
        }
    }
    Ok(())
}

/// Counts a refusal of a key for one ban. Returns how long the ban lasts from now if the key is banned now.
async fn count_one(
    store: &impl CounterStore,
    clock: &impl Clock,
    namespace: &str,
    key: &[u8],
    ban: &Ban,
) -> Result<Option<Duration>, StoreError> {
    let id = |scope| MeterId { namespace, scope, key };
    let send = async |mode, only: Claim<'_>| {
        store.claim(Claims::known(clock.now(), mode, std::slice::from_ref(&only))).await
    };
    let refusal = ban.refusals.map(|log| claim(id(&ban.refusals_scope), 1, Meter::Log(log)));
    if let Some(refusal) = refusal {
        // What is refused at the same time as a ban starts counts no more than what is refused while it lasts.
        let both = [claim(id(&ban.scope), 0, Meter::Bucket(ban.gate)), refusal];
        let answer = store.claim(Claims::known(clock.now(), Mode::Charge, &both)).await?;
        if answer.admitted {
            return Ok(None);
        }
        if let Some(gate) = answer.verdicts.first().filter(|gate| !gate.fits) {
            return Ok(Some(gate.reset_at.since(answer.now)));
        }
    }
    let another = ban.earlier.map(|bucket| claim(id(&ban.earlier_scope), 1, Meter::Bucket(bucket)));
    let earlier = match another {
        Some(another) => {
            let answer = send(Mode::Peek, Claim { cost: 0, ..another }).await?;
            answer.verdicts.first().map_or(0, |verdict| verdict.limit.saturating_sub(verdict.remaining))
        }
        None => 0,
    };
    let Ok((cost, bucket)) = ban.claim(earlier) else { return Ok(None) };
    // Another process may have seen the same refusals: only one of the bans is admitted.
    let answer = send(Mode::Charge, claim(id(&ban.scope), cost, Meter::Bucket(bucket))).await?;
    if answer.admitted && !answer.charged {
        return Ok(None); // this store counts nothing
    }
    if answer.admitted {
        // The ban holds even if the rest fails.
        if let Some(another) = another {
            let _ = send(Mode::Charge, another).await;
        }
        if let Some(refusal) = refusal {
            let claims = Claims::known(clock.now(), Mode::Force, std::slice::from_ref(&refusal));
            let _ = store.reset(claims).await;
        }
    }
    // The store decided after the request had been refused, so from then on the ban lasts for this long at least.
    Ok(answer.verdicts.first().map(|verdict| verdict.reset_at.since(answer.now)))
}

fn claim(id: MeterId<'_>, cost: u64, meter: Meter) -> Claim<'_> {
    Claim { id, cost, meter }
}
