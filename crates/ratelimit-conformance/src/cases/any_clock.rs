//! Limits whose units stay for long, on the clock of the caller or of the server.

use std::time::Duration;

use ratelimit_core::store::Mode;
use ratelimit_core::{Clock, Request, SystemClock};
use tokio::time::Instant;

use super::mirrored::{Mirrored, Part, Slice};
use super::pauses::{PAUSE, begins_at};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::pause;
use crate::failure::{CaseResult, ensure};
use crate::in_time::is_long_ago;
use crate::kind::Kind;

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

/// Charges to one meter each: the limits, and how many units. The meters count for more than thirteen seconds. They would be
/// empty within 1.1 s if only the first or the last charge, the fastest or the slowest rate, or the first step mattered.
const CHARGES: [&[(&str, u64)]; 6] = [
    &[("10 in total", 10)],
    &[("1000/30s from first request", 1)],
    &[("1/s burst 20 step 1s", 20)],
    &[("2/min burst 10 name rates", 1), ("10/s burst 10 name rates", 1)],
    &[("10/s burst 10 name slower", 10), ("2/min burst 20 name slower", 1)],
    &[("4/s burst 100 name most", 80), ("1/s burst 100 name most", 1)],
];

/// Charges to one meter, of which the last is refunded.
const REFUNDED: [(&str, u64); 2] =
    [("1/s burst 100 name refunded", 50), ("100/s burst 100 name refunded", 2)];

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(
            "decisions/on-any-clock",
            "Also on the server's clock: steps, totals, turns, bans and changed quotas get the answers of the model in every operation.",
            on_any_clock,
        ),
        Case::new(
            "lifetimes/slow-units-count-in-real-time",
            "In real time: totals, buckets in steps, buckets of two rates and windows with an offset count until all their units \
             have left, not only those of one rate, one step or one charge.",
            slow_units,
        ),
        Case::new(
            "lifetimes/slow-units-count-after-thirteen-seconds",
            "In real time: the same after the ten seconds that a store may add to the lifetime of a meter.",
            |bench| async move { count_after(&bench, PAUSE).await },
        ),
    ];
    // A store whose nodes count for themselves has no windows from the first request.
    cases.map(|case| case.any_time().needs(Need::OneCount).slow()).into()
}

async fn on_any_clock(bench: Bench) -> CaseResult {
    let mut mirrored = Mirrored::new(&bench);
    let plain = Part::new(&limit("100/3000d fixed")?, "k", 0);
    for texts in SLOW {
        let [part, raised, lowered] = texts.map(|text| limit(text).map(|limit| Part::new(&limit, "k", 0)));
        let (part, raised, lowered) = (part?, raised?, lowered?);
        let when = |what: &str| format!("{what}, {}", texts[0]);
        mirrored.claim(Mode::Charge, &[part.of(2)]).await?;
        mirrored.claim(Mode::Charge, &[part.of(9)]).await?; // refused
        mirrored.claim(Mode::Charge, &[plain.of(1), part.of(1)]).await?;
        mirrored.stands(&[part.clone(), plain.clone()], &when("a slice")).await?;
        let slice = |mode, cost| Slice { now: mirrored.now(), mode, parts: vec![part.of(cost)] };
        let batch = [(Mode::Charge, 1), (Mode::Force, 1), (Mode::Charge, 20), (Mode::Peek, 1)];
        mirrored.many(&batch.map(|(mode, cost)| slice(mode, cost))).await?;
        let last = mirrored.claim(Mode::Charge, &[part.of(3)]).await?;
        mirrored.refund(&[(part.of(2), last.verdicts[0].receipt)]).await?;
        mirrored.stands(std::slice::from_ref(&part), &when("a refund")).await?;
        mirrored.claim(Mode::Charge, &[raised.of(8)]).await?;
        mirrored.stands(&[lowered, raised, part.clone()], &when("a charge under a larger quota")).await?;
        mirrored.claim(Mode::Force, &[part.of(12)]).await?;
        mirrored.stands(std::slice::from_ref(&part), &when("a forced charge")).await?;
        mirrored.reset(std::slice::from_ref(&part)).await?;
        mirrored.claim(Mode::Charge, &[part.of(10)]).await?;
        mirrored.stands(&[part], &when("a reset")).await?;
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

/// The charges of each slow meter, and whether the last of them is refunded.
fn slow_meters() -> CaseResult<Vec<(Vec<Part>, bool)>> {
    let part = |(text, cost): &(&str, u64)| limit(text).map(|limit| Part::new(&limit, "k", *cost));
    let mut meters = vec![(vec![aligned()?], false)];
    for charges in CHARGES {
        meters.push((charges.iter().map(part).collect::<CaseResult<_>>()?, false));
    }
    meters.push((REFUNDED.iter().map(part).collect::<CaseResult<_>>()?, true));
    Ok(meters)
}

/// A window that begins now and lasts for long, of a period of which a multiple since 1970 ends within 700 ms.
fn aligned() -> CaseResult<Part> {
    let now = SystemClock::new().now();
    let millis = now.as_nanos() / 1_000_000;
    let period = (20_000..40_000).find(|period| millis % period >= period - 700).unwrap_or(20_000);
    let period = Duration::from_millis(period);
    let window = Kind::Fixed.builder(3, period).alignment(begins_at(now, period)).build()?;
    Ok(Part::new(&window, "k", 3))
}

/// Charges a slow meter now; `None` if this took so long that the store may have removed what was charged first.
async fn charged(
    bench: &Bench,
    mode: Mode,
    charges: &[Part],
    refunded: bool,
) -> CaseResult<Option<Mirrored>> {
    let mut mirrored = Mirrored::new(bench);
    let mut last = None;
    for part in charges {
        let asked = Instant::now();
        let answer = mirrored.set(SystemClock::new().now()).claim(mode, std::slice::from_ref(part)).await;
        if answer.is_err() && is_long_ago(asked) {
            return Ok(None);
        }
        last = Some((part.clone(), answer?.verdicts[0].receipt));
    }
    if refunded {
        mirrored.refund(&Vec::from_iter(last)).await?;
    }
    Ok(Some(mirrored))
}

async fn count_after(bench: &Bench, wait: Duration) -> CaseResult {
    let mut waiting = Vec::new();
    for (mode, space) in [(Mode::Charge, "charged"), (Mode::Force, "forced")] {
        for (charges, refunded) in slow_meters()? {
            let charges: Vec<Part> = charges.into_iter().map(|part| part.within(space)).collect();
            if let Some(mirrored) = charged(bench, mode, &charges, refunded).await? {
                waiting.push((mirrored, charges));
            }
        }
    }
    pause(wait).await;
    for (mut mirrored, charges) in waiting {
        mirrored.stands_now(&charges, &format!("{wait:?}")).await?;
    }
    Ok(())
}

async fn slow_units(bench: Bench) -> CaseResult {
    let clock = SystemClock::new();
    let short = Part::new(&limit("3/300ms log")?, "k", 3);
    let mut mirrored = Mirrored::new(&bench);
    let left = mirrored.set(clock.now()).claim(Mode::Charge, std::slice::from_ref(&short)).await?;
    // A store may keep a meter for a second longer than it counts.
    count_after(&bench, Duration::from_millis(2_200)).await?;
    // A refund of units that have left returns nothing.
    mirrored.set(clock.now()).claim(Mode::Charge, &[short.of(2)]).await?;
    mirrored.refund(&[(short.of(3), left.verdicts[0].receipt)]).await?;
    mirrored.stands_now(&[short], "a refund of units that have left").await
}
