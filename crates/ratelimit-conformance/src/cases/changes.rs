//! Limits that change while they are in use keep what was counted.

use std::time::Duration;

use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::failure::{CaseResult, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "changes/raised",
        "A raised quota gives the difference at once, and keeps what was counted.",
        raised,
    );
    cases.extend(Case::for_each(
        &Kind::ALL,
        "changes/lowered",
        "A lowered quota leaves nothing, never less than nothing, and later the new quota.",
        lowered,
    ));
    cases.extend([
        Case::new("changes/back-and-forth", "Plans that alternate share one count.", back_and_forth),
        Case::new("changes/bucket-rate", "A bucket whose rate changes keeps its units.", rate),
        Case::new("changes/bucket-burst", "A bucket whose burst grows has the difference at once.", burst),
        Case::new(
            "changes/named-log-period",
            "A named log keeps its units when its period shrinks.",
            log_period,
        ),
        Case::new("changes/names-are-apart", "A limit of another name begins anew.", names),
    ]);
    cases
}

async fn raised(bench: Bench, kind: Kind) -> CaseResult {
    let small = Trial::new(&bench, kind.builder(10, MINUTE).name("plan").build()?);
    let large = small.under(kind.builder(100, MINUTE).name("plan").build()?);
    small.admit(10).await?;
    small.refuse(1).await?;
    large.expect_left(90).await?;
    large.admit(90).await?;
    large.refuse(1).await?;
    Ok(())
}

async fn lowered(bench: Bench, kind: Kind) -> CaseResult {
    let large = Trial::new(&bench, kind.builder(100, MINUTE).name("plan").build()?);
    let small = large.under(kind.builder(10, MINUTE).name("plan").build()?);
    large.admit(60).await?;
    let refused = small.refuse(1).await?;
    ensure_eq!((refused.limit(), refused.remaining()), (10, 0), "limit and remaining after it was lowered");
    small.wait_exactly(1).await?;
    large.at(MINUTE * 5);
    small.expect_left(10).await
}

async fn back_and_forth(bench: Bench) -> CaseResult {
    for kind in Kind::ALL {
        let free = Trial::new(&bench, kind.builder(100, MINUTE).name("plan").build()?);
        let paid = free.under(kind.builder(3_000, MINUTE).name("plan").build()?);
        for step in 1..=10 {
            ensure_eq!(
                free.admit(3).await?.remaining(),
                100 - 10 * step + 7,
                "left of the free plan, {kind:?}"
            );
            ensure_eq!(
                paid.admit(7).await?.remaining(),
                3_000 - 10 * step,
                "left of the paid plan, {kind:?}"
            );
        }
        free.refuse(1).await?;
        paid.admit(1).await?;
    }
    Ok(())
}

async fn rate(bench: Bench) -> CaseResult {
    for kind in [Kind::Bucket, Kind::Leaky, Kind::Queue] {
        let slow = Trial::new(&bench, kind.builder(1, MINUTE).burst(10).name("b").build()?);
        let fast = slow.under(kind.builder(60, MINUTE).burst(10).name("b").build()?);
        slow.admit(10).await?;
        fast.refuse(1).await?;
        // The ten units drain in ten seconds, not in ten minutes, and what is told is true before anything is charged.
        ensure_eq!(
            fast.wait_exactly(1).await?,
            Duration::from_secs(1),
            "how long to wait at the new rate, {kind:?}"
        );
        fast.advance(Duration::from_secs(10)).expect_left(10).await?;
        fast.admit(4).await?;
        slow.expect_left(6).await?;
        slow.advance(MINUTE).expect_left(10).await?;
    }
    Ok(())
}

async fn burst(bench: Bench) -> CaseResult {
    for kind in [Kind::Bucket, Kind::Leaky, Kind::Queue] {
        let small = Trial::new(&bench, kind.builder(60, MINUTE).burst(5).name("b").build()?);
        let large = small.under(kind.builder(60, MINUTE).burst(20).name("b").build()?);
        small.admit(5).await?;
        large.expect_left(15).await?;
        large.admit(15).await?;
        small.expect_left(0).await?;
        small.advance(Duration::from_secs(16)).expect_left(1).await?;
    }
    Ok(())
}

async fn log_period(bench: Bench) -> CaseResult {
    let long = Trial::new(&bench, limit("10/h log name l")?);
    let short = long.under(limit("10/min log name l")?);
    long.admit(4).await?;
    long.at(Duration::from_secs(30)).admit(3).await?;
    short.expect_left(3).await?;
    short.at(MINUTE + Duration::from_nanos(1)).expect_left(7).await?;
    long.expect_left(3).await
}

async fn names(bench: Bench) -> CaseResult {
    for kind in Kind::ALL {
        let first = Trial::new(&bench, kind.builder(5, MINUTE).name("first").build()?);
        let second = first.under(kind.builder(5, MINUTE).name("second").build()?);
        first.admit(5).await?;
        second.admit(5).await?;
        first.limiter.reset("k").await?;
        first.expect_left(5).await?;
        second.expect_left(0).await?;
    }
    Ok(())
}
