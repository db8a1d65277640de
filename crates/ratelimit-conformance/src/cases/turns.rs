//! Turns in queues: units that need not wait, turns that are cancelled, the longest wait.

use std::time::Duration;

use ratelimit_core::{Decision, Limits};

use super::atomic::still;
use super::contended::admitted;
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{SECOND, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "turns/immediate-units",
            "The immediate units of a queue have no delay, the others wait.",
            immediate,
        ),
        Case::new(
            "turns/immediate-units-at-another-rate",
            "The immediate units of a queue have no delay while it has units that were charged at another rate.",
            immediate_at_another_rate,
        ),
        Case::new(
            "turns/costs",
            "A cost above the immediate units waits until the queue is empty, and a cost of zero does not wait.",
            costs,
        ),
        Case::new(
            "turns/a-cancelled-turn-stays-empty",
            "If a turn is cancelled while others wait behind it, nobody gets it: the next request has to wait behind them.",
            cancelled,
        ),
        Case::new(
            "turns/the-last-turn-is-free-again",
            "The last turn, once cancelled, is assigned again.",
            last,
        ),
        Case::new(
            "turns/refunds-while-nobody-waits",
            "Immediate units are returned in full until somebody waits.",
            nobody_waits,
        ),
        Case::new(
            "turns/cancelled-without-a-wait",
            "If a reservation without a delay is cancelled while others wait, nobody gets its units: the next request has to wait.",
            without_a_wait,
        ),
        Case::new(
            "turns/refunds-at-several-rates",
            "While a queue has units that were charged at different rates, a refund returns nothing.",
            several_rates,
        ),
        Case::new(
            "turns/longest-wait",
            "A turn later than the longest wait is refused and charges nothing.",
            longest_wait,
        ),
        Case::new(
            "turns/cancelled-by-many",
            "Many tasks take a turn at once, and half of them cancel it. No two of the others have the same turn.",
            many,
        )
        .needs(Need::ExactPerKey),
    ]
}

/// Takes turns of one unit and returns their delays in milliseconds.
async fn delays(trial: &Trial, count: usize) -> CaseResult<Vec<u128>> {
    let mut delays = Vec::new();
    for _ in 0..count {
        delays.push(trial.admit(1).await?.delay().as_millis());
    }
    Ok(delays)
}

async fn immediate(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 6 immediate 3")?);
    ensure_eq!(delays(&trial, 6).await?, [0, 0, 0, 1_000, 2_000, 3_000], "delays of six");
    ensure_eq!(trial.refuse(1).await?.retry_after(), Some(SECOND), "wait of the seventh");
    trial.at(SECOND * 2 + SECOND / 2);
    ensure_eq!(delays(&trial, 2).await?, [1_500, 2_500], "delays after two and a half seconds");
    trial.at(SECOND * 9);
    ensure_eq!(delays(&trial, 4).await?, [0, 0, 0, 1_000], "delays after a rest");
    let batched = trial.key("batch");
    let mut delays = Vec::new();
    for decision in batched.limiter.check_many((0..7).map(|_| batched.request(1))).await {
        let decision = decision?;
        delays.push(decision.allowed().then(|| decision.delay().as_secs()));
    }
    let expected = [Some(0), Some(0), Some(0), Some(1), Some(2), Some(3), None];
    ensure_eq!(delays, expected, "delays in a batch of seven");
    Ok(())
}

async fn immediate_at_another_rate(bench: Bench) -> CaseResult {
    for (before, after) in [(30, 60), (60, 30)] {
        let under = |rate: u64| limit(&format!("{rate}/min queue burst 10 immediate 3 name {before}"));
        let trial = Trial::new(&bench, under(before)?);
        ensure_eq!(delays(&trial, 1).await?, [0], "delay of the first, at {before}/min");
        let delays = delays(&trial.under(under(after)?), 2).await?;
        ensure_eq!(delays, [0, 0], "delays of the second and the third, at {after}/min after {before}/min");
    }
    Ok(())
}

async fn costs(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 20 immediate 5")?);
    for (cost, delay) in [(3, 0), (2, 0), (4, 4), (0, 0), (8, 9), (1, 13)] {
        ensure_eq!(trial.admit(cost).await?.delay(), SECOND * delay, "delay of a cost of {cost}");
    }
    trial.refuse(3).await?;
    trial.admit(2).await?;
    Ok(())
}

async fn cancelled(bench: Bench) -> CaseResult {
    for (text, taken) in [("60/min queue burst 10", 1), ("60/min queue burst 10 immediate 3", 3)] {
        let trial = Trial::new(&bench, limit(text)?).key(text);
        delays(&trial, taken).await?;
        let first = trial.admit(1).await?;
        let second = trial.admit(2).await?;
        trial.limiter.refund(&first).await?;
        trial.expect_left(10 - taken as u64 - 3).await?;
        let third = trial.admit(1).await?;
        let follows = second.delay() + SECOND * if taken == 1 { 2 } else { 1 };
        ensure_eq!(third.delay(), follows, "delay of who comes after a cancelled turn under {text}");
    }
    Ok(())
}

async fn last(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10 immediate 2")?);
    delays(&trial, 2).await?;
    let first = trial.admit(2).await?;
    let second = trial.admit(1).await?;
    trial.limiter.refund(&second).await?;
    trial.expect_left(6).await?;
    trial.limiter.refund(&first).await?;
    trial.expect_left(8).await?;
    ensure_eq!(delays(&trial, 3).await?, [1_000, 2_000, 3_000], "delays after both were cancelled");
    Ok(())
}

async fn nobody_waits(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10 immediate 5")?);
    let first = trial.admit(3).await?;
    let second = trial.admit(2).await?;
    trial.limiter.settle(&first, 1).await?;
    trial.expect_left(7).await?;
    trial.admit(2).await?;
    trial.admit(1).await?;
    trial.limiter.settle(&second, 1).await?;
    trial.expect_left(4).await
}

async fn without_a_wait(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10 immediate 2")?);
    let first = trial.limiter.reserve(trial.request(2), Duration::ZERO).await?;
    ensure_eq!((first.allowed(), first.delay()), (true, Duration::ZERO), "the first turn");
    ensure_eq!(delays(&trial, 2).await?, [1_000, 2_000], "delays of the others");
    trial.limiter.refund(&first).await?;
    ensure_eq!(delays(&trial, 1).await?, [3_000], "delay of who comes after them");
    Ok(())
}

async fn several_rates(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10 immediate 2 name q")?);
    let first = trial.admit(2).await?;
    let faster = trial.under(limit("120/min queue burst 10 immediate 2 name q")?);
    let second = faster.admit(2).await?;
    trial.limiter.refund(&first).await?;
    trial.limiter.refund(&second).await?;
    faster.expect_left(6).await
}

async fn longest_wait(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 10 immediate 2")?);
    let reserve = async |cost, wait| -> CaseResult<Decision<'static>> {
        Ok(trial.limiter.reserve(trial.request(cost), wait).await?.into_owned())
    };
    for (wait, delay) in [(0, 0), (0, 0), (1, 1), (5, 2), (3, 3)] {
        let decision = reserve(1, SECOND * wait).await?;
        ensure_eq!((decision.allowed(), decision.delay()), (true, SECOND * delay), "turn within {wait} s");
    }
    let late = reserve(1, SECOND * 3).await?;
    ensure_eq!((late.allowed(), late.retry_after()), (false, Some(SECOND)), "a turn within 3 s");
    let late = reserve(2, SECOND * 4).await?;
    ensure_eq!((late.allowed(), late.retry_after()), (false, Some(SECOND)), "a turn of two units within 4 s");
    trial.expect_left(5).await?;
    let never = reserve(11, SECOND * 60).await?;
    ensure_eq!((never.allowed(), never.retry_after()), (false, None), "more than the queue");
    Ok(())
}

async fn many(bench: Bench) -> CaseResult {
    let handles = bench.handles(4).await?;
    let limits: Limits = limit("60/min queue burst 60")?.into();
    let promises = bench.promises();
    let mut turns = storm(&handles, 80, |handle, nth| {
        let limiter = still(handle, &limits, START);
        async move {
            let answer = limiter.check("k").await;
            let decision = answer.as_ref().ok().map(|decision| decision.clone().into_owned());
            let Some(decision) = decision.filter(|_| nth.is_multiple_of(2)) else {
                let delay = answer.as_ref().ok().map(Decision::delay);
                return Ok(if admitted(promises, answer)? { delay } else { None });
            };
            admitted(promises, answer)?;
            limiter.refund(&decision).await?;
            Ok(None)
        }
    })
    .await?;
    turns.retain(Option::is_some);
    turns.sort();
    let those_who_stay = turns.len();
    turns.dedup();
    ensure_eq!(turns.len(), those_who_stay, "different turns of those who stay");
    // Even if all of the 40 who cancel come first.
    ensure!(those_who_stay >= 20, "{those_who_stay} of 40 stay in a queue of 60");
    let last = turns.last().copied().flatten().unwrap_or_default().as_secs();
    let left = Trial::new(&bench, limits).left().await?;
    ensure!(left < 60 - last, "{left} of 60 are left after a wait of {last} s");
    Ok(())
}
