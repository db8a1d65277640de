//! Stores that decide by their server's clock, in real time.

use std::time::Duration;

use ratelimit_core::store::{Answer, Decisions, Mode};
use ratelimit_core::{Clock, RateLimiter, SystemClock, Timestamp};

use super::contended::admitted;
use super::mirrored::{Part, Slice, after, earlier, give_back, put, put_many};
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
        Case::new(
            "server-time/refund-after-a-while",
            "A refund at the server's time returns what has not left by then, and nothing of a later window.",
            refund_later,
        ),
        Case::new("server-time/batches", "A batch is decided in order at the server's time.", batches),
    ]);
    cases.extend(Case::for_each(
        &Kind::ALL,
        "server-time/no-call-by-the-callers-clock",
        "Claims, slices, batches, forced charges and peeks of callers whose clocks are years ahead or behind all happen at the server's time.",
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
    ensure!(
        taken <= 50,
        "{taken} were admitted of 50, by 120 claims through three handles, `{limit}` on key \"k\""
    );
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
            let mut refusals = vec![
                put(&bench.store, now, Mode::Charge, &[part(key)]).await??,
                put(&bench.store, now, Mode::Peek, &[part(key)]).await??,
            ];
            let peek = Slice { mode: Mode::Peek, ..slice(key) };
            for refused in put_many(&bench.store, &[peek.clone(), peek]).await? {
                refusals.push(refused?);
            }
            for refused in refusals {
                at_servers_time(&answer, &refused)
                    .map_err(|failure| after(&format!("{key} by {now:?}"), failure))?;
            }
        }
    }
    Ok(())
}

/// Whether a charge was admitted, and refused again soon after it.
fn at_servers_time(admitted: &Answer, refused: &Answer) -> CaseResult {
    ensure!(admitted.admitted && !refused.admitted, "{admitted:?}, then {refused:?}");
    let passed = refused.now.since(admitted.now);
    ensure!(refused.now >= admitted.now && passed < HOUR, "{admitted:?}, then {refused:?}");
    // All three units are free again after two windows at the latest.
    let fits_at = refused.verdicts[0].fits_at;
    ensure!(fits_at <= Some(refused.now + DAYS * 2), "told to come at {fits_at:?}: {refused:?}");
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
    for kind in bench.kinds() {
        let limiter = bench.real(kind.limit(5, DAYS)?);
        let decision = limiter.check(ratelimit_core::Request::new("k").cost(5)).await?;
        ensure!(decision.allowed(), "5 of 5 were refused: {decision:?}");
        limiter.refund(&decision).await?;
        let again = limiter.check(ratelimit_core::Request::new("k").cost(5)).await?;
        ensure!(again.allowed(), "refused after all was given back, {kind:?}: {again:?}");
    }
    Ok(())
}

async fn refund_later(bench: Bench) -> CaseResult {
    drained_since(&bench).await?;
    of_former_window(&bench).await
}

/// Refunds the first of two charges when a part of it has drained.
async fn drained_since(bench: &Bench) -> CaseResult {
    let part = [Part::new(&limit("10/s burst 20")?, "k", 10)];
    let first = put(&bench.store, START, Mode::Charge, &part).await??.verdicts[0].receipt;
    let second = put(&bench.store, START, Mode::Charge, &part).await??.verdicts[0].receipt;
    pause(Duration::from_millis(550)).await;
    let before = put(&bench.store, START, Mode::Peek, &part).await??.now;
    give_back(&bench.store, START, &[(part[0].clone(), first)]).await??;
    let peeked = put(&bench.store, START, Mode::Peek, &part).await??;
    // The refund happened between the two peeks. What it returns are the units of the first charge that were left then.
    let empty_at =
        |refunded: Timestamp| earlier(second.instant(), first.instant().since(refunded)).max(peeked.now);
    let (from, to, found) = (empty_at(before), empty_at(peeked.now), peeked.verdicts[0].reset_at);
    ensure!(from <= found && found <= to, "empty at {found:?} instead of {from:?} to {to:?}: {peeked:?}");
    Ok(())
}

/// Refunds the units of a window when the next one is full.
async fn of_former_window(bench: &Bench) -> CaseResult {
    let part = Part::new(&limit("10/2s fixed")?, "k", 10);
    let old = put(&bench.store, START, Mode::Charge, &[part.of(8)]).await??;
    pause(old.verdicts[0].reset_at.since(old.now) + Duration::from_millis(50)).await;
    let new = put(&bench.store, START, Mode::Charge, std::slice::from_ref(&part)).await??;
    give_back(&bench.store, START, &[(part.of(8), old.verdicts[0].receipt)]).await??;
    let peeked = put(&bench.store, START, Mode::Peek, std::slice::from_ref(&part)).await??;
    // On a slow machine the new window may have ended.
    if new.admitted && peeked.now < new.verdicts[0].reset_at {
        ensure_eq!(peeked.verdicts[0].remaining, 0, "left after a refund of units of the window before");
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
