//! Waiting for the retry-after is enough, and a nanosecond less is not.

use std::time::Duration;

use ratelimit_core::clock::Timer;
use ratelimit_core::store::Decisions;
use ratelimit_core::{Acquire, AcquireError, CheckError, Decision, Limits, Timestamp};

use super::atomic::still;
use super::contended::may_contend;
use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::clock::{MINUTE, START, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "waiting/exactly-as-told",
        "After charges at random instants with random costs, retry-after is exact to the nanosecond.",
        exactly,
    );
    cases.extend([
        Case::new(
            "waiting/several-limits",
            "The retry-after of several limits is the longest one, and exact.",
            several,
        ),
        Case::new("waiting/grows-with-the-cost", "A larger cost has a longer, exact retry-after.", grows),
        Case::new("waiting/never", "A cost above the limit has no retry-after.", never),
        Case::new("waiting/acquire-many", "Many waiters each get exactly one permit.", acquire_many),
        Case::new(
            "waiting/acquire-deadline",
            "A wait that would end after the deadline does not start.",
            deadline,
        ),
        Case::new(
            "waiting/acquire-never",
            "Waiting for a cost above the limit fails at once.",
            acquire_never,
        ),
        Case::new(
            "waiting/overtaken",
            "If another caller takes the unit that a waiter has waited for, the waiter waits for the next one.",
            overtaken,
        ),
    ]);
    cases
}

async fn exactly(bench: Bench, kind: Kind) -> CaseResult {
    let mut random = bench.random();
    for round in 0..12 {
        let quota = random.between(1, 40);
        let trial = Trial::new(&bench, kind.limit(quota, MINUTE)?).key(format!("{round}"));
        trial.advance(Duration::from_nanos(random.below(60_000_000_000)));
        while trial.ask(random.between(1, quota)).await?.allowed() {
            trial.advance(Duration::from_nanos(random.below(9_000_000_000)));
        }
        for _ in 0..3 {
            let left = trial.left().await?;
            if left < quota {
                trial.wait_exactly(random.between(left + 1, quota)).await?;
            }
        }
    }
    Ok(())
}

async fn several(bench: Bench) -> CaseResult {
    let trial =
        Trial::new(&bench, limits(&["5/min", "5/min burst 3", "7/h precision 10min", "6/10min log"])?);
    let mut waits = Vec::new();
    for _ in 0..20 {
        if trial.ask(1).await?.allowed() {
            continue;
        }
        waits.push(trial.wait_exactly(1).await?);
    }
    ensure!(waits.iter().any(|wait| *wait > MINUTE * 10), "the hour never made anybody wait: {waits:?}");
    Ok(())
}

async fn grows(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
        for _ in 0..5 {
            trial.admit(2).await?;
            trial.advance(Duration::from_millis(700));
        }
        let mut last = Duration::ZERO;
        for cost in 1..=10 {
            let reported = trial.limiter.would_allow(trial.request(cost)).await?;
            let Some(wait) = reported.retry_after() else {
                return Err(Failure::new(format!("told never for {cost} of 10, {kind:?}: {reported:?}")));
            };
            ensure!(wait >= last, "a cost of {cost} waits {wait:?}, one less {last:?}, {kind:?}");
            last = wait;
        }
        trial.wait_exactly(10).await?;
    }
    Ok(())
}

async fn never(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
        ensure_eq!(trial.refuse(11).await?.retry_after(), None, "retry-after of 11 of 10, {kind:?}");
        trial.expect_left(10).await?;
    }
    Ok(())
}

async fn acquire_many(bench: Bench) -> CaseResult {
    let (handles, promises) = (bench.handles(3).await?, bench.promises());
    let limits: Limits = limit("5/min log")?.into();
    let clock = bench.limiter(limits.clone()).clock().clone();
    let mut waiters = tokio::task::JoinSet::new();
    for (number, handle) in (0..20).zip(handles.iter().cycle()) {
        let limiter = still(handle.clone(), &limits, START).with_clock(clock.clone());
        let jitter = Duration::from_millis(if number % 2 == 0 { 0 } else { 500 });
        waiters.spawn(async move {
            loop {
                match limiter.acquire_with("k", Acquire::default().jitter(jitter)).await {
                    Err(AcquireError::Check(CheckError::Store(error))) if may_contend(promises, &error) => {}
                    ended => return ended.map(|permit| permit.now()),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut permits: Vec<Timestamp> = Vec::new();
    while !waiters.is_empty() {
        match tokio::time::timeout(Duration::from_millis(5), waiters.join_next()).await {
            Ok(Some(ended)) => permits.push(ended??),
            Ok(None) => break,
            // The clock advances when no call is in flight any more.
            Err(_) if clock.sleepers() >= waiters.len() => clock.advance(Duration::from_millis(250)),
            Err(_) => {}
        }
    }
    permits.sort();
    ensure_eq!(permits.len(), 20, "permits for 20 waiters");
    for span in permits.windows(6) {
        let length = span[5].since(span[0]);
        ensure!(length > MINUTE, "six permits within {length:?} under 5/min: {span:?}");
    }
    if bench.promises().decisions != Decisions::Conservative {
        let all = permits[19].since(permits[0]);
        ensure!(all < MINUTE * 4, "20 permits at 5/min took {all:?}");
    }
    Ok(())
}

async fn deadline(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/min log")?);
    trial.admit(2).await?;
    let options = Acquire::default().timeout(MINUTE);
    let ended = trial.limiter.acquire_with("k", options).await;
    let Err(AcquireError::Deadline(reported)) = ended else {
        return Err(Failure::new(format!("waited for a permit that comes after the deadline: {ended:?}")));
    };
    ensure_eq!(
        reported.retry_after(),
        Some(MINUTE + Duration::from_nanos(1)),
        "how long it would have taken"
    );
    ensure_eq!(trial.limiter.clock().sleepers(), 0, "sleepers after it");
    // Nothing was charged.
    trial.advance(MINUTE + Duration::from_nanos(1)).expect_left(2).await
}

async fn acquire_never(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/min")?);
    let ended = trial.limiter.acquire(trial.request(3)).await;
    ensure!(matches!(ended, Err(AcquireError::Never(_))), "waited for what can never be: {ended:?}");
    Ok(())
}

async fn overtaken(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/min log")?);
    trial.admit(1).await?;
    let limiter = trial.limiter.clone();
    let waiter = tokio::spawn(async move { limiter.acquire("k").await.map(Decision::into_owned) });
    let clock = trial.limiter.clock();
    for _ in 0..3 {
        while clock.sleepers() == 0 {
            ensure!(!waiter.is_finished(), "let through without a permit after its sleep");
            pause(Duration::from_millis(1)).await;
        }
        // Another caller takes the unit as soon as it returns.
        let thief = still(bench.store.clone(), trial.limiter.limits(), trial.now());
        thief.clock().advance(MINUTE + Duration::from_nanos(1));
        ensure!(thief.check("k").await?.allowed(), "the unit was not there after its time");
        clock.advance(MINUTE + Duration::from_nanos(1));
        pause(Duration::from_millis(5)).await;
    }
    while !waiter.is_finished() {
        if clock.sleepers() > 0 {
            clock.advance(MINUTE + Duration::from_nanos(1));
        }
        pause(Duration::from_millis(1)).await;
    }
    let permit = waiter.await??;
    ensure!(permit.allowed(), "without a permit: {permit:?}");
    ensure!(
        permit.now() > START + MINUTE * 4,
        "a permit at {:?} although overtaken three times",
        permit.now()
    );
    clock.sleep(Duration::ZERO).await;
    Ok(())
}
