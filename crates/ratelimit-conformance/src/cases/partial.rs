//! Taking as many units as fit.

use std::time::Duration;

use ratelimit_core::{CheckError, Limits, Request};

use super::atomic::still;
use super::contended::may_contend;
use crate::bench::{Bench, limit, limits, storm};
use crate::case::Case;
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "partial/at-most-what-is-left",
        "A request for more than is left takes what is left, and nothing if that is nothing.",
        what_is_left,
    );
    cases.push(Case::new(
        "partial/the-least-of-all-limits",
        "Under several limits it takes what all of them have left, from each the same.",
        least_of_all,
    ));
    cases.push(Case::new(
        "partial/figures-of-redis-rate",
        "The figures of redis_rate's own test of `AllowAtMost`, exactly.",
        redis_rate,
    ));
    cases.push(Case::new(
        "partial/concurrent",
        "Many tasks that take what they get never take more than the limit, and together all of it.",
        concurrent,
    ));
    cases
}

async fn what_is_left(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, HOUR)?);
    let decision = trial.limiter.take_up_to(trial.request(4)).await?;
    ensure_eq!((decision.granted(), decision.allowed(), decision.remaining()), (4, true, 6), "taken of four");
    let decision = trial.limiter.take_up_to(trial.request(1_000)).await?;
    ensure_eq!(
        (decision.granted(), decision.allowed(), decision.remaining()),
        (6, true, 0),
        "taken of a thousand"
    );
    let refused = trial.limiter.take_up_to(trial.request(3)).await?;
    ensure_eq!((refused.granted(), refused.allowed()), (0, false), "taken when nothing is left");
    ensure!(refused.retry_after().is_some_and(|wait| !wait.is_zero()), "no retry-after: {refused:?}");
    trial.limiter.refund(&decision).await?;
    trial.expect_left(6).await
}

async fn least_of_all(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["10/h fixed", "7/h log", "5/h burst 5"])?);
    trial.admit(1).await?;
    let decision = trial.limiter.take_up_to(trial.request(9)).await?;
    let left: Vec<u64> = decision.each().map(|limit| limit.remaining()).collect();
    ensure_eq!((decision.granted(), left), (4, vec![5, 2, 0]), "taken, and left under each limit");
    Ok(())
}

/// `TestAllowAtMost` in github.com/go-redis/redis_rate: ten a second, in real time; here the clock stands still.
async fn redis_rate(bench: Bench) -> CaseResult {
    const MILLI: Duration = Duration::from_millis(1);
    let trial = Trial::new(&bench, limit("10/s bucket")?);
    // Asked for, taken, remaining, retry-after and reset-after in milliseconds.
    let steps = [
        (1, 1, 9, 0, 100),
        (2, 2, 7, 0, 300),
        (0, 0, 7, 0, 300),
        (10, 7, 0, 0, 1_000),
        (0, 0, 0, 0, 1_000),
        (1_000, 0, 0, 100, 1_000),
    ];
    for (asked, taken, remaining, retry_after, reset_after) in steps {
        let decision = trial.limiter.take_up_to(trial.request(asked)).await?;
        let found =
            (decision.granted(), decision.remaining(), decision.retry_after(), decision.reset_after());
        let expected = (taken, remaining, Some(MILLI * retry_after), MILLI * reset_after);
        ensure_eq!(found, expected, "taken, remaining, retry-after and reset-after of {asked}");
    }
    Ok(())
}

async fn concurrent(bench: Bench) -> CaseResult {
    let limits: Limits = limit("500/h burst 500")?.into();
    let handles = bench.handles(4).await?;
    let promises = bench.promises();
    let taken = storm(&handles, 40, |handle, number| {
        let limiter = still(handle, &limits, START);
        async move {
            let most = 1 + number as u64;
            let answer = limiter.take_up_to(Request::new("k").cost(most)).await;
            let units = match answer {
                Ok(decision) => decision.granted(),
                Err(CheckError::Store(error)) if may_contend(promises, &error) => 0,
                Err(error) => return Err(error.into()),
            };
            ensure!(units <= most, "{units} units were taken of {most}");
            Ok(units)
        }
    })
    .await?;
    let trial = Trial::new(&bench, limits);
    let rest = trial.limiter.take_up_to(trial.request(1_000)).await?.granted();
    ensure_eq!(taken.iter().sum::<u64>() + rest, 500, "taken by all");
    trial.refuse(1).await?;
    Ok(())
}
