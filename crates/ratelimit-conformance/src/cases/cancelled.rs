//! Dropped futures have no effect on other calls.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use ratelimit_core::store::Decisions;
use ratelimit_core::{Decision, Limits};

use super::atomic::still;
use super::contended::admitted;
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{DAYS, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::in_time::{in_time, settled};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::METERS,
        "cancelled/claims",
        "Claims dropped at any point: nothing is over-admitted, and all that was admitted is counted.",
        claims,
    );
    cases = cases.into_iter().map(Case::heavy).collect();
    cases.extend([
        Case::new(
            "cancelled/others-go-on",
            "After dropped claims, all handles and keys get correct answers.",
            others,
        ),
        Case::new(
            "cancelled/slices",
            "A dropped slice of several limits is charged in full or not at all.",
            slices,
        )
        .needs(Need::ExactPerKey),
        Case::new("cancelled/batches", "A dropped batch has no effect on other calls.", batches),
        Case::new(
            "cancelled/refunds-and-resets",
            "Dropped refunds and resets have no effect on other calls.",
            refunds_and_resets,
        ),
    ]);
    cases.into_iter().map(Case::any_time).collect()
}

/// Polls a future at most this many times, then drops it.
pub(super) async fn polled<T>(future: impl Future<Output = T>, most: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == most {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn claims(bench: Bench, kind: Kind) -> CaseResult {
    let (handles, promises) = (bench.handles(3).await?, bench.promises());
    let limits: Limits = kind.limit(100, DAYS)?.into();
    let found = storm(&handles, 150, |handle, number| {
        let limiter = still(handle, &limits, START);
        async move {
            // Every third claim is awaited.
            let polls = if number.is_multiple_of(3) { usize::MAX } else { number % 5 };
            let ended = in_time("a claim", async { Ok(polled(limiter.check("k"), polls).await) }).await?;
            ended.map(|answer| admitted(promises, answer)).transpose()
        }
    });
    let found = found.await?;
    let count = |which| found.iter().filter(|ended| **ended == which).count() as u64;
    let (admitted, refused, dropped) = (count(Some(true)), count(Some(false)), count(None));
    ensure!(
        (1..=100).contains(&admitted),
        "{admitted} were admitted of 100, by 150 claims through three handles, {kind:?}"
    );
    let trial = Trial::new(&bench, limits);
    let left = settled(|| trial.left()).await?;
    let (least, most) = (100_u64.saturating_sub(admitted + dropped), 100 - admitted);
    ensure!(
        (least..=most).contains(&left),
        "{left} of 100 are left after {admitted} admitted and {dropped} dropped claims"
    );
    if promises.decisions != Decisions::Conservative {
        ensure!(refused == 0 || left == 0, "{refused} were refused although {left} are left");
    }
    let later = trial.drain(101).await?;
    ensure_eq!(later, left, "admitted after it");
    Ok(())
}

/// Requests units of a key next to dropped calls that may still run. Because of these, a store that may refuse under contention
/// may refuse, which gives `None`.
async fn ask(bench: &Bench, trial: &Trial, cost: u64) -> CaseResult<Option<Decision<'static>>> {
    let promises = bench.promises();
    let answer = in_time("a claim", async { Ok(trial.limiter.check(trial.request(cost)).await) }).await?;
    let decision = answer.as_ref().ok().map(|decision| decision.clone().into_owned());
    let is_admitted = admitted(promises, answer)?;
    ensure!(
        is_admitted || promises.decisions == Decisions::Conservative,
        "refused after calls were dropped: {decision:?}"
    );
    Ok(decision.filter(|_| is_admitted))
}

async fn others(bench: Bench) -> CaseResult {
    let limits: Limits = limit("1000/3000d")?.into();
    let trial = Trial::new(&bench, limits.clone());
    for round in 0..20_usize {
        for polls in 0..5 {
            drop(polled(trial.limiter.check("k"), polls).await);
        }
        let other = trial.key(format!("other {round}"));
        for cost in [3, 5] {
            other.admit(cost).await?;
        }
        // The answer to a dropped claim would report another count.
        ensure_eq!(other.left().await?, 992, "left to another key");
        ask(&bench, &trial, 1).await?;
    }
    let fresh = trial.on(bench.open().await?);
    ask(&bench, &fresh, 1).await?;
    Ok(())
}

async fn slices(bench: Bench) -> CaseResult {
    let three: Limits = crate::bench::limits(&["500/3000d", "500/3000d burst 500", "500/3000d log"])?;
    let trial = Trial::new(&bench, three);
    for polls in (0..5).cycle().take(60) {
        drop(polled(trial.limiter.check("k"), polls).await);
    }
    trial.ask(1).await?;
    settled(|| trial.left()).await?;
    let decision = trial.limiter.peek("k").await?;
    let left: Vec<u64> = decision.each().map(|each| each.remaining()).collect();
    ensure!(
        left.windows(2).all(|pair| pair[0] == pair[1]),
        "slices of three were charged in part: {left:?} are left"
    );
    Ok(())
}

async fn batches(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1000/3000d")?);
    for polls in (0..5).cycle().take(30) {
        drop(polled(trial.limiter.check_many(["k"; 5]), polls).await);
    }
    let answers = in_time("a batch", async { Ok(trial.limiter.check_many(["other"; 5]).await) }).await?;
    for (taken, answer) in (1..).zip(answers) {
        ensure_eq!(answer?.remaining(), 1_000 - taken, "left to another key");
    }
    let left = settled(|| trial.left()).await?;
    ensure!(left >= 850, "30 dropped batches of five took {} units", 1_000 - left);
    Ok(())
}

async fn refunds_and_resets(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1000/3000d")?);
    for polls in (0..5).cycle().take(30) {
        if let Some(decision) = ask(&bench, &trial, 10).await? {
            drop(polled(trial.limiter.refund(&decision), polls).await);
        }
    }
    let left = settled(|| trial.left()).await?;
    ensure!((700..=1_000).contains(&left), "{left} of 1000 are left after 30 charges of 10");
    for polls in 0..5 {
        drop(polled(trial.limiter.reset("k"), polls).await);
    }
    ask(&bench, &trial, 1).await?;
    if bench.promises().decisions != Decisions::Conservative {
        in_time("a reset", async { Ok(trial.limiter.reset("k").await?) }).await?;
        trial.expect_left(1_000).await?;
    }
    Ok(())
}
