//! A killed or frozen server causes an error in time, never a decision, and the store recovers by itself.

use std::time::Duration;

use ratelimit_core::store::Applied;
use ratelimit_core::store::Mode;
use ratelimit_core::{CheckError, Decision, ErrorKind, ManualClock, RateLimiter, StoreError};

use super::mirrored::{Part, Slice, put_many};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::{START, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::in_time::{self, in_time};
use crate::printed::shows;
use crate::subject::Handle;

type Limiter = RateLimiter<Handle, ManualClock>;

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(
            "failures/killed",
            "A killed server causes an error within 10 s, never a decision.",
            killed,
        ),
        Case::new(
            "failures/started-again",
            "After a restart of the server the same handle recovers by itself.",
            started_again,
        )
        .needs(Need::Reconnects),
        Case::new("failures/frozen", "A frozen server causes an error within 10 s.", frozen),
        Case::new(
            "failures/thawed",
            "When the server answers again, the same handle recovers by itself.",
            thawed,
        ),
        Case::new(
            "failures/nothing-over-admitted",
            "During and after a freeze nothing is admitted beyond the limit, and no claim gets the answer of another.",
            over_admitted,
        ),
        Case::new("failures/in-flight", "Claims in flight when the server dies all end.", in_flight),
        Case::new(
            "failures/every-method",
            "Batches, refunds, resets, forced charges and peeks, all at once, also end within the limit.",
            every_method,
        ),
        Case::new(
            "failures/errors-are-useful",
            "The error has a kind, says where the store is, can be retried, and contains no key.",
            errors,
        ),
    ];
    cases.into_iter().map(|case| case.any_time().needs(Need::Control)).collect()
}

fn limiter(bench: &Bench) -> CaseResult<Limiter> {
    Ok(bench.limiter(limits(&["1000/3000d log", "1000/3000d"])?))
}

/// The result of a check, which must end in time.
async fn check<'l>(limiter: &'l Limiter, key: &str) -> CaseResult<Result<Decision<'l>, StoreError>> {
    in_time("a claim", async {
        match limiter.check(key).await {
            Ok(decision) => Ok(Ok(decision)),
            Err(CheckError::Store(error)) => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// The check must end in time, with an error.
async fn fails(limiter: &Limiter, key: &str) -> CaseResult<StoreError> {
    match check(limiter, key).await? {
        Err(error) => Ok(error),
        Ok(decision) => Err(Failure::new(format!("a decision without a server: {decision:?}"))),
    }
}

/// Checks that the handle recovers by itself.
async fn recovers<'l>(limiter: &'l Limiter, key: &str) -> CaseResult<Decision<'l>> {
    Ok(in_time::recovers(|| check(limiter, key)).await?.0)
}

async fn killed(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    limiter.check("k").await?;
    control.kill().await?;
    for _ in 0..3 {
        fails(&limiter, "k").await?;
    }
    Ok(())
}

async fn started_again(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    for round in 0..2 {
        let key = format!("round {round}");
        recovers(&limiter, &key).await?;
        control.kill().await?;
        fails(&limiter, &key).await?;
        control.start().await?;
        let decision = recovers(&limiter, &key).await?;
        ensure!(decision.allowed(), "refused after a restart: {decision:?}");
        // The store counts, even if it had to set up the server again.
        let again = recovers(&limiter, &key).await?;
        ensure_eq!(again.remaining() + 1, decision.remaining(), "left after one more");
    }
    Ok(())
}

async fn frozen(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    limiter.check("k").await?;
    control.freeze().await?;
    let error = fails(&limiter, "k").await?;
    // A claim without a connection has sent nothing, and one of several round trips nothing that charges.
    ensure!(
        error.applied() == Applied::Unknown
            || error.kind() == ErrorKind::Unreachable
            || !bench.space.sends_together(),
        "a claim was sent to a server that does not answer, and the error says that it was surely not charged: {error}"
    );
    fails(&limiter, "other").await?;
    Ok(())
}

async fn thawed(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    let before = limiter.check("k").await?.remaining();
    control.freeze().await?;
    fails(&limiter, "k").await?;
    control.thaw().await?;
    recovers(&limiter, "other").await?;
    let after = recovers(&limiter, "k").await?.remaining();
    // The claim without an answer may have been charged, and so may the claims that `recovers` abandoned.
    ensure!(after < before, "{before} were left before, and {after} after a further charge");
    Ok(())
}

async fn over_admitted(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = bench.limiter(limit("20/3000d log")?);
    let (mut taken, mut unknown) = (0, 0);
    for round in 0..3 {
        for _ in 0..4 {
            let (decision, maybe) = in_time::recovers(|| check(&limiter, "k")).await?;
            taken += u64::from(decision.allowed());
            unknown += maybe;
        }
        control.freeze().await?;
        let calls = (0..5).map(|_| check(&limiter, "k"));
        for ended in futures::future::join_all(calls).await {
            match ended? {
                Ok(decision) => {
                    return Err(Failure::new(format!("a decision by a frozen server: {decision:?}")));
                }
                Err(error) => unknown += u64::from(error.applied() == Applied::Unknown),
            }
        }
        control.thaw().await?;
        // The answer to an earlier claim would report another count.
        let other = recovers(&limiter, &format!("other {round}")).await?;
        ensure!(other.remaining() >= 14, "a key that was never used has {} of 20 left", other.remaining());
    }
    pause(Duration::from_millis(500)).await;
    let left = limiter.peek("k").await?.remaining();
    let used = 20 - left;
    ensure!(
        used >= taken && used <= (taken + unknown).min(20),
        "{used} of 20 are used after {taken} admitted and {unknown} unknown claims"
    );
    let mut more = 0;
    while more <= 20 && limiter.check("k").await?.allowed() {
        more += 1;
    }
    ensure_eq!(more, left, "admitted after it");
    Ok(())
}

async fn in_flight(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    limiter.check("k").await?;
    // A frozen server answers nothing, so every claim that was sent is in flight when it dies.
    control.freeze().await?;
    let claims = (0..100).map(|number| {
        let limiter = limiter.clone();
        tokio::spawn(
            async move { check(&limiter, &format!("user:{number}")).await.map(|ended| ended.is_ok()) },
        )
    });
    let claims: Vec<_> = claims.collect();
    pause(Duration::from_millis(20)).await;
    control.kill().await?;
    for claim in claims {
        claim.await??;
    }
    control.start().await?;
    if bench.reconnects {
        recovers(&limiter, "k").await?;
    }
    Ok(())
}

async fn every_method(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    // One for each refund: a limiter does not repeat one that may have been applied.
    let (first, second) = (limiter.check("k").await?, limiter.check("k").await?);
    control.freeze().await?;
    // At once: each ends by its own limit, whatever it waits for.
    all_fail(&bench, &limiter, &first, "a frozen server").await?;
    control.thaw().await?;
    control.kill().await?;
    all_fail(&bench, &limiter, &second, "a server that is gone").await
}

/// Checks that every method ends in time, with an error, while the others are called as well.
async fn all_fail(bench: &Bench, limiter: &Limiter, decision: &Decision<'_>, server: &str) -> CaseResult {
    let limit = limit("1000/3000d")?;
    let slice = |key| Slice { now: START, mode: Mode::Charge, parts: vec![Part::new(&limit, key, 1)] };
    let slices = ["a", "b", "c"].map(slice);
    let (answers, refund, reset, forced, peek) = futures::try_join!(
        in_time("a batch", put_many(&bench.store, &slices)),
        in_time("a refund", async { Ok(limiter.refund(decision).await) }),
        in_time("a reset", async { Ok(limiter.reset("k").await) }),
        in_time("a forced charge", async { Ok(limiter.charge("k").await) }),
        in_time("a peek", async { Ok(limiter.peek("k").await) }),
    )?;
    ensure!(answers.iter().all(Result::is_err), "{server} decided a batch: {answers:?}");
    ensure!(refund.is_err(), "{server} took a refund");
    ensure!(reset.is_err(), "{server} did a reset");
    ensure!(forced.is_err(), "{server} made a forced charge");
    ensure!(peek.is_err(), "{server} answered a peek");
    Ok(())
}

async fn errors(bench: Bench) -> CaseResult {
    let control = bench.control()?;
    let limiter = limiter(&bench)?;
    limiter.check("k").await?;
    control.kill().await?;
    for _ in 0..2 {
        let error = fails(&limiter, "very-secret-person").await?;
        let printed = format!("{error} {error:?}");
        ensure!(!shows(&printed, b"very-secret"), "the error prints a key: {printed}");
        ensure!(error.is_retryable(), "an error that passes is not retryable: {error}");
        ensure!(
            matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout),
            "a server that is gone is {:?}: {error}",
            error.kind()
        );
        ensure!(error.address().is_some(), "the error does not say where the store is: {error}");
    }
    Ok(())
}
