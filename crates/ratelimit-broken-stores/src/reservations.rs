//! Stores that take several steps, and leave the effects of the first ones when a call is dropped between them.

use std::sync::Arc;

use ratelimit_core::store::{Answer, Claim, Claims, Decisions, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use tokio::task::yield_now;

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

/// Adds first, reads, and undoes an addition that does not fit.
const ADDS_FIRST: u8 = 0;
/// Charges the claims of a slice one by one, and undoes them if one is refused.
const ONE_BY_ONE: u8 = 1;
/// Makes a forced charge in two parts.
const FORCES_IN_PARTS: u8 = 2;
/// Refunds in two parts.
const REFUNDS_IN_PARTS: u8 = 3;
/// Charges half of the cost, then replaces it by the whole cost.
const CHARGES_IN_PARTS: u8 = 4;
/// Charges instead of peeking, and refunds the charge.
const PEEKS_BY_CHARGING: u8 = 5;
/// Like [`ONE_BY_ONE`], and promises that it is exact.
const EXACTLY_ONE_BY_ONE: u8 = 6;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<Steps<ADDS_FIRST>>(
            "adds-first",
            "what does not fit is added and then taken away, unless the call is dropped in between",
            "dropped/refusals-leave-nothing-fixed",
        ),
        BrokenStore::around::<Steps<ONE_BY_ONE>>(
            "one-by-one",
            "a slice is charged claim by claim, and given back if one is refused, unless the call is dropped",
            "dropped/refused-slices-leave-nothing",
        ),
        BrokenStore::around::<Steps<FORCES_IN_PARTS>>(
            "forces-in-parts",
            "a forced charge is made in two parts",
            "dropped/forced-charges-whole-or-not-at-all",
        ),
        BrokenStore::around::<Steps<REFUNDS_IN_PARTS>>(
            "refunds-in-parts",
            "units are given back in two parts",
            "dropped/refunds-whole-or-not-at-all",
        ),
        BrokenStore::around::<Steps<CHARGES_IN_PARTS>>(
            "charges-in-parts",
            "a charge is made in two parts",
            "dropped/claims-whole-or-not-at-all",
        ),
        BrokenStore::around::<Steps<PEEKS_BY_CHARGING>>(
            "peeks-by-charging",
            "a peek charges a unit and gives it back",
            "dropped/peeks-whole-or-not-at-all",
        ),
        BrokenStore::around::<Steps<EXACTLY_ONE_BY_ONE>>(
            "reserves-key-by-key",
            "an exact store reserves the claims of a slice one by one, and gives them back if one is refused",
            "atomic/refused-slices-take-nothing",
        ),
    ]
}

#[derive(Debug)]
struct Steps<const WHAT: u8> {
    meters: Arc<ReferenceStore>,
}

/// The charge of this answer.
fn charged<'a>(claims: &Claims<'a>, answer: &Answer) -> Vec<Refund<'a>> {
    let refund = |(claim, verdict): (&Claim<'a>, &ratelimit_core::store::Verdict)| Refund {
        id: claim.id,
        cost: claim.cost,
        meter: claim.meter,
        receipt: verdict.receipt,
    };
    claims.iter().zip(&answer.verdicts).map(refund).collect()
}

impl<const WHAT: u8> Steps<WHAT> {
    /// Makes the claims as a forced charge, yields, and refunds the charge.
    async fn and_back(&self, claims: &Claims<'_>) -> Result<(), StoreError> {
        let forced = self.meters.claim(claims.with_mode(Mode::Force)).await?;
        yield_now().await;
        self.meters.refund(claims.now(), &charged(claims, &forced)).await
    }

    async fn one_by_one(&self, claims: &Claims<'_>) -> Result<Answer, StoreError> {
        let mut held = Vec::new();
        for place in 0..claims.len() {
            let all: &[Claim<'_>] = claims;
            let Ok(alone) = Claims::new(claims.now(), Mode::Charge, &all[place..=place]) else { break };
            let answer = self.meters.claim(alone).await?;
            if !answer.admitted {
                self.meters.refund(claims.now(), &held).await?;
                return self.meters.claim(claims.with_mode(Mode::Peek)).await;
            }
            held.extend(charged(&alone, &answer));
            yield_now().await;
        }
        self.meters.refund(claims.now(), &held).await?;
        self.meters.claim(*claims).await
    }

    /// Charges half of each cost, yields, refunds the half, and makes the whole claim, so that the answer is for the full
    /// cost.
    async fn in_parts(&self, claims: &Claims<'_>, mode: Mode) -> Result<Answer, StoreError> {
        let halves: Vec<Claim<'_>> =
            claims.iter().map(|claim| Claim { cost: claim.cost / 2, ..*claim }).collect();
        let Ok(half) = Claims::new(claims.now(), mode, &halves) else {
            return self.meters.claim(*claims).await;
        };
        let first = self.meters.claim(half).await?;
        yield_now().await;
        self.meters.refund(claims.now(), &charged(&half, &first)).await?;
        self.meters.claim(*claims).await
    }
}

impl<const WHAT: u8> Around for Steps<WHAT> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters }
    }
}

impl<const WHAT: u8> CounterStore for Steps<WHAT> {
    fn promises(&self) -> Promises {
        let is_exact = WHAT == EXACTLY_ONE_BY_ONE;
        let decisions = if is_exact { Decisions::Exact } else { Decisions::Conservative };
        self.meters.promises().with_decisions(decisions)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let foreseen = self.meters.claim(claims.with_mode(Mode::Peek)).await?;
        match (WHAT, claims.mode()) {
            (ADDS_FIRST, Mode::Charge) if !foreseen.admitted => self.and_back(&claims).await?,
            (PEEKS_BY_CHARGING, Mode::Peek) => self.and_back(&claims).await?,
            (ONE_BY_ONE | EXACTLY_ONE_BY_ONE, Mode::Charge) if claims.len() > 1 => {
                return self.one_by_one(&claims).await;
            }
            (FORCES_IN_PARTS, Mode::Force) => return self.in_parts(&claims, Mode::Force).await,
            (CHARGES_IN_PARTS, Mode::Charge) if foreseen.admitted => {
                return self.in_parts(&claims, Mode::Charge).await;
            }
            _ => {}
        }
        self.meters.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if WHAT == REFUNDS_IN_PARTS {
            let part = |cost: fn(u64) -> u64| -> Vec<Refund<'_>> {
                refunds.iter().map(|refund| Refund { cost: cost(refund.cost), ..*refund }).collect()
            };
            self.meters.refund(now, &part(|cost| cost / 2)).await?;
            yield_now().await;
            return self.meters.refund(now, &part(|cost| cost - cost / 2)).await;
        }
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}
