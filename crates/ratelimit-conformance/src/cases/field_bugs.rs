//! Bugs that users have found in other limiters.

use std::time::Duration;

use ratelimit_core::{Limits, Request};

use super::atomic::still;
use super::contended::{admitted, on_several_keys};
use crate::bench::{Bench, limit, storm};
use crate::case::Case;
use crate::clock::{MINUTE, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::in_time::in_time;
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "field-bugs/limit-of-one",
        "A limit of one admits one, and again after its time.",
        limit_of_one,
    );
    cases.extend([
        Case::new(
            "field-bugs/remaining-counts-the-previous-window",
            "100 a minute, 50 before, 10 now, a tenth in: 45 left, not 90.",
            remaining,
        ),
        Case::new(
            "field-bugs/retry-after-is-not-the-end-of-the-window",
            "60/min, 12 used at 12 s: one second, not 48.",
            retry_after,
        ),
        Case::new(
            "field-bugs/no-extra-unit",
            "Advancing the clock in small steps yields no extra unit.",
            no_extra,
        ),
        Case::new(
            "field-bugs/partial-refills-are-kept",
            "A rate of one a second, polled each 20 ms, admits one a second: no part of a refill is lost.",
            partial_refills,
        ),
        Case::new(
            "field-bugs/leaks-under-load",
            "A bucket drains under constant requests.",
            leaks_under_load,
        ),
        Case::new("field-bugs/cost-of-ten-thousand", "Costs beyond 8,000 work for every kind.", ten_thousand),
        Case::new(
            "field-bugs/no-minting-under-contention",
            "Refills at many instants from many tasks create no extra token.",
            minting,
        )
        .heavy(),
        Case::new(
            "field-bugs/remaining-only-falls",
            "While the clock stands still, `remaining` falls by the cost.",
            only_falls,
        ),
        Case::new(
            "field-bugs/never-more-in-any-window",
            "A strict window and a log never admit more than the quota in any span of the period.",
            any_window,
        ),
        Case::new(
            "field-bugs/first-hit-in-a-new-window",
            "The first hit of one handle in a new window does not keep the former counts of other handles.",
            new_window,
        ),
        Case::new(
            "field-bugs/distinct-keys-do-not-deadlock",
            "Slices over many keys in all orders end.",
            deadlock,
        )
        .heavy(),
        Case::new("field-bugs/hot-key", "Hundreds of claims on one key all get an answer.", hot_key).heavy(),
        Case::new(
            "field-bugs/negative-remaining",
            "An exceeded limit has zero units left, not fewer.",
            negative,
        ),
        Case::new(
            "field-bugs/per-second-is-per-second",
            "5/s is five a second, not one in five seconds.",
            per_second,
        ),
    ]);
    cases
}

async fn limit_of_one(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(1, MINUTE)?);
    trial.admit(1).await?;
    for _ in 0..3 {
        trial.wait_exactly(1).await?;
    }
    Ok(())
}

async fn remaining(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("100/min")?);
    trial.at(Duration::from_secs(30)).admit(50).await?;
    let decision = trial.at(Duration::from_secs(66)).admit(10).await?;
    ensure_eq!(decision.remaining(), 45, "remaining in the answer to the charge");
    trial.expect_left(45).await
}

async fn retry_after(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min burst 12")?);
    trial.at(Duration::from_secs(12)).admit(12).await?;
    ensure_eq!(trial.refuse(1).await?.retry_after(), Some(Duration::from_secs(1)), "retry-after of a bucket");
    let trial = Trial::new(&bench, limit("60/min")?);
    trial.at(Duration::from_secs(12)).admit(60).await?;
    let wait = trial.at(Duration::from_secs(60)).refuse(1).await?.retry_after();
    ensure_eq!(wait, Some(Duration::from_secs(1)), "retry-after of a sliding window");
    Ok(())
}

async fn no_extra(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(5, MINUTE)?);
        let taken = trial.drain(20).await?;
        let mut extra = 0;
        for _ in 0..50 {
            trial.advance(Duration::from_nanos(100_000_007));
            extra += u64::from(trial.ask(1).await?.allowed());
        }
        ensure_eq!((taken, extra), (5, 0), "admitted at once and in the five seconds after it, {kind:?}");
    }
    Ok(())
}

async fn partial_refills(bench: Bench) -> CaseResult {
    for text in ["60/min burst 1", "60/min leaky burst 1", "60/min queue burst 1"] {
        let trial = Trial::new(&bench, limit(text)?);
        let mut taken = 0;
        for step in 0..500 {
            taken += u64::from(trial.at(Duration::from_millis(20 * step)).ask(1).await?.allowed());
        }
        ensure_eq!(taken, 10, "admitted in ten seconds by {text}");
    }
    Ok(())
}

async fn leaks_under_load(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min leaky burst 10")?);
    trial.admit(10).await?;
    let mut taken = 0;
    for step in 1..=200 {
        trial.at(Duration::from_millis(100 * step));
        for cost in [10, 5, 1] {
            taken += if trial.ask(cost).await?.allowed() { cost } else { 0 };
        }
    }
    ensure_eq!(taken, 20, "units admitted in twenty seconds");
    Ok(())
}

async fn ten_thousand(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(25_000, MINUTE)?);
        trial.admit(10_000).await?;
        let second = trial.admit(10_000).await?;
        trial.refuse(10_000).await?;
        trial.limiter.refund(&second).await?;
        trial.expect_left(15_000).await?;
    }
    Ok(())
}

async fn minting(bench: Bench) -> CaseResult {
    let handles = bench.handles(4).await?;
    let promises = bench.promises();
    let limits: Limits = limit("60/min burst 10")?.into();
    let found = storm(&handles, 200, |handle, number| {
        // The clocks of the tasks are spread over ten seconds, in the likely order of arrival.
        let limiter = still(handle, &limits, START + Duration::from_millis(50 * number as u64));
        async move { admitted(promises, limiter.check("k").await) }
    })
    .await?;
    let taken = found.iter().filter(|admitted| **admitted).count();
    ensure!(taken <= 20, "{taken} were admitted in ten seconds by 1/s with a burst of 10");
    Ok(())
}

async fn only_falls(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(30, MINUTE)?);
        let mut left = 30;
        for cost in [1, 2, 3, 4, 5, 6, 7] {
            left -= cost;
            ensure_eq!(
                trial.admit(cost).await?.remaining(),
                left,
                "remaining after a cost of {cost}, {kind:?}"
            );
        }
    }
    Ok(())
}

async fn any_window(bench: Bench) -> CaseResult {
    for text in ["10/min precision 10s strict", "10/min log"] {
        let trial = Trial::new(&bench, limit(text)?);
        let mut random = bench.random();
        let mut units = Vec::new();
        for _ in 0..250 {
            trial.advance(Duration::from_millis(random.below(3_000)));
            if trial.ask(1).await?.allowed() {
                units.push(trial.now());
            }
        }
        for span in units.windows(11) {
            let length = span[10].since(span[0]);
            ensure!(length > MINUTE, "eleven units within {length:?} under {text}");
        }
        ensure!(units.len() > 20, "only {} of 250 were admitted under {text}", units.len());
    }
    Ok(())
}

async fn new_window(bench: Bench) -> CaseResult {
    let other = bench.open().await?;
    for text in ["10/min fixed", "10/min log"] {
        let trial = Trial::new(&bench, limit(text)?);
        trial.on(other.clone()).admit(9).await?;
        trial.at(MINUTE + Duration::from_nanos(1)).admit(1).await?;
        trial.on(other.clone()).expect_left(9).await?;
        trial.expect_left(9).await?;
    }
    Ok(())
}

async fn deadlock(bench: Bench) -> CaseResult {
    let handles = bench.handles(4).await?;
    let promises = on_several_keys(bench.promises());
    let limits: Limits = limit("100000/h")?.into();
    let answers = storm(&handles, 120, |handle, number| {
        let limiter = still(handle, &limits, START);
        async move {
            let keys: Vec<String> =
                (0..8).map(|place| format!("{}", (number * (place + 1) + place) % 9)).collect();
            let mut distinct = keys.clone();
            distinct.sort();
            distinct.dedup();
            if number % 2 == 0 {
                distinct.reverse();
            }
            let Some((first, rest)) = distinct.split_first() else { return Ok(true) };
            let request =
                rest.iter().fold(Request::new(first), |request, key| request.and(Request::new(key)));
            admitted(promises, in_time("a slice", async { Ok(limiter.check(request).await) }).await?)
        }
    });
    let found = answers.await?;
    if promises.decisions.are_exact_on_one_node() {
        ensure!(found.iter().all(|admitted| *admitted), "a slice was refused although all limits have room");
    }
    Ok(())
}

async fn hot_key(bench: Bench) -> CaseResult {
    let handles = bench.handles(4).await?;
    let promises = bench.promises();
    for kind in Kind::METERS {
        let limits: Limits = kind.limit(1_000, MINUTE)?.into();
        let claims = storm(&handles, 300, |handle, _| {
            let limiter = still(handle, &limits, START);
            async move { admitted(promises, in_time("a claim", async { Ok(limiter.check("k").await) }).await?) }
        });
        let found = claims.await?;
        let taken = found.iter().filter(|admitted| **admitted).count() as u64;
        ensure!(taken > 0, "none of 300 claims was admitted, {kind:?}");
        Trial::new(&bench, limits).expect_left(1_000 - taken).await?;
    }
    Ok(())
}

async fn negative(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
        trial.limiter.charge(trial.request(35)).await?;
        let refused = trial.refuse(1).await?;
        ensure_eq!(
            (refused.limit(), refused.remaining()),
            (10, 0),
            "limit and remaining at 35 of 10, {kind:?}"
        );
        ensure_eq!(trial.left().await?, 0, "left by a peek, {kind:?}");
    }
    Ok(())
}

async fn per_second(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/s burst 1")?);
    let mut taken = 0;
    for step in 0..100 {
        taken += u64::from(trial.at(Duration::from_millis(100 * step)).ask(1).await?.allowed());
    }
    ensure_eq!(taken, 50, "admitted in ten seconds at 5/s");
    Ok(())
}
