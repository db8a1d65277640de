//! Decisions about costs that never fit, and later uses of a decision.

use std::time::Duration;

use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::store::Mode;
use ratelimit_core::{LimitStatus, Request};

use super::mirrored::{Part, put};
use crate::bench::{Bench, limits};
use crate::case::Case;
use crate::clock::MINUTE;
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

/// Costs that a limit of ten never admits.
const TOO_MUCH: [u64; 4] = [11, 1_000, MAX_UNITS + 1, u64::MAX];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "decisions/never-fits-tells-the-truth",
        "A cost above the limit is refused forever, with the remaining units, and charges nothing.",
        never_fits,
    );
    cases.extend(Case::for_each(
        &Kind::ALL,
        "decisions/never-fits-as-a-claim",
        "The store itself also refuses such a claim forever.",
        never_fits_as_a_claim,
    ));
    cases.extend(Case::for_each(
        &Kind::SPENT,
        "decisions/refund-under-another-limit",
        "A decision refunds its charge although the quota has changed since.",
        changed_limit,
    ));
    cases.extend([
        Case::new(
            "decisions/beside-one-that-never-fits",
            "The other limits of a request that never fits report their state.",
            mirrored,
        ),
        Case::new(
            "decisions/never-fits-in-a-batch",
            "In a batch, a cost above the limit sees the charges before it, and charges nothing.",
            in_a_batch,
        ),
        Case::new(
            "decisions/settled-each",
            "Each key and limit of a decision is settled at its own cost.",
            settled_each,
        ),
        Case::new(
            "decisions/of-two-clients",
            "The decision of one client refunds nothing to another.",
            of_two_clients,
        ),
    ]);
    cases
}

/// Takes eight of ten units, and peeks.
async fn eight_of_ten(bench: &Bench, kind: Kind) -> CaseResult<(Trial, Duration)> {
    let trial = Trial::new(bench, kind.limit(10, MINUTE)?);
    trial.admit(8).await?;
    trial.advance(Duration::from_millis(1));
    let peek = trial.limiter.peek(trial.request(0)).await?.into_owned();
    ensure_eq!(peek.remaining(), 2, "left by a peek");
    Ok((trial, peek.reset_after()))
}

async fn never_fits(bench: Bench, kind: Kind) -> CaseResult {
    let (trial, reset_after) = eight_of_ten(&bench, kind).await?;
    for cost in TOO_MUCH {
        let refused = trial.refuse(cost).await?;
        ensure_eq!(refused.retry_after(), None, "retry-after of a cost of {cost}");
        ensure_eq!(refused.remaining(), 2, "left when a cost of {cost} was refused");
        ensure_eq!(refused.reset_after(), reset_after, "reset-after of a cost of {cost}");
        ensure!(!refused.charged(), "a cost of {cost} was charged: {refused:?}");
        let looked = trial.limiter.would_allow(trial.request(cost)).await?;
        ensure_eq!(looked, refused, "a look at a cost of {cost}");
    }
    trial.expect_left(2).await?;
    // An unknown key is refused as well.
    let unknown = trial.key("unknown");
    let refused = unknown.refuse(11).await?;
    ensure_eq!((refused.remaining(), refused.retry_after()), (10, None), "told to a new key");
    unknown.expect_left(10).await
}

async fn never_fits_as_a_claim(bench: Bench, kind: Kind) -> CaseResult {
    let (trial, _) = eight_of_ten(&bench, kind).await?;
    let limit = &trial.limiter.limits()[0];
    for key in ["k", "unknown"] {
        let left = if key == "k" { 2 } else { 10 };
        for cost in TOO_MUCH {
            let parts = [Part::new(limit, key, cost)];
            for mode in [Mode::Charge, Mode::Peek] {
                let answer = put(&bench.store, trial.now(), mode, &parts).await??;
                let reported = answer
                    .verdicts
                    .iter()
                    .map(|reported| (reported.fits, reported.fits_at, reported.remaining));
                let reported = reported.collect::<Vec<_>>();
                let said = (answer.admitted, answer.charged, reported);
                ensure_eq!(said, (false, false, vec![(false, None, left)]), "{mode:?} of {cost} on {key}");
            }
        }
        trial.key(key).expect_left(left).await?;
    }
    Ok(())
}

async fn changed_limit(bench: Bench, kind: Kind) -> CaseResult {
    // The bucket holds this number of units for any quota; its rate does not change.
    let limit = |units: u64| match kind.has_burst() {
        true => kind.builder(10, MINUTE).burst(units).build(),
        false => kind.limit(units, MINUTE),
    };
    for (before, after) in [(20, 40), (20, 10)] {
        let trial = Trial::new(&bench, limit(before)?).key(format!("{before} to {after}"));
        let decision = trial.admit(6).await?;
        let changed = trial.under(limit(after)?);
        changed.expect_left(after - 6).await?;
        changed.limiter.settle(&decision, 4).await?;
        changed.expect_left(after - 4).await?;
        let decision = trial.admit(5).await?;
        changed.limiter.refund(&decision).await?;
        changed.expect_left(after - 4).await?;
        changed.limiter.settle(&changed.admit(1).await?, 3).await?;
        trial.expect_left(before - 7).await?;
    }
    Ok(())
}

async fn mirrored(bench: Bench) -> CaseResult {
    for text in ["30/h", "30/h fixed", "30/h burst 30", "30/h log"] {
        let both = limits(&["10/s name short", text])?;
        let trial = Trial::new(&bench, both).key(text);
        for second in 0..3 {
            trial.at(Duration::from_secs(second * 2)).admit(10).await?;
        }
        let refused = trial.at(Duration::from_secs(6)).refuse(11).await?;
        let reported = |limit: LimitStatus<'_>| {
            (limit.index(), limit.name().is_some(), limit.allowed(), limit.remaining())
        };
        let reported: Vec<_> = refused.each().map(reported).collect();
        ensure_eq!(reported, [(0, true, false, 10), (1, false, false, 0)], "told of both limits, {text}");
        ensure_eq!(refused.retry_after(), None, "retry-after, {text}");
        ensure_eq!(refused.decided_by().index(), 0, "the limit that never admits it, {text}");
    }
    Ok(())
}

async fn in_a_batch(bench: Bench) -> CaseResult {
    for text in ["10/min", "10/min burst 10", "10/min log"] {
        let trial = Trial::new(&bench, limits(&[text, "40/h fixed name long"])?).key(text);
        let costs = [2, 11, 5, u64::MAX, 3, 1];
        let answers = trial.limiter.check_many(costs.map(|cost| trial.request(cost))).await;
        let mut reported = Vec::new();
        for answer in answers {
            let decision = answer?;
            reported.push((decision.allowed(), decision.remaining(), decision.retry_after().is_none()));
        }
        let expected = [
            (true, 8, false),
            (false, 8, true),
            (true, 3, false),
            (false, 3, true),
            (true, 0, false),
            (false, 0, false),
        ];
        ensure_eq!(reported, expected, "allowed, left, refused for ever, {text}");
    }
    Ok(())
}

async fn settled_each(bench: Bench) -> CaseResult {
    let texts = ["100/min name window", "100/min burst 100 name bucket", "100/min log name log"];
    let trial = Trial::new(&bench, limits(&texts)?);
    let both = Request::new("user").cost(20).and(Request::new("address").cost(30));
    let decision = trial.limiter.check(&both).await?;
    let units = |limit: LimitStatus<'_>| match (limit.key_index(), limit.name()) {
        (0, Some("window")) => 5,
        (0, Some("log")) => 40,
        (1, Some("bucket")) => 0,
        (1, Some("window")) => 33,
        _ => limit.cost(),
    };
    trial.limiter.settle_each(&decision, units).await?;
    let left = trial.limiter.peek(&both).await?;
    let left: Vec<u64> = left.each().map(|limit| limit.remaining()).collect();
    ensure_eq!(left, [95, 80, 60, 67, 100, 70], "left to both keys under each limit");
    Ok(())
}

async fn of_two_clients(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(20, MINUTE)?);
        let (one, other) = (trial.key("one"), trial.key("other"));
        other.admit(10).await?;
        let charged = one.admit(1).await?;
        other.limiter.refund(&charged).await?;
        other.expect_left(10).await?;
        one.expect_left(20).await?;
        let five = one.admit(5).await?;
        other.limiter.settle(&five, 5).await?;
        one.expect_left(15).await?;
        other.expect_left(10).await?;
    }
    Ok(())
}
