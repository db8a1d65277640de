//! Limits that change while they are in use keep what was counted.

use std::time::Duration;

use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::MINUTE;
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "changes/raised",
        "A raised quota adds the difference at once, and keeps the count.",
        raised,
    );
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "changes/lowered",
        "A lowered quota leaves zero units, never fewer, and later the new quota.",
        lowered,
    ));
    let buckets = [Kind::Bucket, Kind::Leaky, Kind::Queue];
    cases.extend(Case::for_each(
        &buckets,
        "changes/limits-that-take-turns",
        "Alternating between limits of several rates on one bucket exceeds none of them.",
        turns,
    ));
    // In a queue, turns after a charge keep what it took: see `turns/`.
    cases.extend(Case::for_each(
        &[Kind::Bucket, Kind::Leaky],
        "changes/receipts",
        "Units charged under one rate are refunded exactly under another.",
        receipts,
    ));
    cases.extend([
        Case::new("changes/back-and-forth", "Plans that alternate share one count.", back_and_forth),
        Case::new(
            "changes/bucket-rate",
            "A bucket whose rate changes keeps its units, and drained units stay drained.",
            rate,
        ),
        Case::new(
            "changes/bucket-of-many-rates",
            "A bucket that limits of forty rates share holds the charges of all of them.",
            many_rates,
        ),
        Case::new("changes/bucket-burst", "A larger burst of a bucket adds the difference at once.", burst),
        Case::new(
            "changes/settled-under-an-older-limit",
            "What is charged by a settlement or a renewal under a former, smaller limit deletes nothing else.",
            settled,
        ),
        Case::new("changes/names-are-apart", "A limit with another name starts a new count.", names),
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

async fn settled(bench: Bench) -> CaseResult {
    let small = Trial::new(&bench, limit("10/min log name plan")?);
    let large = small.under(limit("200/min log name plan")?);
    let decision = small.admit(5).await?;
    large.admit(60).await?;
    small.limiter.settle(&decision, 6).await?;
    large.expect_left(200 - 66).await?;

    let few = Trial::new(&bench, limit("2 at once")?).key("held");
    let many = few.under(limit("20 at once")?);
    let held = few.admit(1).await?;
    many.at(Duration::from_secs(1)).admit(19).await?;
    ensure!(few.at(Duration::from_secs(2)).limiter.renew(&held).await?, "the lease was not renewed");
    many.at(Duration::from_secs(2)).refuse(1).await?;
    few.limiter.release(&held).await?;
    many.expect_left(1).await
}

async fn back_and_forth(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
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
        // A charge drains at the rate under which it was made, whichever limit the next claim is made under.
        slow.admit(10).await?;
        fast.at(Duration::from_secs(59)).expect_left(0).await?;
        slow.expect_left(0).await?;
        ensure_eq!(
            fast.wait_exactly(1).await?,
            Duration::from_secs(1),
            "how long one of ten takes, {kind:?}"
        );
        ensure_eq!(
            fast.wait_exactly(1).await?,
            Duration::from_secs(1),
            "how long the new one takes, {kind:?}"
        );
        fast.at(MINUTE * 10).expect_left(10).await?;
        fast.admit(10).await?;
        slow.advance(Duration::from_secs(9)).expect_left(9).await?;
        fast.expect_left(9).await?;
        slow.admit(1).await?;
        // Eight seconds more for the rest of the ten and the charges before it, a minute for the one.
        ensure_eq!(slow.ask(0).await?.reset_after(), MINUTE, "as new, {kind:?}");
        fast.advance(Duration::from_secs(2)).expect_left(9).await?;
        slow.advance(Duration::from_secs(58)).expect_left(10).await?;
    }
    Ok(())
}

/// A limit that is used beside others admits as much as it would alone, and all of them together as much as the largest
/// burst and the fastest rate.
async fn turns(bench: Bench, kind: Kind) -> CaseResult {
    let under = |quota, burst| Ok::<_, Failure>(kind.builder(quota, MINUTE).burst(burst).name("b").build()?);
    let few = Trial::new(&bench, under(1, 50)?);
    let many = few.under(under(300, 1)?);
    let (mut of_few, mut of_many) = (0, 0);
    for tick in 0..100 {
        few.at(Duration::from_millis(200) * tick);
        of_few += few.drain(100).await?;
        of_many += many.drain(100).await?;
    }
    ensure_eq!(
        (of_few, of_many),
        (50, 0),
        "admitted in twenty seconds by 1/min burst 50 and 300/min burst 1"
    );
    let slow = few.key("other").under(under(10, 10)?);
    let fast = slow.under(under(3_000, 100)?);
    let mut of_slow = 0;
    for tick in 0..60 {
        of_slow += slow.at(Duration::from_secs(tick)).drain(100).await?;
        fast.advance(Duration::from_millis(500)).admit(1).await?;
    }
    ensure_eq!(of_slow, 19, "admitted in a minute by 10/min burst 10, ten at once and nine that came free");
    Ok(())
}

/// A refund returns the charged units under both limits, whichever of them charged the units.
async fn receipts(bench: Bench, kind: Kind) -> CaseResult {
    let second = Duration::from_secs(1);
    let under = |quota| Ok::<_, Failure>(kind.builder(quota, second).burst(10_000).name("b").build()?);
    let fast = Trial::new(&bench, under(1_000)?);
    let slow = fast.under(under(10)?);
    let charged = fast.admit(10_000).await?;
    slow.expect_left(0).await?;
    slow.limiter.settle(&charged, 100).await?;
    slow.expect_left(9_900).await?;
    let (early, late) = (slow.admit(900).await?, fast.admit(4_000).await?);
    slow.admit(50).await?;
    fast.limiter.refund(&early).await?;
    fast.expect_left(5_850).await?;
    // The hundred, the fifty and 850 of the four thousand have drained, and the slower ones concurrently.
    fast.advance(second).expect_left(6_850).await?;
    slow.limiter.refund(&late).await?;
    slow.expect_left(9_960).await?;
    // Units that have drained are not refunded, although as much was charged since.
    let trial = fast.key("other");
    let (few, many) = (trial.under(under(1)?), trial.under(under(10)?));
    few.admit(10).await?;
    let old = many.admit(5).await?;
    many.advance(second).expect_left(9_991).await?;
    let new = many.admit(3).await?;
    few.limiter.refund(&old).await?;
    few.expect_left(9_988).await?;
    few.limiter.refund(&new).await?;
    few.expect_left(9_991).await?;
    // A unit has drained beside units of another rate, whose time at this rate is not a whole number of nanoseconds.
    let every =
        |seconds| Ok::<_, Failure>(kind.builder(1, second * seconds).burst(10_000).name("b").build()?);
    let two = fast.key("rounded").under(every(2)?);
    two.under(every(3)?).admit(10).await?;
    let drained = two.admit(1).await?;
    two.advance(second * 6 + Duration::from_nanos(1)).admit(1).await?;
    two.limiter.refund(&drained).await?;
    ensure_eq!(
        two.wait_exactly(9_992).await?,
        second * 2,
        "how long until nine units are eight, after a refund of one that had drained"
    );
    // Of three units, part of one has drained, and those of another rate have drained beside them.
    let slow = fast.key("nothing left").under(kind.builder(1, MINUTE).burst(10).name("b").build()?);
    let quick = slow.under(kind.builder(60, MINUTE).burst(10).name("b").build()?);
    let three = slow.at(Duration::ZERO).admit(3).await?;
    quick.admit(1).await?;
    quick.at(MINUTE + second).limiter.refund(&three).await?;
    quick.expect_left(10).await?;
    slow.admit(10).await?;
    Ok(())
}

/// With any number of rates, the bucket holds what was charged. It distinguishes the fastest rate and the fifteen slowest.
/// The charges of others drain at the fastest rate.
async fn many_rates(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/h burst 1000 name b")?);
    for quota in 1..=40 {
        let cost = if quota == 20 { 30 } else { 1 };
        trial.under(limit(&format!("{quota}/h burst 1000 name b"))?).admit(cost).await?;
    }
    trial.expect_left(1_000 - 69).await?;
    trial.at(MINUTE * 30).expect_left(1_000 - 49).await?;
    // Alone, the twentieth limit would have ten more left.
    trial.at(MINUTE * 90).expect_left(1_000 - 9).await?;
    trial.at(MINUTE * 120).expect_left(1_000).await
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

async fn names(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
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
