//! Handles that answer from a cache, although other handles have changed the meter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use super::broken_store::{Around, BrokenStore};
use ratelimit_conformance::ReferenceStore;

/// Caches refusals. Invalidates them with its own refunds and resets, but not with those of other handles.
const REFUSALS: u8 = 0;
/// Caches refusals, and invalidates them with its own resets, but not with its own refunds.
const REFUSALS_AFTER_REFUNDS: u8 = 1;
/// Caches the result of a peek until it charges the meter itself.
const PEEKS: u8 = 2;
/// Caches refusals, and answers slices of a batch from them.
const REFUSALS_IN_BATCHES: u8 = 3;
/// Caches refusals by totals, which say that nothing will ever fit.
const TOTALS: u8 = 4;
/// Caches refusals by bans.
const BANS: u8 = 5;

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::around::<Remembers<REFUSALS>>(
            "remembers-refusals",
            "a refusal is remembered by a handle although another has reset the key",
            "handles/see-a-reset",
        ),
        BrokenStore::around::<Remembers<REFUSALS>>(
            "remembers-refusals-of-others",
            "a refusal is remembered by a handle although another has given units back",
            "handles/see-a-refund",
        ),
        BrokenStore::around::<Remembers<REFUSALS_AFTER_REFUNDS>>(
            "remembers-after-refunds",
            "a refusal is remembered although the same handle has given units back",
            "handles/see-a-refund",
        ),
        BrokenStore::around::<Remembers<PEEKS>>(
            "remembers-peeks",
            "a handle repeats the remaining units of its last peek",
            "handles/see-a-claim",
        ),
        BrokenStore::around::<Remembers<PEEKS>>(
            "remembers-peeks-before-force",
            "a handle repeats the remaining units from before another handle's forced charge",
            "handles/see-a-forced-charge",
        ),
        BrokenStore::around::<Remembers<REFUSALS_IN_BATCHES>>(
            "remembers-in-batches",
            "a batch is answered by refusals from before another handle gave units back",
            "handles/see-a-refund-of-two",
        ),
        BrokenStore::around::<Remembers<TOTALS>>(
            "remembers-totals",
            "a handle remembers that a total is used up although another has given units back",
            "handles/see-changes-of-a-total",
        ),
        BrokenStore::around::<Remembers<BANS>>(
            "remembers-bans",
            "a ban is remembered by a handle although another has reset the key",
            "bans/reset",
        ),
    ]
}

#[derive(Debug)]
struct Remembers<const WHAT: u8> {
    meters: Arc<ReferenceStore>,
    known: Mutex<HashMap<(Vec<u8>, u64), Answer>>,
}

impl<const WHAT: u8> Remembers<WHAT> {
    fn known(&self) -> MutexGuard<'_, HashMap<(Vec<u8>, u64), Answer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(claims: &Claims<'_>) -> Option<(Vec<u8>, u64)> {
        match **claims {
            // A request for a unit under a limit and a ban.
            [_, ban] if WHAT == BANS && ban.meter.limit() == 0 => Some((ban.id.to_bytes(), ban.cost)),
            [claim] => Some((claim.id.to_bytes(), claim.cost)),
            _ => None,
        }
    }

    fn remembered(&self, claims: &Claims<'_>) -> Option<Answer> {
        let answer = self.known().get(&Self::name(claims)?).cloned()?;
        let asked = match WHAT {
            PEEKS => claims.mode() == Mode::Peek,
            TOTALS => claims.mode() == Mode::Charge && answer.verdicts[0].fits_at.is_none(),
            BANS => claims.mode() == Mode::Charge && answer.verdicts.last()?.fits_at > Some(claims.now()),
            _ => claims.mode() == Mode::Charge && answer.verdicts[0].fits_at > Some(claims.now()),
        };
        asked.then_some(Answer { now: claims.now(), ..answer })
    }

    fn learn(&self, claims: &Claims<'_>, answer: &Result<Answer, StoreError>) {
        let (Ok(answer), Some(name)) = (answer, Self::name(claims)) else { return };
        let kept = match WHAT {
            PEEKS => claims.mode() == Mode::Peek,
            _ => claims.mode() == Mode::Charge && !answer.admitted,
        };
        if kept {
            self.known().insert(name, answer.clone());
        } else if answer.charged {
            self.forget(&name.0);
        }
    }

    fn forget(&self, name: &[u8]) {
        self.known().retain(|(known, _), _| known != name);
    }
}

impl<const WHAT: u8> Around for Remembers<WHAT> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters, known: Mutex::default() }
    }
}

impl<const WHAT: u8> CounterStore for Remembers<WHAT> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if let Some(answer) = self.remembered(&claims) {
            return Ok(answer);
        }
        let answer = self.meters.claim(claims).await;
        self.learn(&claims, &answer);
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let mut answers = Vec::new();
        for claims in slices {
            answers.push(self.claim(*claims).await);
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if WHAT != REFUSALS_AFTER_REFUNDS {
            refunds.iter().for_each(|refund| self.forget(&refund.id.to_bytes()));
        }
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        claims.iter().for_each(|claim| self.forget(&claim.id.to_bytes()));
        self.meters.reset(claims).await
    }
}
