//! Many independent slices in one call.

use std::time::Duration;

use ratelimit_core::store::Mode;
use ratelimit_core::{CounterStore, Limit, Request, Timestamp};

use super::atomic::{sixty_four, still};
use super::mirrored::{Mirrored, Part, Slice, put_many};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "batches/do-not-over-consume",
        "Fifty slices on one key under a limit of ten: the first ten are admitted, each with one unit less left.",
        over_consume,
    );
    for case in &mut cases {
        *case = case.clone().needs(Need::ExactPerKey);
    }
    cases.extend([
        Case::new(
            "batches/in-order",
            "A slice sees the charges of the slices before it, and no others.",
            in_order,
        )
        .needs(Need::ExactPerKey),
        Case::new("batches/independent", "A refused slice does not stop those after it.", independent),
        Case::new("batches/empty", "An empty batch has no answers.", empty),
        Case::new(
            "batches/a-thousand-keys",
            "A thousand keys in one batch get their answers in order.",
            thousand,
        )
        .heavy(),
        Case::new(
            "batches/largest-slices",
            "Forced charges and batches of charges, peeks and forced charges reach all limits of slices that have as many as a slice can have.",
            largest,
        ),
        Case::new(
            "batches/twelve-thousand-meters",
            "A batch of 200 keys under 64 limits, more meters than a statement of most databases can name.",
            twelve_thousand,
        )
        .any_time()
        .heavy(),
        Case::new("batches/instants-of-their-own", "Each slice is decided at its own instant.", instants),
        Case::new("batches/modes-of-their-own", "Peeks, charges and forced charges in one batch.", modes)
            .needs(Need::ExactPerKey),
    ]);
    cases
}

async fn over_consume(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, HOUR)?);
    let answers = trial.limiter.check_many(["k"; 50]).await;
    ensure_eq!(answers.len(), 50, "answers");
    for (place, answer) in answers.into_iter().enumerate() {
        let decision = answer?;
        ensure_eq!(decision.allowed(), place < 10, "whether request {place} of a limit of 10 was admitted");
        ensure_eq!(decision.remaining(), 9_u64.saturating_sub(place as u64), "left after request {place}");
    }
    trial.refuse(1).await?;
    Ok(())
}

async fn in_order(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["10/h", "20/h log"])?);
    let costs = [3, 9, 7, 1, 0, 2];
    let answers = trial.limiter.check_many(costs.map(|cost| Request::new("k").cost(cost))).await;
    let mut found = Vec::new();
    for answer in answers {
        let decision = answer?;
        found.push((decision.allowed(), decision.remaining()));
    }
    let expected = [(true, 7), (false, 7), (true, 0), (false, 0), (true, 0), (false, 0)];
    ensure_eq!(found, expected, "admitted and left for costs of {costs:?} under 10 and 20");
    Ok(())
}

async fn independent(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/h")?);
    trial.key("full").admit(2).await?;
    let answers = trial.limiter.check_many(["a", "full", "b", "full", "c"]).await;
    let mut found = Vec::new();
    for answer in answers {
        found.push(answer?.allowed());
    }
    ensure_eq!(found, [true, false, true, false, true], "admitted");
    Ok(())
}

async fn empty(bench: Bench) -> CaseResult {
    let answers = bench.store.claim_many(&[]).await;
    ensure!(answers.is_empty(), "an empty batch has answers: {answers:?}");
    Ok(())
}

async fn thousand(bench: Bench) -> CaseResult {
    bench.sends_together()?;
    let trial = Trial::new(&bench, limit("1000/h")?);
    let keys: Vec<String> = (0..1_000).map(|number| format!("user:{number}")).collect();
    let requests = (1..).zip(&keys).map(|(cost, key)| Request::new(key).cost(cost));
    let answers = trial.limiter.check_many(requests).await;
    ensure_eq!(answers.len(), 1_000, "answers");
    for (cost, answer) in (1..).zip(answers) {
        ensure_eq!(answer?.remaining(), 1_000 - cost, "left after a cost of {cost}");
    }
    Ok(())
}

/// With six parameters for each meter, more than a statement can have on any common database.
async fn twelve_thousand(bench: Bench) -> CaseResult {
    bench.sends_together()?;
    let texts: Vec<String> = (0..64).map(|number| format!("20/3000d name l{number}")).collect();
    let all = limits(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
    bench.journal.learn(&all);
    let limiter = still(bench.patient().await?, &all, START);
    let keys: Vec<String> = (0..200).map(|number| format!("user:{number}")).collect();
    let requests = keys.iter().zip((1..=20).cycle()).map(|(key, cost)| Request::new(key).cost(cost));
    let answers = limiter.check_many(requests).await;
    ensure_eq!(answers.len(), keys.len(), "answers");
    for (answer, cost) in answers.into_iter().zip((1..=20).cycle()) {
        let decision = answer?;
        ensure!(
            decision.each().all(|each| each.remaining() == 20 - cost),
            "after a cost of {cost}: {decision:?}"
        );
    }
    Ok(())
}

async fn largest(bench: Bench) -> CaseResult {
    let all = sixty_four()?;
    let trial = Trial::new(&bench, all.clone());
    trial.limiter.charge(Request::new("k").cost(3)).await?;
    for answer in trial.limiter.check_many(["k"; 2]).await {
        ensure!(answer?.allowed(), "a slice of a batch was refused");
    }
    for one in all.iter() {
        let left = Trial::new(&bench, one.clone()).left().await?;
        ensure_eq!(left, 15, "left of {one} after a forced charge of three and a batch of two");
    }
    for (key, taken, mode) in [("peeked", 20, Mode::Peek), ("forced", 1, Mode::Force)] {
        let of = |cost| all.iter().map(|limit| Part::new(limit, key, cost)).collect::<Vec<_>>();
        let slice = |cost| Slice { now: START, mode, parts: of(cost) };
        let mut mirrored = Mirrored::new(&bench);
        mirrored.claim(Mode::Charge, &of(taken)).await?;
        mirrored.many(&[slice(2), slice(1)]).await?;
        mirrored.claim(Mode::Peek, &of(1)).await?;
    }
    Ok(())
}

/// Claims of one unit of the key `k`, each at its instant and in its mode.
async fn raw(
    bench: &Bench,
    limit: &Limit,
    asked: &[(Timestamp, Mode)],
) -> CaseResult<Vec<(bool, bool, u64)>> {
    let slice = |(now, mode)| Slice { now, mode, parts: vec![Part::new(limit, "k", 1)] };
    let slices: Vec<Slice> = asked.iter().copied().map(slice).collect();
    let mut found = Vec::new();
    for (answer, (now, _)) in put_many(&bench.store, &slices).await?.into_iter().zip(asked) {
        let answer = answer?;
        ensure_eq!(answer.now, *now, "the instant of an answer");
        found.push((answer.admitted, answer.charged, answer.verdicts[0].remaining));
    }
    Ok(found)
}

async fn instants(bench: Bench) -> CaseResult {
    let second = |secs| (START + Duration::from_secs(secs), Mode::Charge);
    let found =
        raw(&bench, &limit("1/min fixed")?, &[second(0), second(59), second(60), second(119)]).await?;
    let found: Vec<bool> = found.into_iter().map(|(admitted, _, _)| admitted).collect();
    ensure_eq!(found, [true, false, true, false], "admitted at 0, 59, 60 and 119 s by 1/min");
    Ok(())
}

async fn modes(bench: Bench) -> CaseResult {
    let modes = [Mode::Peek, Mode::Charge, Mode::Peek, Mode::Charge, Mode::Force, Mode::Peek];
    let found = raw(&bench, &limit("1/h log")?, &modes.map(|mode| (START, mode))).await?;
    let expected = [
        (true, false, 1),
        (true, true, 0),
        (false, false, 0),
        (false, false, 0),
        (true, true, 0),
        (false, false, 0),
    ];
    ensure_eq!(found, expected, "admitted, charged and left for {modes:?}");
    Ok(())
}
