//! Stores that decide by their server's clock, in real time.

use std::time::Duration;

use ratelimit_core::{Clock, Decisions, Mode, RateLimiter, SystemClock, Timestamp};

use super::beside::{Part, Slice, put, put_many};
use super::contended::admitted;
use crate::bench::{Bench, limit, storm};
use crate::case::Case;
use crate::clock::{DAYS, HOUR, START, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::kind::Kind;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "server-time/exact-burst",
        "A burst at the server's time is admitted exactly as often as the limit allows.",
        exact_burst,
    );
    cases.extend(Case::for_each(
        &Kind::METERS,
        "server-time/wait-as-told",
        "A caller is admitted after a real wait of the retry-after, and not earlier.",
        wait_as_told,
    ));
    cases.extend([
        Case::new(
            "server-time/ignores-the-callers-clock",
            "Callers whose clocks differ by years share one count.",
            ignores_callers,
        ),
        Case::new("server-time/never-runs-back", "The instants of the answers never decrease.", never_back),
        Case::new("server-time/refund", "A charge at the server's time can be refunded.", refund),
        Case::new("server-time/batches", "A batch is decided in order at the server's time.", batches),
    ]);
    cases.extend(Case::for_each(
        &Kind::ALL,
        "server-time/no-call-by-the-callers-clock",
        "Claims, slices, batches and forced charges of callers whose clocks are years ahead or behind all happen at the server's time.",
        no_call,
    ));
    cases.into_iter().map(Case::server_time).collect()
}

async fn exact_burst(bench: Bench, kind: Kind) -> CaseResult {
    // Long enough that no unit returns meanwhile.
    let limit = kind.limit(50, DAYS)?;
    let (handles, promises) = (bench.handles(3).await?, bench.promises());
    let found = storm(&handles, 120, |handle, _| {
        let limiter = RateLimiter::new(handle, limit.clone());
        async move { admitted(promises, limiter.check("k").await) }
    })
    .await?;
    let taken = found.iter().filter(|admitted| **admitted).count();
    ensure!(taken <= 50, "{taken} were admitted of 50");
    if promises.decisions != Decisions::Conservative {
        ensure_eq!(taken, 50, "admitted");
    }
    Ok(())
}

async fn wait_as_told(bench: Bench, kind: Kind) -> CaseResult {
    let limiter = bench.real(kind.limit(2, Duration::from_secs(2))?);
    limiter.charge(ratelimit_core::Request::new("k").cost(2)).await?;
    let refused = limiter.check("k").await?;
    if refused.allowed() {
        return Ok(()); // the machine slept until the claim fits again
    }
    let Some(wait) = refused.retry_after() else {
        return Err(Failure::new(format!("told never: {refused:?}")));
    };
    let fits_at = refused.now() + wait;
    loop {
        let decision = limiter.check("k").await?;
        let now = decision.now();
        ensure!(
            decision.allowed() == (now >= fits_at),
            "told to come at {fits_at:?}, but at {now:?}: {decision:?}"
        );
        if decision.allowed() {
            return Ok(());
        }
        pause(Duration::from_millis(20)).await;
    }
}

/// Claims a unit by this caller's clock.
async fn claim(bench: &Bench, now: Timestamp) -> CaseResult<(bool, Timestamp)> {
    let part = Part::new(&limit("3/3000d log")?, "k", 1);
    let answer = put(&bench.store, now, Mode::Charge, &[part]).await??;
    Ok((answer.admitted, answer.now))
}

async fn ignores_callers(bench: Bench) -> CaseResult {
    let clocks = [START, Timestamp::EPOCH, Timestamp::MAX, START];
    let mut found = Vec::new();
    let mut instants = Vec::new();
    for now in clocks {
        let (admitted, at) = claim(&bench, now).await?;
        found.push(admitted);
        instants.push(at);
    }
    ensure_eq!(found, [true, true, true, false], "admitted by a limit of 3");
    let spread = instants[3].since(instants[0]);
    ensure!(spread < HOUR && instants.is_sorted(), "the server's instants are {instants:?}");
    Ok(())
}

async fn no_call(bench: Bench, kind: Kind) -> CaseResult {
    let (first, second) = (kind.limit(3, DAYS)?, kind.builder(3, DAYS).name("second").build()?);
    let ahead = SystemClock::new().now() + DAYS * 4;
    for now in [ahead, Timestamp::EPOCH, START] {
        let part = |key: &str| Part::new(&first, format!("{key} {now:?}"), 3);
        let slice = |key: &str| Slice { now, mode: Mode::Charge, parts: vec![part(key)] };
        let other = Part { limit: second.clone(), ..part("of a slice") };
        let mut answers = vec![
            put(&bench.store, now, Mode::Charge, &[part("alone")]).await??,
            put(&bench.store, now, Mode::Force, &[part("forced")]).await??,
            put(&bench.store, now, Mode::Charge, &[part("of a slice"), other]).await??,
        ];
        for answer in put_many(&bench.store, &[slice("first"), slice("second"), slice("third")]).await? {
            answers.push(answer?);
        }
        let keys = ["alone", "forced", "of a slice", "first", "second", "third"];
        for (key, answer) in keys.into_iter().zip(answers) {
            let refused = put(&bench.store, now, Mode::Charge, &[part(key)]).await??;
            ensure!(answer.admitted && !refused.admitted, "{key} by {now:?}: {answer:?}, then {refused:?}");
            let passed = refused.now.since(answer.now);
            ensure!(
                refused.now >= answer.now && passed < HOUR,
                "{key} by {now:?}: {answer:?}, then {refused:?}"
            );
            // All three units are free again after two windows at the latest.
            let fits_at = refused.verdicts[0].fits_at;
            ensure!(
                fits_at <= Some(refused.now + DAYS * 2),
                "{key} by {now:?} is told to come at {fits_at:?}"
            );
        }
    }
    Ok(())
}

async fn never_back(bench: Bench) -> CaseResult {
    let mut newest = Timestamp::EPOCH;
    for _ in 0..200 {
        let (_, now) = claim(&bench, START).await?;
        ensure!(now >= newest, "{now:?} after {newest:?}");
        newest = now;
    }
    Ok(())
}

async fn refund(bench: Bench) -> CaseResult {
    for kind in Kind::ALL {
        let limiter = bench.real(kind.limit(5, DAYS)?);
        let decision = limiter.check(ratelimit_core::Request::new("k").cost(5)).await?;
        ensure!(decision.allowed(), "5 of 5 were refused: {decision:?}");
        limiter.refund(&decision).await?;
        let again = limiter.check(ratelimit_core::Request::new("k").cost(5)).await?;
        ensure!(again.allowed(), "refused after all was given back, {kind:?}: {again:?}");
    }
    Ok(())
}

async fn batches(bench: Bench) -> CaseResult {
    let limiter = bench.real(limit("5/3000d log")?);
    let mut found = Vec::new();
    for answer in limiter.check_many(["k"; 8]).await {
        found.push(answer?.allowed());
    }
    ensure_eq!(found, [true, true, true, true, true, false, false, false], "admitted by a limit of 5");
    Ok(())
}
