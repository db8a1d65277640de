//! Leaky queues: evenly spaced, across handles and processes.

use std::time::Duration;

use ratelimit_core::{Acquire, AcquireError, Limits};

use super::atomic::still;
use super::contended::admitted;
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{MINUTE, START};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "queues/evenly-spaced",
            "Concurrent requests from several handles get evenly spaced turns.",
            evenly,
        )
        .needs(Need::ExactPerKey),
        Case::new(
            "queues/costs-take-their-time",
            "A request after a large cost waits until the cost has drained.",
            costs,
        ),
        Case::new("queues/idle-queue-lets-through", "After an idle time the first turn has no delay.", idle),
        Case::new("queues/no-turn-after-the-deadline", "A turn after the deadline is not taken.", deadline),
        Case::new("queues/meter-has-no-delay", "A leaky bucket in meter mode has no delay.", meter),
        Case::new(
            "queues/late-callers",
            "A caller whose clock is behind waits until the same instant.",
            late,
        )
        .needs(Need::OrderedTime),
    ]
}

async fn evenly(bench: Bench) -> CaseResult {
    let handles = bench.handles(4).await?;
    let limits: Limits = limit("60/min queue burst 30")?.into();
    let promises = bench.promises();
    let mut turns = storm(&handles, 50, |handle, _| {
        let limiter = still(handle, &limits, START);
        async move {
            let answer = limiter.check("k").await;
            let delay = answer.as_ref().ok().map(ratelimit_core::Decision::delay);
            Ok(if admitted(promises, answer)? { delay } else { None })
        }
    })
    .await?;
    turns.retain(Option::is_some);
    turns.sort();
    let expected: Vec<_> = (0..30).map(|turn| Some(Duration::from_secs(turn))).collect();
    ensure_eq!(turns, expected, "turns of fifty who came at once");
    Ok(())
}

async fn costs(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 30")?);
    for (cost, delay) in [(10, 0), (1, 10), (4, 11), (1, 15)] {
        ensure_eq!(trial.admit(cost).await?.delay(), Duration::from_secs(delay), "delay of a cost of {cost}");
    }
    trial.refuse(15).await?;
    trial.admit(14).await?;
    trial.refuse(1).await?;
    Ok(())
}

async fn idle(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 5")?);
    for round in 0..5 {
        trial.at(MINUTE * round);
        ensure_eq!(trial.admit(3).await?.delay(), Duration::ZERO, "delay after a rest");
        ensure_eq!(trial.admit(2).await?.delay(), Duration::from_secs(3), "delay of the next");
        trial.at(MINUTE * round + Duration::from_millis(2_500));
        ensure_eq!(trial.admit(1).await?.delay(), Duration::from_millis(2_500), "delay half-way");
    }
    Ok(())
}

async fn deadline(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10")?);
    trial.admit(8).await?;
    let options = Acquire::default().timeout(Duration::from_secs(7));
    let ended = trial.limiter.acquire_with("k", options).await;
    let Err(AcquireError::Deadline(reported)) = ended else {
        return Err(Failure::new(format!("took a turn after the deadline: {ended:?}")));
    };
    ensure!(!reported.allowed(), "a turn was taken: {reported:?}");
    trial.expect_left(2).await
}

async fn meter(bench: Bench) -> CaseResult {
    for text in ["60/min leaky burst 5", "60/min burst 5"] {
        let trial = Trial::new(&bench, limit(text)?);
        for _ in 0..5 {
            ensure_eq!(trial.admit(1).await?.delay(), Duration::ZERO, "delay under {text}");
        }
        trial.refuse(1).await?;
    }
    Ok(())
}

async fn late(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10")?);
    trial.at(MINUTE).admit(3).await?;
    let late = trial.at(MINUTE - Duration::from_millis(500)).admit(1).await?;
    ensure_eq!(late.delay(), Duration::from_millis(3_500), "delay by a clock that is half a second behind");
    ensure_eq!(trial.at(MINUTE).admit(1).await?.delay(), Duration::from_secs(4), "delay of the next");
    Ok(())
}
