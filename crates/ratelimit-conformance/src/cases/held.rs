//! A claim whose answers are held while others change its meter: what they have done is not overwritten.

use std::time::Duration;

use ratelimit_core::store::Applied;
use ratelimit_core::store::{Decisions, Mode};
use ratelimit_core::{ErrorKind, Limit};

use super::contended::may_contend;
use super::mirrored::{Part, forget, put};
use crate::bench::{Bench, limit};
use crate::case::{Case, Need};
use crate::clock::{START, pause};
use crate::failure::{CaseResult, ensure};
use crate::in_time::in_time;

/// What others do to the meter while the claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Charge,
    ResetAndCharge,
}

/// How long a store may make the others wait for the claim.
const LOCKED: Duration = Duration::from_millis(500);

pub(super) fn cases() -> Vec<Case> {
    let case = |(meanwhile, name)| {
        Case::new(
            format!("held/{name}"),
            "A claim that is between two round trips, or whose answer is late, overwrites nothing.",
            move |bench| held(bench, meanwhile),
        )
        .any_time()
        .needs(Need::OneCount)
    };
    let ways = [(Meanwhile::Charge, "next-to-charges"), (Meanwhile::ResetAndCharge, "next-to-resets")];
    ways.into_iter().map(case).collect()
}

async fn held(bench: Bench, meanwhile: Meanwhile) -> CaseResult {
    for text in ["10/3000d", "10/3000d fixed", "10/3000d burst 10", "10/3000d log"] {
        one(&bench, &limit(text)?, meanwhile).await?;
    }
    Ok(())
}

async fn one(bench: &Bench, limit: &Limit, meanwhile: Meanwhile) -> CaseResult {
    let (proxy, handle) = bench.through_proxy().await?;
    let part = Part::new(limit, format!("{meanwhile:?}"), 0);
    put(&bench.store, START, Mode::Charge, &[part.of(1)]).await??;
    put(&handle, START, Mode::Peek, &[part.of(1)]).await??; // connects, and may read the meter
    proxy.hold_answers();
    let before = proxy.traffic().requests;
    let claim = tokio::spawn({
        let (handle, part) = (handle.clone(), part.of(1));
        async move { put(&handle, START, Mode::Charge, &[part]).await }
    });
    while proxy.traffic().requests == before && !claim.is_finished() {
        pause(Duration::from_millis(1)).await;
    }
    // The server has the request, and its answer waits.
    proxy.quiet().await;
    // As many as an empty meter takes beside one, or this one beside two.
    let units = if meanwhile == Meanwhile::ResetAndCharge { 9 } else { 8 };
    let others = async {
        if meanwhile == Meanwhile::ResetAndCharge {
            forget(&bench.store, START, &[part.of(0)]).await??;
        }
        put(&bench.store, START, Mode::Charge, &[part.of(units)]).await
    };
    let mut others = std::pin::pin!(in_time("the others", others));
    let ended = tokio::time::timeout(LOCKED, &mut others).await;
    proxy.let_answers_go();
    let mut charged = match ended {
        Ok(charged) => charged?,
        Err(_) => others.await?, // they wait for the claim
    };
    let claimed = in_time("the claim", async { claim.await? }).await?;
    let is_exact = bench.promises().decisions != Decisions::Conservative;
    if !is_exact && !charged.as_ref().is_ok_and(|answer| answer.admitted) {
        // It may refuse next to the claim, and nothing is next to this one.
        charged = put(&bench.store, START, Mode::Charge, &[part.of(units)]).await?;
    }
    let charged = charged?;
    ensure!(charged.admitted, "what fits beside the claim was refused, {limit}: {charged:?}");
    let left = put(&bench.store, START, Mode::Peek, &[part.of(0)]).await??.verdicts[0].remaining;
    let what = format!("{left} of 10 are left, {limit}, and the claim got {claimed:?}");
    // It fits before the others and after them.
    let is_refused = claimed.as_ref().is_ok_and(|answer| !answer.admitted);
    ensure!(!is_exact || !is_refused, "a claim that fits was refused, {limit}: {claimed:?}");
    match (meanwhile, &claimed) {
        // It comes before the reset or after it.
        (Meanwhile::ResetAndCharge, _) => ensure!(left <= 1, "after a reset and nine units {what}"),
        (Meanwhile::Charge, Ok(answer)) => {
            ensure!(left == 1 - u64::from(answer.admitted), "after one unit and eight {what}");
        }
        (Meanwhile::Charge, Err(error)) => {
            ensure!(left <= 1, "after one unit and eight {what}");
            let is_sure = error.applied() == Applied::No;
            ensure!(left == 1 || !is_sure, "after one unit and eight {what}");
        }
    }
    if let Err(error) = claimed {
        let is_late = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unreachable);
        ensure!(is_late || may_contend(bench.promises(), &error), "an error without a reason: {error}");
    }
    Ok(())
}
