//! The instants at which decisions change, to the nanosecond.

use std::time::Duration;

use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{MINUTE, TICK};
use crate::failure::{CaseResult, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            "boundaries/fixed-window",
            "A fixed window ends exactly at a multiple of its length.",
            fixed_window,
        ),
        Case::new(
            "boundaries/previous-window-counts-whole-at-first",
            "At the first instant of a window the previous one counts in full, and a nanosecond later slightly less.",
            whole_at_first,
        ),
        Case::new(
            "boundaries/previous-window-leaves-at-last",
            "In the last nanosecond of a window the previous one still counts.",
            leaves_at_last,
        ),
        Case::new(
            "boundaries/log-unit-leaves-strictly-after",
            "A unit of a log counts up to its instant plus the window, and expires a nanosecond later.",
            log_leaves,
        ),
        Case::new(
            "boundaries/bucket-token",
            "A bucket gets a token back exactly after the interval.",
            bucket_token,
        ),
        Case::new(
            "boundaries/strict-segments",
            "A strict window counts its oldest segment in full until the segment has left.",
            strict_segments,
        ),
        Case::new(
            "boundaries/offset",
            "Windows with an offset start earlier than the multiples of their length by the offset.",
            offset,
        ),
        Case::new(
            "boundaries/windows-do-not-begin-with-the-first-hit",
            "The window of a first hit near the end of a minute ends with that minute.",
            first_hit,
        ),
    ];
    cases.extend(Case::for_each(
        &Kind::ALL,
        "boundaries/the-quota-and-not-one-more",
        "The whole quota is admitted at once, and no more; a cost just above the remaining units is refused.",
        not_one_more,
    ));
    cases
}

async fn fixed_window(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/min fixed")?);
    trial.admit(2).await?;
    trial.at(MINUTE - TICK).refuse(1).await?;
    trial.at(MINUTE).admit(2).await?;
    trial.at(MINUTE * 2 - TICK).refuse(1).await?;
    trial.at(MINUTE * 2).admit(1).await?;
    Ok(())
}

async fn whole_at_first(bench: Bench) -> CaseResult {
    // The weight of each unit falls by a 60-billionth per nanosecond, and there are 60 billion units: one is free after a
    // nanosecond.
    let trial = Trial::new(&bench, limit("60000000000/min")?);
    trial.admit(60_000_000_000).await?;
    trial.at(MINUTE - TICK).refuse(1).await?;
    trial.at(MINUTE).refuse(1).await?;
    trial.at(MINUTE + TICK).expect_left(1).await?;
    trial.at(MINUTE + TICK * 1_000).expect_left(1_000).await
}

async fn leaves_at_last(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/min")?);
    trial.admit(5).await?;
    trial.at(MINUTE * 2 - TICK).expect_left(4).await?;
    trial.at(MINUTE * 2).expect_left(5).await
}

async fn log_leaves(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/min log")?);
    trial.admit(1).await?;
    trial.at(TICK).admit(1).await?;
    trial.at(MINUTE).refuse(1).await?;
    trial.at(MINUTE + TICK).expect_left(1).await?;
    trial.at(MINUTE + TICK * 2).expect_left(2).await
}

async fn bucket_token(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/s burst 3")?);
    trial.admit(3).await?;
    for second in 1..5 {
        let back = Duration::from_secs(second);
        trial.at(back - TICK).refuse(1).await?;
        trial.at(back).admit(1).await?;
        trial.refuse(1).await?;
    }
    Ok(())
}

async fn strict_segments(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("4/min precision 15s strict")?);
    trial.at(Duration::from_secs(14)).admit(4).await?;
    trial.at(MINUTE + Duration::from_secs(15) - TICK).refuse(1).await?;
    trial.at(MINUTE + Duration::from_secs(15)).admit(4).await?;
    Ok(())
}

async fn offset(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/min fixed offset 20s")?);
    trial.admit(1).await?;
    trial.at(Duration::from_secs(40) - TICK).refuse(1).await?;
    trial.at(Duration::from_secs(40)).admit(1).await?;
    trial.at(Duration::from_secs(100) - TICK).refuse(1).await?;
    trial.at(Duration::from_secs(100)).admit(1).await?;
    Ok(())
}

async fn first_hit(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/min fixed")?);
    let decision = trial.at(Duration::from_secs(50)).admit(1).await?;
    ensure_eq!(
        decision.reset_after(),
        Duration::from_secs(10),
        "reset-after of a hit ten seconds before the end"
    );
    trial.at(Duration::from_secs(59)).refuse(1).await?;
    trial.at(MINUTE).admit(1).await?;
    Ok(())
}

async fn not_one_more(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(7, MINUTE)?);
    trial.refuse(8).await?;
    trial.admit(7).await?;
    trial.refuse(1).await?;
    let stepwise = trial.key("stepwise");
    stepwise.admit(3).await?;
    stepwise.expect_left(4).await?;
    stepwise.refuse(5).await?;
    ensure_eq!(stepwise.drain(10).await?, 4, "admitted one by one");
    let decision = stepwise.refuse(1).await?;
    ensure_eq!((decision.limit(), decision.remaining()), (7, 0), "limit and remaining when it is full");
    Ok(())
}
