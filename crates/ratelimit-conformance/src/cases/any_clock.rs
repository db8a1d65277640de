//! Limits whose units stay for long, on the clock of the caller or of the server.

use std::time::Duration;

use ratelimit_core::{Clock, Mode, Request, SystemClock};

use super::beside::{Beside, Part, Slice};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::pause;
use crate::failure::{CaseResult, ensure};

/// Limits of which no unit returns while the case runs; the same with a larger quota, and with a smaller one.
const SLOW: [[&str; 3]; 5] = [
    ["10/3000d", "15/3000d", "4/3000d"],
    ["10/3000d log", "15/3000d log", "4/3000d log"],
    ["10/3000d from first request", "15/3000d from first request", "4/3000d from first request"],
    ["10 in total", "15 in total", "4 in total"],
    [
        "10/3000d queue burst 10 immediate 3",
        "10/3000d queue burst 15 immediate 3",
        "10/3000d queue burst 4 immediate 3",
    ],
];

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(
            "decisions/on-any-clock",
            "Also on the server's clock: steps, totals, turns, bans and changed quotas get the answers of the model in every operation.",
            on_any_clock,
        ),
        Case::new(
            "lifetimes/slow-units-count-in-real-time",
            "In real time: a total, a window from the first request and a bucket of two rates count longer than their last charge \
             takes to drain at the fastest rate.",
            slow_units,
        ),
    ];
    // A store whose nodes count for themselves has no windows from the first request.
    cases.map(|case| case.any_time().needs(Need::OneCount)).into()
}

async fn on_any_clock(bench: Bench) -> CaseResult {
    let mut beside = Beside::new(&bench);
    let plain = Part::new(&limit("100/3000d fixed")?, "k", 0);
    for texts in SLOW {
        let [part, raised, lowered] = texts.map(|text| limit(text).map(|limit| Part::new(&limit, "k", 0)));
        let (part, raised, lowered) = (part?, raised?, lowered?);
        let when = |what: &str| format!("{what}, {}", texts[0]);
        beside.claim(Mode::Charge, &[part.of(2)]).await?;
        beside.claim(Mode::Charge, &[part.of(9)]).await?; // refused
        beside.claim(Mode::Charge, &[plain.of(1), part.of(1)]).await?;
        beside.stands(&[part.clone(), plain.clone()], &when("a slice")).await?;
        let slice = |mode, cost| Slice { now: beside.now(), mode, parts: vec![part.of(cost)] };
        let batch = [(Mode::Charge, 1), (Mode::Force, 1), (Mode::Charge, 20), (Mode::Peek, 1)];
        beside.many(&batch.map(|(mode, cost)| slice(mode, cost))).await?;
        let last = beside.claim(Mode::Charge, &[part.of(3)]).await?;
        beside.refund(&[(part.of(2), last.verdicts[0].receipt)]).await?;
        beside.stands(std::slice::from_ref(&part), &when("a refund")).await?;
        beside.claim(Mode::Charge, &[raised.of(8)]).await?;
        beside.stands(&[lowered, raised, part.clone()], &when("a charge under a larger quota")).await?;
        beside.claim(Mode::Force, &[part.of(12)]).await?;
        beside.stands(std::slice::from_ref(&part), &when("a forced charge")).await?;
        beside.reset(std::slice::from_ref(&part)).await?;
        beside.claim(Mode::Charge, &[part.of(10)]).await?;
        beside.stands(&[part], &when("a reset")).await?;
    }
    banned(&bench).await
}

async fn banned(bench: &Bench) -> CaseResult {
    let limiter = bench.limiter(limits(&["2/3000d log", "ban 300d after 2 in 300d"])?);
    let all = Request::new("banned").cost(2);
    let charged = limiter.check(&all).await?;
    ensure!(charged.allowed(), "2 of 2 were refused: {charged:?}");
    for _ in 0..2 {
        let refused = limiter.check(&all).await?;
        ensure!(!refused.allowed(), "4 of 2 were admitted: {refused:?}");
    }
    limiter.refund(&charged).await?;
    let banned = limiter.check(&all).await?;
    ensure!(!banned.allowed(), "a key was admitted after two refusals that ban it: {banned:?}");
    let other = limiter.check("other").await?;
    ensure!(other.allowed(), "another key is banned: {other:?}");
    limiter.reset("banned").await?;
    let again = limiter.check(&all).await?;
    ensure!(again.allowed(), "a key is banned after a reset: {again:?}");
    Ok(())
}

async fn slow_units(bench: Bench) -> CaseResult {
    let clock = SystemClock::new();
    let part = |text, cost| limit(text).map(|limit| Part::new(&limit, "k", cost));
    let slow = [
        part("10 in total", 2)?,
        part("3/3s from first request", 1)?,
        part("10/min burst 10 name rates", 1)?,
        part("10/s burst 10 name rates", 1)?,
    ];
    let short = part("3/300ms log", 3)?;
    let mut beside = Beside::new(&bench);
    for part in &slow {
        beside.set(clock.now()).claim(Mode::Charge, std::slice::from_ref(part)).await?;
    }
    let left = beside.set(clock.now()).claim(Mode::Charge, std::slice::from_ref(&short)).await?;
    // The bucket would be empty after 200 ms at its faster rate, the window after a second if its units drained evenly. A
    // store may keep them a second longer.
    pause(Duration::from_millis(2_200)).await;
    beside.stands_now(&slow, "2.2 s").await?;
    // A refund of units that have left returns nothing.
    beside.set(clock.now()).claim(Mode::Charge, &[short.of(2)]).await?;
    beside.refund(&[(short.of(3), left.verdicts[0].receipt)]).await?;
    beside.stands_now(&[short], "a refund of units that have left").await
}
