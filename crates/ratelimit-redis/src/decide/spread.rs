//! Slices over several slots of a cluster, which no single script call can decide.

use futures_util::future::join_all;
use ratelimit_core::StoreError;
use ratelimit_core::kit::all_of;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Mode, Verdict};
use tokio::time::{Instant, timeout_at};

use crate::decide::calls::Calls;
use crate::error::{self, ERRORS};
use crate::wire::codec::{Answers, OwnedClaim, OwnedClaims, OwnedRefund, slot_of_all};
use crate::wire::keys::{by_slot, slot_of};

/// The claims of a slice that are in the same slot.
#[derive(Clone)]
struct SlotClaims {
    places: Vec<usize>,
    slice: OwnedClaims,
}

impl Calls {
    /// Checks all parts, then charges them, and gives the charges back if one of the parts no longer fits.
    ///
    /// This runs to completion even if the caller's future is dropped or its deadline passes.
    pub(crate) async fn claim_spread(
        &self,
        slice: OwnedClaims,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let task = tokio::spawn(decide(self.clone(), slice, deadline));
        match timeout_at(deadline, task).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ERRORS.stopped().maybe_applied()),
            Err(_) => Err(ERRORS.late().at(self.link.address())),
        }
    }

    /// Decides independent slices: those of one slot together, all slots concurrently. A slice over several slots is decided
    /// after all slices before it and before all slices after it.
    pub(crate) async fn claim_many_spread(&self, slices: Vec<OwnedClaims>, deadline: Instant) -> Answers {
        let mut answers: Vec<_> = slices.iter().map(|_| Err(ERRORS.stopped().maybe_applied())).collect();
        let mut waiting = Vec::new();
        for (place, slice) in slices.into_iter().enumerate() {
            if let Some(slot) = slot_of_all(&slice) {
                waiting.push((slot, (place, slice)));
            } else {
                flush(self, std::mem::take(&mut waiting), deadline, &mut answers).await;
                answers[place] = self.claim_spread(slice, deadline).await;
            }
        }
        flush(self, waiting, deadline, &mut answers).await;
        answers
    }
}

async fn decide(calls: Calls, slice: OwnedClaims, deadline: Instant) -> Result<Answer, StoreError> {
    let parts = split(&slice);
    let mut seen = Vec::new();
    if slice.mode != Mode::Force {
        seen =
            claim_parts(&calls, &parts, Mode::Peek, deadline).await.into_iter().collect::<Result<_, _>>()?;
        let admitted = seen.iter().all(|answer| answer.admitted);
        if !admitted || slice.mode == Mode::Peek {
            return Ok(merge(&parts, &seen, admitted, false));
        }
    }
    let results = claim_parts(&calls, &parts, slice.mode, deadline).await;
    if results.iter().all(|result| result.as_ref().is_ok_and(|answer| answer.admitted)) {
        let answers: Vec<_> = results.into_iter().flatten().collect();
        return Ok(merge(&parts, &answers, true, true));
    }
    if slice.mode == Mode::Force {
        // These units have been used, so the parts that were charged stay charged.
        let failure = results.into_iter().find_map(Result::err).unwrap_or_else(error::strange_reply);
        return Err(failure.maybe_applied());
    }
    take_back(&calls, &parts, &results).await?;
    Ok(merge(&parts, &refused(results, seen)?, false, false))
}

/// The answers after a refusal: a part that was given back reports its state before the charge. Or the first failure, which
/// may have been applied if any of them may.
fn refused(results: Answers, seen: Vec<Answer>) -> Result<Vec<Answer>, StoreError> {
    let may_be_charged = |result: &Result<_, StoreError>| {
        result.as_ref().is_err_and(|failure| failure.applied() == Applied::Unknown)
    };
    let is_unknown = results.iter().any(may_be_charged);
    let answers = results.into_iter().zip(seen);
    let answers = answers
        .map(|(result, before)| result.map(|now| if now.admitted { before } else { now }))
        .collect::<Result<_, _>>();
    answers.map_err(|failure: StoreError| if is_unknown { failure.maybe_applied() } else { failure })
}

fn split(slice: &OwnedClaims) -> Vec<SlotClaims> {
    let claims = slice.claims.iter().enumerate();
    let parts = by_slot(claims.map(|(place, claim)| (slot_of(&claim.key), (place, claim.clone()))));
    let part = |claims: Vec<_>| {
        let (places, claims) = claims.into_iter().unzip();
        SlotClaims { places, slice: OwnedClaims { now: slice.now, mode: slice.mode, claims } }
    };
    parts.into_iter().map(part).collect()
}

/// Sends all parts concurrently.
async fn claim_parts(calls: &Calls, parts: &[SlotClaims], mode: Mode, deadline: Instant) -> Answers {
    let slices = parts.iter().map(|part| OwnedClaims { mode, ..part.slice.clone() });
    join_all(slices.map(|slice| calls.decide(slice, deadline))).await
}

/// Gives back what the admitted parts have charged, with its own time limit.
async fn take_back(
    calls: &Calls,
    parts: &[SlotClaims],
    results: &[Result<Answer, StoreError>],
) -> Result<(), StoreError> {
    let charged = parts.iter().zip(results).filter_map(|(part, result)| {
        let answer = result.as_ref().ok().filter(|answer| answer.charged)?;
        let give_back = |(claim, verdict): (&OwnedClaim, &Verdict)| OwnedRefund {
            claim: claim.clone(),
            receipt: verdict.receipt,
        };
        let charged = part.slice.claims.iter().zip(&answer.verdicts).filter(|(claim, _)| claim.cost > 0);
        let refunds: Vec<_> = charged.map(give_back).collect();
        let (calls, now) = (calls.clone(), answer.now);
        Some(async move { calls.give_back(now, &refunds, calls.deadline()).await })
    });
    all(charged).await.map_err(StoreError::maybe_applied)
}

/// Makes calls on several nodes concurrently, each whether or not the others fail.
pub(crate) async fn all(
    calls: impl Iterator<Item = impl Future<Output = Result<(), StoreError>>>,
) -> Result<(), StoreError> {
    all_of(join_all(calls).await)
}

/// The answers of the parts merged into one, in the order of the claims. If servers decide by their clocks, which may differ, the
/// times to wait stay what each of them has answered.
fn merge(parts: &[SlotClaims], answers: &[Answer], admitted: bool, charged: bool) -> Answer {
    let now = answers.iter().map(|answer| answer.now).max().unwrap_or_default();
    let mut verdicts: Vec<(usize, Verdict)> = Vec::new();
    for (part, answer) in parts.iter().zip(answers) {
        let behind = now.since(answer.now);
        let verdict = |verdict: &Verdict| Verdict {
            fits_at: verdict.fits_at.map(|instant| instant + behind),
            reset_at: verdict.reset_at + behind,
            ready_at: verdict.ready_at + behind,
            ..*verdict
        };
        verdicts.extend(part.places.iter().copied().zip(answer.verdicts.iter().map(verdict)));
    }
    verdicts.sort_unstable_by_key(|(place, _)| *place);
    Answer { admitted, charged, now, verdicts: verdicts.into_iter().map(|(_, verdict)| verdict).collect() }
}

/// Decides slices, each within one slot, and puts the answers in their places.
async fn flush(
    calls: &Calls,
    waiting: Vec<(u16, (usize, OwnedClaims))>,
    deadline: Instant,
    answers: &mut [Result<Answer, StoreError>],
) {
    let decide = |slot: Vec<(usize, OwnedClaims)>| async move {
        let (places, slices): (Vec<_>, Vec<_>) = slot.into_iter().unzip();
        places.into_iter().zip(calls.decide_all(&slices, deadline).await)
    };
    for (place, answer) in join_all(by_slot(waiting).into_iter().map(decide)).await.into_iter().flatten() {
        answers[place] = answer;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimit_core::store::Receipt;
    use ratelimit_core::{ErrorKind, Timestamp};

    use super::*;

    #[test]
    fn a_check_may_have_been_charged_if_one_of_its_parts_may_have_been() {
        let before = || Answer {
            admitted: true,
            charged: false,
            now: Default::default(),
            verdicts: Default::default(),
        };
        let not_charged = || Err(ERRORS.of(ErrorKind::Unreachable, "down"));
        for (results, applied) in [
            (vec![not_charged(), not_charged()], Applied::No),
            (vec![not_charged(), Ok(before())], Applied::No),
            (vec![not_charged(), Err(ERRORS.late())], Applied::Unknown),
            (vec![Err(ERRORS.late()), not_charged()], Applied::Unknown),
        ] {
            let failure = refused(results, vec![before(), before()]).unwrap_err();
            assert_eq!(failure.applied(), applied);
        }
    }

    #[test]
    fn times_to_wait_do_not_depend_on_how_far_the_clocks_of_nodes_are_apart() {
        let second = Duration::from_secs(1);
        let of = |now: Timestamp| Answer {
            admitted: false,
            charged: false,
            now,
            verdicts: [Verdict {
                fits: false,
                limit: 1,
                remaining: 0,
                fits_at: Some(now + second),
                reset_at: now + second * 2,
                ready_at: now + second * 3,
                receipt: Receipt::at(now),
            }]
            .into_iter()
            .collect(),
        };
        let part = |place| SlotClaims {
            places: vec![place],
            slice: OwnedClaims { now: Timestamp::EPOCH, mode: Mode::Charge, claims: Default::default() },
        };
        let behind = Timestamp::from_secs(100);
        let merged = merge(&[part(1), part(0)], &[of(behind), of(behind + second * 5)], false, false);
        assert_eq!(merged.now, behind + second * 5);
        for verdict in &merged.verdicts {
            assert_eq!(verdict.fits_at, Some(merged.now + second));
            assert_eq!(verdict.reset_at, merged.now + second * 2);
            assert_eq!(verdict.ready_at, merged.now + second * 3);
        }
        // A refund goes to the node that charged.
        assert_eq!(merged.verdicts[1].receipt.instant(), behind);
    }
}
