//! Refunds.

use std::time::Duration;

use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{CounterStore, Limit, Request};

use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::clock::{MINUTE, START};
use crate::failure::{CaseResult, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "refunds/give-back",
        "Refunded units can be taken again, once.",
        give_back,
    );
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "refunds/nothing-that-has-left",
        "Units that have left the meter are not refunded.",
        has_left,
    ));
    cases.extend(Case::for_each(
        &[Kind::Fixed, Kind::Sliding, Kind::Segmented, Kind::Strict, Kind::Log],
        "refunds/later-than-all-units",
        "A receipt from before a reset, later than all units since, returns none of them.",
        later_than_all,
    ));
    cases.extend(Case::for_each(
        &Kind::SPENT,
        "refunds/settle",
        "Settling an estimate refunds an excess and charges a deficit, even far beyond the limit.",
        settle,
    ));
    cases.extend([
        Case::new("refunds/refused-gives-nothing", "A refused request refunds nothing.", refused),
        Case::new(
            "refunds/in-the-previous-window",
            "A refund in the next window removes the weight of the units.",
            previous,
        ),
        Case::new(
            "refunds/bucket-gives-what-is-left",
            "A bucket refunds the units that have not drained yet.",
            bucket,
        ),
        Case::new("refunds/log-gives-its-own", "A log refunds only units of the given instant.", log),
        Case::new(
            "refunds/never-above-the-limit",
            "Even if the same units are refunded three times, never more than the limit is admitted.",
            twice,
        ),
        Case::new(
            "refunds/several-limits-and-keys",
            "A refund returns to every limit and key of a request its own units.",
            several,
        ),
        Case::new("refunds/unknown-meters", "A refund to an unknown meter does nothing.", unknown),
        Case::new("refunds/other-meters-stay", "A refund changes no other meter.", others),
    ]);
    cases
}

async fn give_back(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
    trial.admit(4).await?;
    let decision = trial.advance(Duration::from_millis(1)).admit(6).await?;
    trial.refuse(1).await?;
    trial.limiter.refund(&decision).await?;
    trial.expect_left(6).await?;
    trial.admit(6).await?;
    trial.refuse(1).await?;
    Ok(())
}

async fn has_left(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
    let old = trial.admit(10).await?;
    trial.advance(old.reset_after() + Duration::from_secs(1)).admit(10).await?;
    trial.refuse(1).await?;
    trial.limiter.refund(&old).await?;
    trial.refuse(1).await?;
    ensure_eq!(trial.left().await?, 0, "left after a refund of units that had left");
    Ok(())
}

async fn later_than_all(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
    let old = trial.at(Duration::from_secs(61)).admit(5).await?;
    trial.limiter.reset(trial.request(0)).await?;
    trial.at(Duration::from_millis(59_500)).admit(8).await?;
    trial.limiter.refund(&old).await?;
    trial.expect_left(2).await
}

async fn settle(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(100, MINUTE)?);
    let decision = trial.admit(50).await?;
    trial.limiter.settle(&decision, 20).await?;
    trial.expect_left(80).await?;
    let decision = trial.admit(50).await?;
    trial.limiter.settle(&decision, 75).await?;
    trial.expect_left(5).await?;
    let decision = trial.admit(5).await?;
    trial.limiter.settle(&decision, 25).await?;
    trial.refuse(1).await?;
    let far = trial.key("far");
    let decision = far.admit(1).await?;
    far.limiter.settle(&decision, 500_000).await?;
    far.refuse(1).await?;
    Ok(())
}

async fn refused(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3/min")?);
    trial.admit(2).await?;
    let refused = trial.refuse(2).await?;
    trial.limiter.refund(&refused).await?;
    let peeked = trial.limiter.would_allow(trial.request(1)).await?;
    trial.limiter.refund(&peeked).await?;
    trial.expect_left(1).await
}

async fn previous(bench: Bench) -> CaseResult {
    for text in ["10/min", "10/min precision 30s"] {
        let trial = Trial::new(&bench, limit(text)?);
        let decision = trial.at(Duration::from_secs(59)).admit(8).await?;
        trial.at(Duration::from_secs(61)).admit(1).await?;
        trial.limiter.refund(&decision).await?;
        trial.expect_left(9).await?;
    }
    // The fixed window of the charge has ended. Nothing of the new one is refunded.
    let trial = Trial::new(&bench, limit("10/min fixed")?);
    let decision = trial.at(Duration::from_secs(59)).admit(8).await?;
    trial.at(Duration::from_secs(61)).admit(4).await?;
    trial.limiter.refund(&decision).await?;
    trial.expect_left(6).await
}

async fn bucket(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("60/min burst 10")?);
    trial.admit(3).await?;
    let decision = trial.admit(6).await?;
    // Five of the nine have drained: the three before, and two of the six.
    trial.at(Duration::from_secs(5)).expect_left(6).await?;
    trial.limiter.refund(&decision).await?;
    trial.expect_left(10).await?;
    trial.admit(10).await?;
    // A limiter gives nothing back twice. For a second refund, the bucket only sees that four units lie before that receipt:
    // the end of nine units.
    refund_again(&bench, &trial, "60/min burst 10", (6, Receipt::at(START + Duration::from_secs(9)))).await?;
    ensure_eq!(trial.left().await?, 4, "left after the same was given back again");
    Ok(())
}

/// Refunds units by their receipt, as a limiter does only once.
async fn refund_again(
    bench: &Bench,
    trial: &Trial,
    text: &str,
    (cost, receipt): (u64, Receipt),
) -> CaseResult {
    let limit = limit(text)?;
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let refund = Refund { id, cost, meter: limit.meter_for(id.key), receipt };
    Ok(bench.store.refund(trial.now(), &[refund]).await?)
}

async fn log(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/min log")?);
    let first = trial.admit(4).await?;
    let second = trial.at(Duration::from_secs(10)).admit(5).await?;
    trial.at(Duration::from_secs(20));
    trial.limiter.refund(&first).await?;
    trial.expect_left(5).await?;
    refund_again(&bench, &trial, "10/min log", (4, Receipt::at(START))).await?;
    trial.expect_left(5).await?;
    trial.limiter.refund(&second).await?;
    trial.expect_left(10).await
}

async fn twice(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let limit = [kind.limit(5, MINUTE)?];
        let trial = Trial::new(&bench, limit[0].clone());
        let charged = charge(&bench, &trial, "k", &limit).await?;
        for _ in 0..3 {
            charged.refund(&bench, &trial).await?;
            trial.expect_left(5).await?;
        }
        ensure_eq!(trial.drain(20).await?, 5, "admitted after three refunds of the same, {kind:?}");
    }
    // Several limits, so that each refund is one of several meters.
    let several = limits(&["10/h fixed", "20/h", "30/h log"])?;
    let trial = Trial::new(&bench, several.clone()).key("three");
    let charged = charge(&bench, &trial, "three", &several).await?;
    trial.advance(MINUTE).admit(1).await?;
    // The second refund finds no more than that unit. A log returns only units of the first charge.
    for expected in [[9, 19, 29], [10, 20, 29]] {
        charged.refund(&bench, &trial).await?;
        let left: Vec<u64> = trial.limiter.peek("three").await?.each().map(|each| each.remaining()).collect();
        ensure_eq!(left, expected, "left under each limit after a refund, or two of the same");
    }
    Ok(())
}

/// Five units of a key under each of these limits, which are refunded at the store: a limiter gives nothing back twice.
struct Charged<'c> {
    claims: Vec<Claim<'c>>,
    receipts: Vec<Receipt>,
}

async fn charge<'c>(
    bench: &Bench,
    trial: &Trial,
    key: &'c str,
    limits: &'c [Limit],
) -> CaseResult<Charged<'c>> {
    let claim = |limit: &'c Limit| {
        let id = MeterId { namespace: "", scope: limit.scope(), key: key.as_bytes() };
        Claim { id, cost: 5, meter: limit.meter_for(id.key) }
    };
    let claims: Vec<Claim<'c>> = limits.iter().map(claim).collect();
    let answer = bench.store.claim(Claims::new(trial.now(), Mode::Charge, &claims)?).await?;
    ensure_eq!((answer.admitted, answer.charged), (true, true), "five units");
    Ok(Charged { claims, receipts: answer.verdicts.iter().map(|verdict| verdict.receipt).collect() })
}

impl Charged<'_> {
    async fn refund(&self, bench: &Bench, trial: &Trial) -> CaseResult {
        let each = self.claims.iter().zip(&self.receipts);
        let refunds: Vec<Refund<'_>> = each
            .map(|(Claim { id, cost, meter }, receipt)| Refund {
                id: *id,
                cost: *cost,
                meter: *meter,
                receipt: *receipt,
            })
            .collect();
        Ok(bench.store.refund(trial.now(), &refunds).await?)
    }
}

async fn several(bench: Bench) -> CaseResult {
    let three = limits(&["10/min", "20/h burst 20", "30/h log"])?;
    let trial = Trial::new(&bench, three);
    let both = Request::new("user").and("address").cost(5);
    let decision = trial.limiter.check(&both).await?;
    trial.limiter.refund(&decision).await?;
    for key in ["user", "address"] {
        let left: Vec<u64> = trial.limiter.peek(key).await?.each().map(|each| each.remaining()).collect();
        ensure_eq!(left, [10, 20, 30], "left to {key} after all was given back");
    }
    Ok(())
}

async fn unknown(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let limit = kind.limit(5, MINUTE)?;
        let id = MeterId { namespace: "", scope: limit.scope(), key: b"unknown" };
        let refund = Refund { id, cost: 3, meter: limit.meter_for(id.key), receipt: Receipt::at(START) };
        bench.store.refund(START, &[refund]).await?;
        bench.store.refund(START, &[]).await?;
        let trial = Trial::new(&bench, limit.clone()).key("unknown");
        ensure_eq!(trial.drain(20).await?, 5, "admitted after a refund for nothing, {kind:?}");
    }
    Ok(())
}

async fn others(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(5, MINUTE)?);
        let other = trial.key("other");
        let named = trial.under(kind.builder(5, MINUTE).name("named").build()?);
        let decision = trial.admit(5).await?;
        other.admit(5).await?;
        named.admit(5).await?;
        trial.limiter.refund(&decision).await?;
        trial.expect_left(5).await?;
        other.expect_left(0).await?;
        named.expect_left(0).await?;
    }
    Ok(())
}
