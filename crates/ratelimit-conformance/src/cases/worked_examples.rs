//! Rate limiters in production, with their published numbers.

use std::time::Duration;

use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::trial::Trial;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "worked-examples/ten-a-minute",
            "Free test keys: 10 requests a minute, sliding.",
            ten_a_minute,
        ),
        Case::new(
            "worked-examples/three-limits-at-once",
            "10/s, 120/min and 240/h together, at variable cost.",
            three_limits,
        ),
        Case::new(
            "worked-examples/an-hour-in-minute-steps",
            "240 an hour, the hour moving on in steps of a minute.",
            hour_in_minutes,
        ),
        Case::new(
            "worked-examples/previous-400-current-250",
            "400 before, 250 now, 45 s into a minute: 350 used, one more is 351 of 500.",
            previous_400,
        ),
        Case::new(
            "worked-examples/ten-thousand-per-15-minutes",
            "10,000 per 15 minutes, sliding: half of them are available again in the middle of the next 15 minutes.",
            ten_thousand,
        ),
        Case::new(
            "worked-examples/ten-a-second-and-3000-per-10-minutes",
            "Two windows at once: the shorter one admits what the longer one has left.",
            two_windows,
        ),
        Case::new(
            "worked-examples/plans-known-at-the-request",
            "Free 100/min and starter 3000/min by log; an upgrade keeps the used units.",
            plans,
        ),
        Case::new(
            "worked-examples/same-millisecond-is-two",
            "Two requests in one millisecond, or at one instant, are two.",
            same_millisecond,
        ),
        Case::new(
            "worked-examples/log-sequence",
            "2 per 1000 ms by log: 0 yes, 999 yes, 1000 no, 1001 yes, 1002 no, 1999 no, 2000 yes.",
            log_sequence,
        ),
        Case::new(
            "worked-examples/five-left",
            "100 per 2 s, 100 before, 15 now, a fifth into the window: five left.",
            five_left,
        ),
        Case::new(
            "worked-examples/only-successes-count",
            "A hundred refusals make the wait no longer than one.",
            only_successes,
        ),
        Case::new(
            "worked-examples/fixed-windows-burst-at-the-boundary",
            "A fixed window admits its quota on either side of a boundary.",
            boundary_burst,
        ),
        Case::new(
            "worked-examples/a-queue-drains-at-a-regular-pace",
            "A leaky queue releases one request per interval and refuses those that overflow.",
            regular_pace,
        ),
        Case::new(
            "worked-examples/not-everybody-at-once",
            "Staggered windows of different keys start at different instants.",
            staggered,
        ),
    ]
}

async fn ten_a_minute(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/min")?);
    ensure_eq!(trial.at(secs(59)).drain(20).await?, 10, "admitted in the first minute");
    ensure_eq!(trial.at(secs(60)).drain(20).await?, 0, "admitted at the first instant of the next");
    ensure_eq!(trial.at(secs(90)).drain(20).await?, 5, "admitted in the middle of it");
    ensure_eq!(trial.at(secs(240)).drain(20).await?, 10, "admitted after two minutes of rest");
    Ok(())
}

async fn three_limits(bench: Bench) -> CaseResult {
    let three = limits(&["10/s", "120/min", "240/h precision 1min"])?;
    let trial = Trial::new(&bench, three);
    let refused = {
        trial.admit(7).await?;
        trial.refuse(4).await?
    };
    ensure_eq!(refused.decided_by().index(), 0, "the limit that refused 7 + 4 in a second");
    trial.admit(3).await?;
    // Ten every two seconds: the minute is exhausted after twelve times.
    for step in 1..12 {
        trial.at(secs(2 * step)).admit(10).await?;
    }
    ensure_eq!(
        trial.at(secs(24)).refuse(1).await?.decided_by().index(),
        1,
        "the limit that refused the 121st"
    );
    for step in 0..12 {
        trial.at(secs(120 + 2 * step)).admit(10).await?;
    }
    ensure_eq!(
        trial.at(secs(300)).refuse(1).await?.decided_by().index(),
        2,
        "the limit that refused the 241st"
    );
    Ok(())
}

async fn hour_in_minutes(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("240/h precision 1min")?);
    trial.at(secs(30)).admit(100).await?;
    trial.at(secs(90)).admit(140).await?;
    trial.at(secs(3599)).refuse(1).await?;
    trial.at(secs(3600)).refuse(1).await?; // the first minute still counts in full
    trial.at(secs(3630)).expect_left(50).await?;
    trial.at(secs(3660)).expect_left(100).await?;
    trial.at(secs(3690)).expect_left(170).await?;
    trial.at(secs(3720)).expect_left(240).await
}

async fn previous_400(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("500/min")?);
    trial.at(secs(30)).admit(400).await?;
    trial.at(secs(105)).admit(250).await?;
    trial.expect_left(150).await?;
    let decision = trial.admit(1).await?;
    ensure_eq!(decision.remaining(), 149, "left after the 351st");
    trial.expect_left(149).await
}

async fn ten_thousand(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10000 per 15 minutes")?);
    trial.at(secs(800)).admit(9_999).await?;
    trial.admit(1).await?;
    trial.refuse(1).await?;
    trial.at(secs(900)).refuse(1).await?;
    trial.at(secs(1_350)).expect_left(5_000).await?;
    trial.at(secs(1_800)).expect_left(10_000).await
}

async fn two_windows(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["10/s", "3000 per 10 minutes"])?);
    for step in 0..300 {
        trial.at(secs(2 * step)).admit(10).await?;
    }
    let refused = trial.at(secs(599)).refuse(1).await?;
    ensure_eq!(refused.decided_by().index(), 1, "the limit that refused the 3001st");
    // A quarter into the next ten minutes, a quarter of the 3000 has expired, ten units per second.
    let trial = trial.at(secs(750));
    ensure_eq!(trial.drain(20).await?, 10, "admitted in one second");
    Ok(())
}

async fn plans(bench: Bench) -> CaseResult {
    let free = Trial::new(&bench, limit("100/min log")?);
    let starter = free.under(limit("3000/min log")?);
    free.admit(100).await?;
    free.refuse(1).await?;
    ensure_eq!(starter.admit(1).await?.remaining(), 2_899, "left after the upgrade");
    let back = free.refuse(1).await?;
    ensure_eq!(back.remaining(), 0, "left after going back to the free plan");
    ensure_eq!(free.key("other").admit(1).await?.remaining(), 99, "left to another subscriber");
    Ok(())
}

async fn same_millisecond(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3/min log")?);
    trial.at(millis(5)).admit(1).await?;
    trial.admit(1).await?;
    trial.at(millis(5) + Duration::from_nanos(1)).admit(1).await?;
    trial.refuse(1).await?;
    // They also expire one by one.
    trial.at(millis(60_005) + Duration::from_nanos(1)).expect_left(2).await?;
    trial.at(millis(60_005) + Duration::from_nanos(2)).expect_left(3).await
}

async fn log_sequence(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/1000ms log")?);
    let sequence = [
        (0, true),
        (999, true),
        (1_000, false),
        (1_001, true),
        (1_002, false),
        (1_999, false),
        (2_000, true),
    ];
    for (at, expected) in sequence {
        let decision = trial.at(millis(at)).ask(1).await?;
        ensure!(decision.allowed() == expected, "at {at} ms: expected {expected}, found {decision:?}");
    }
    Ok(())
}

async fn five_left(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("100/2s")?);
    trial.at(millis(500)).admit(100).await?;
    trial.at(millis(2_400)).admit(15).await?;
    trial.expect_left(5).await
}

async fn only_successes(bench: Bench) -> CaseResult {
    for text in ["10/min", "10/min fixed", "10/min log", "10/min burst 10", "10/min precision 10s"] {
        let trial = Trial::new(&bench, limit(text)?);
        trial.admit(10).await?;
        let once = trial.refuse(1).await?.retry_after();
        for _ in 0..100 {
            ensure_eq!(
                trial.refuse(1).await?.retry_after(),
                once,
                "retry-after of a repeated refusal, {text}"
            );
        }
        let Some(wait) = once else { continue };
        trial.advance(wait).admit(1).await?;
    }
    Ok(())
}

async fn boundary_burst(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/min fixed")?);
    ensure_eq!(trial.at(millis(59_999)).drain(20).await?, 10, "admitted before the boundary");
    ensure_eq!(trial.at(secs(60)).drain(20).await?, 10, "admitted after it");
    Ok(())
}

async fn regular_pace(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min queue burst 5")?);
    for turn in 0..5 {
        ensure_eq!(trial.admit(1).await?.delay(), secs(turn), "delay of request {turn}");
    }
    let overflow = trial.refuse(1).await?;
    ensure_eq!(overflow.retry_after(), Some(secs(1)), "retry-after of what overflows");
    ensure_eq!(trial.at(secs(1)).admit(1).await?.delay(), secs(4), "delay after one has drained");
    Ok(())
}

async fn staggered(bench: Bench) -> CaseResult {
    let all = Trial::new(&bench, limit("1/min fixed staggered")?);
    let mut ends = std::collections::BTreeSet::new();
    for number in 0..20 {
        let trial = all.key(format!("user:{number}"));
        ends.insert(trial.admit(1).await?.reset_after());
        trial.refuse(1).await?;
    }
    ensure!(ends.len() > 15, "20 keys' windows end at only {} instants", ends.len());
    Ok(())
}
