//! A slice is admitted in full or not at all, and a refusal or a peek changes nothing.

use std::time::Duration;

use ratelimit_core::store::{MAX_CLAIMS, Mode};
use ratelimit_core::{Limit, Limits, Request};

use super::mirrored::{Part, put};
use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "all-or-nothing/refusal-charges-no-other-limit",
        "A slice that one limit refuses leaves the others unchanged, in any order.",
        charges_no_other,
    );
    cases.extend(Case::for_each(
        &Kind::ALL,
        "all-or-nothing/refusal-changes-nothing",
        "A refusal leaves the meter unchanged.",
        refusal,
    ));
    cases.extend(Case::for_each(
        &Kind::ALL,
        "all-or-nothing/peek-changes-nothing",
        "Peeks at any cost leave the meter unchanged.",
        peek,
    ));
    cases.extend([
        Case::new(
            "all-or-nothing/refusals-and-peeks-store-nothing",
            "Keys with only refusals and peeks take no space.",
            store_nothing,
        ),
        Case::new(
            "all-or-nothing/order-decides-nothing",
            "The order of the limits does not change the decision.",
            order,
        ),
        Case::new("all-or-nothing/two-keys", "Two keys are both admitted or both refused.", two_keys),
        Case::new(
            "all-or-nothing/last-of-64-refuses",
            "The last claim of the largest slice refuses, and no claim is charged.",
            largest_slice,
        ),
        Case::new(
            "all-or-nothing/cost-zero",
            "A cost of zero fits into an exhausted meter and charges nothing.",
            cost_zero,
        ),
        Case::new(
            "all-or-nothing/forced-slice",
            "A forced slice is charged in full although it does not fit.",
            forced_slice,
        ),
        Case::new(
            "all-or-nothing/verdicts-in-order",
            "There is one verdict for each claim, in order, about that limit alone.",
            verdicts,
        ),
    ]);
    cases
}

async fn charges_no_other(bench: Bench, kind: Kind) -> CaseResult {
    let other = kind.builder(10, HOUR).name("other").build()?;
    let full = limit("1/h name full")?;
    let alone = Trial::new(&bench, other.clone());
    let trial = alone.under(Limits::new([other.clone(), full.clone()])?);
    let turned = alone.under(Limits::new([full, other])?);
    trial.admit(1).await?;
    for _ in 0..5 {
        trial.refuse(1).await?;
        turned.refuse(1).await?;
    }
    alone.expect_left(9).await
}

/// All that the store reports about a meter.
async fn stand(trial: &Trial) -> CaseResult<String> {
    let mut reported = String::new();
    for cost in [0, 1, 5] {
        reported += &format!("{:?} ", trial.limiter.would_allow(trial.request(cost)).await?);
    }
    Ok(reported)
}

async fn refusal(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(5, HOUR)?);
    trial.at(Duration::from_secs(5)).admit(3).await?;
    let before = stand(trial.at(Duration::from_secs(10))).await?;
    for cost in [3, 4, 5, 3] {
        trial.at(Duration::from_secs(20)).refuse(cost).await?;
    }
    let after = stand(trial.at(Duration::from_secs(10))).await?;
    ensure_eq!(after, before, "how the meter stands after refusals");
    trial.expect_left(2).await
}

async fn peek(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(5, HOUR)?);
    for cost in [0, 1, 5] {
        let peeked = trial.limiter.would_allow(trial.request(cost)).await?;
        ensure!(peeked.allowed() && !peeked.charged(), "peeked at {cost} of 5 free units: {peeked:?}");
    }
    ensure_eq!(trial.left().await?, 5, "left after peeks only");
    trial.at(Duration::from_secs(5)).admit(3).await?;
    let before = stand(trial.at(Duration::from_secs(10))).await?;
    stand(trial.at(Duration::from_secs(20))).await?;
    ensure_eq!(stand(trial.at(Duration::from_secs(10))).await?, before, "how the meter stands after peeks");
    trial.admit(2).await?;
    trial.refuse(1).await?;
    Ok(())
}

async fn store_nothing(bench: Bench) -> CaseResult {
    let before = bench.meters().await?;
    ensure_eq!(before, 0, "meters in a fresh space");
    for kind in bench.kinds() {
        let all = Trial::new(&bench, kind.limit(5, HOUR)?);
        for number in 0..5 {
            let trial = all.key(format!("{kind:?} {number}"));
            stand(&trial).await?;
            trial.ask(0).await?;
            let unknown = [Part::new(&all.limiter.limits()[0], "unknown", 6)];
            let answer = put(&bench.store, START, Mode::Charge, &unknown).await??;
            ensure!(!answer.admitted, "6 of 5 were admitted: {answer:?}");
        }
    }
    ensure_eq!(bench.meters().await?, 0, "meters after refusals, peeks and costs of zero only");
    Ok(())
}

async fn order(bench: Bench) -> CaseResult {
    let texts = ["10/min", "15/h burst 15", "20/h log"];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let trial = Trial::new(&bench, limits(&order.map(|place| texts[place]))?).key(format!("{order:?}"));
        ensure_eq!(trial.drain(30).await?, 10, "admitted in the first minute, order {order:?}");
        ensure_eq!(
            trial.at(Duration::from_secs(120)).drain(30).await?,
            5,
            "admitted after it, order {order:?}"
        );
    }
    Ok(())
}

async fn two_keys(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(3, HOUR)?);
        let (user, address) = (trial.key("user"), trial.key("address"));
        let both = |cost| Request::new("user").and("address").cost(cost);
        user.admit(2).await?;
        let refused = trial.limiter.check(both(2)).await?;
        ensure!(!refused.allowed(), "two keys, one with a unit left, admitted 2, {kind:?}: {refused:?}");
        address.expect_left(3).await?;
        let allowed = trial.limiter.check(both(1)).await?;
        ensure!(allowed.allowed(), "two keys with a unit left each refused 1, {kind:?}: {allowed:?}");
        user.expect_left(0).await?;
        address.expect_left(2).await?;
        trial.limiter.reset(both(1)).await?;
        user.expect_left(3).await?;
    }
    Ok(())
}

async fn largest_slice(bench: Bench) -> CaseResult {
    let kinds = bench.kinds();
    let kinds = kinds.iter().cycle().take(MAX_CLAIMS).enumerate();
    let each = kinds.map(|(place, kind)| Ok(kind.builder(5, HOUR).name(format!("n{place}")).build()?));
    let each: Vec<Limit> = each.collect::<CaseResult<_>>()?;
    let last = each.last().cloned();
    let trial = Trial::new(&bench, Limits::new(each)?);
    trial.admit(1).await?;
    let Some(last) = last else { return Ok(()) };
    trial.under(last).admit(4).await?;
    let refused = trial.refuse(1).await?;
    ensure_eq!(refused.decided_by().index(), MAX_CLAIMS - 1, "the limit that refused");
    for (place, status) in refused.each().enumerate() {
        let expected = if place == MAX_CLAIMS - 1 { 0 } else { 4 };
        ensure_eq!(status.remaining(), expected, "left of limit {place}");
    }
    let peeked = trial.limiter.peek(trial.request(0)).await?;
    ensure!(
        peeked.each().take(MAX_CLAIMS - 1).all(|each| each.remaining() == 4),
        "charged in part: {peeked:?}"
    );
    Ok(())
}

async fn cost_zero(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(2, HOUR)?).key(kind.name());
        for _ in 0..10 {
            ensure_eq!(trial.admit(0).await?.remaining(), 2, "left after costs of zero, {kind:?}");
        }
        trial.admit(2).await?;
        ensure_eq!(trial.admit(0).await?.remaining(), 0, "left of a full meter, {kind:?}");
        trial.refuse(1).await?;
    }
    Ok(())
}

async fn forced_slice(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["2/min", "10/h log"])?);
    trial.admit(2).await?;
    let forced = trial.limiter.charge(trial.request(5)).await?;
    ensure!(forced.allowed() && forced.charged(), "a forced charge was not made: {forced:?}");
    let left: Vec<u64> = forced.each().map(|each| each.remaining()).collect();
    ensure_eq!(left, [0, 3], "left after 2 and a forced 5 of 2/min and 10/h");
    trial.under(limit("10/h log")?).expect_left(3).await?;
    // At two per minute, seven units have to drain until one fits.
    let trial = trial.under(limit("2/min")?);
    trial.at(Duration::from_secs(60 + 51)).refuse(1).await?;
    trial.at(Duration::from_secs(60 + 52)).admit(1).await?;
    Ok(())
}

async fn verdicts(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["5/min", "3/h log", "8/h burst 8", "2/h fixed"])?);
    let found: Vec<_> = trial.admit(1).await?.each().map(|each| (each.limit(), each.remaining())).collect();
    ensure_eq!(found, [(5, 4), (3, 2), (8, 7), (2, 1)], "limit and remaining of each");
    let refused = trial.refuse(2).await?;
    let found: Vec<_> = refused.each().map(|each| (each.allowed(), each.remaining())).collect();
    ensure_eq!(found, [(true, 4), (true, 2), (true, 7), (false, 1)], "allowed and remaining of each");
    Ok(())
}
