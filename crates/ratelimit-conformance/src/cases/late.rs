//! Callers whose clocks are seconds, hours or days behind: their claims are decided as of the newest charge.

use std::time::Duration;

use ratelimit_core::store::{Mode, Receipt};
use ratelimit_core::{Limit, Timestamp};

use super::mirrored::{Mirrored, Part, Slice, after, earlier};
use crate::bench::{Bench, limit};
use crate::case::{Case, Need};
use crate::clock::{SECOND, START};
use crate::failure::{CaseResult, ensure_eq};
use crate::kind::Kind;
use crate::random::Random;

/// Long enough that no store may remove a meter by the time of the newest caller.
const PERIOD: Duration = Duration::from_secs(40 * 86_400);

/// The lateness of callers.
const BEHIND: [Duration; 7] = [
    Duration::from_nanos(1),
    SECOND,
    Duration::from_secs(10),
    Duration::from_secs(300),
    Duration::from_secs(3_600),
    Duration::from_secs(4 * 3_600),
    Duration::from_secs(10 * 86_400),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "late/every-operation",
        "Claims, slices, batches, forced charges, peeks and refunds that are up to days late get the answers of the model.",
        every_operation,
    );
    cases.extend(Case::for_each(
        &Kind::ALL,
        "late/random",
        "Random operations by callers whose clocks differ by days get the answers of the model.",
        random,
    ));
    cases.push(Case::new(
        "late/full-stays-full",
        "An exhausted meter admits no late caller, however many requests it sends.",
        full_stays_full,
    ));
    cases.extend([
        Case::new(
            "late/every-operation-in-steps-and-turns",
            "Operations of late callers on windows that begin with a first request, buckets in steps, and queues with immediate \
             units get the answers of the model.",
            in_steps_and_turns,
        )
        .needs(Need::OneCount),
        Case::new(
            "late/several-rates",
            "Late claims on a bucket that limits of two rates have charged get the answers of the model.",
            several_rates,
        )
        .needs(Need::OneCount),
    ]);
    cases.into_iter().map(|case| case.needs(Need::OrderedTime)).collect()
}

/// A minute into a window of that period, and into a quarter of it. Callers that are more than a minute late are in the
/// former one.
fn newest() -> Timestamp {
    START + Duration::from_secs(576_060)
}

async fn every_operation(bench: Bench, kind: Kind) -> CaseResult {
    let second = kind.builder(30, PERIOD).name("second").build()?;
    on_both(&bench, &kind.limit(20, PERIOD)?, &second).await
}

async fn in_steps_and_turns(bench: Bench) -> CaseResult {
    let second = limit("30/40d name second")?;
    for text in [
        "20/40d from first request",
        "20/40d burst 20 step 4d",
        "20/40d queue burst 20 immediate 3",
        "20/40d precision 1d",
    ] {
        on_both(&bench, &limit(text)?, &second).await.map_err(|failure| after(text, failure))?;
    }
    Ok(())
}

/// Calls of late callers on one limit, and on both.
async fn on_both(bench: &Bench, first: &Limit, second: &Limit) -> CaseResult {
    let handles = bench.handles(2).await?;
    for (place, behind) in BEHIND.into_iter().enumerate() {
        let key = format!("{place} {first}");
        let [part, second] = [first, second].map(|limit| Part::new(limit, &key, 0));
        let both = [part.clone(), second.clone()];
        let what = format!("{behind:?} behind");
        let late = earlier(newest(), behind);
        let mut mirrored = Mirrored::new(bench);
        let charged = mirrored.set(newest()).claim(Mode::Charge, &[part.of(5), second.of(5)]).await?;
        mirrored.on(&handles[1]).set(late);
        let answers = async {
            mirrored.stands(&both, "a charge").await?;
            mirrored.claim(Mode::Charge, &[part.of(2)]).await?;
            mirrored.claim(Mode::Charge, &[second.of(1), part.of(1)]).await?;
            mirrored.claim(Mode::Force, &[part.of(3)]).await?;
            let one = |cost| Slice { now: late, mode: Mode::Charge, parts: vec![part.of(cost)] };
            mirrored.many(&[one(2), one(30), one(3)]).await?;
            let now = Slice { now: newest(), ..one(1) };
            mirrored.many(&[one(1), now, one(1)]).await?;
            let of_both = |mode| Slice { now: late, mode, parts: vec![part.of(1), second.of(1)] };
            mirrored.many(&[of_both(Mode::Peek), of_both(Mode::Force), of_both(Mode::Peek)]).await?;
            mirrored.claim(Mode::Force, &[second.of(1), part.of(1)]).await?;
            let [of_part, of_second] = [0, 1].map(|place: usize| charged.verdicts[place].receipt);
            mirrored.refund(&[(part.of(2), of_part), (second.of(1), of_second)]).await?;
            mirrored.stands(&both, "a refund of both").await?;
            mirrored.refund(&[(part.of(2), of_part)]).await?;
            mirrored.refund(&[(second.of(4), of_second)]).await?;
            mirrored.stands(&both, "refunds").await?;
            mirrored.claim(Mode::Charge, &[part.of(20)]).await?; // refused
            mirrored.set(newest() + SECOND).stands(&both, "a second").await?;
            CaseResult::Ok(())
        };
        answers.await.map_err(|failure| after(&what, failure))?;
        mirrored.set(late).reset(&both).await?;
        mirrored.set(newest() + SECOND).stands(&both, &format!("a reset, {behind:?} behind")).await?;
        // Nothing was counted, so the claim is decided at its own instant.
        mirrored.set(late).claim(Mode::Charge, &[part.of(20)]).await?;
        mirrored.stands(&both, &format!("a reset and a claim, {behind:?} behind")).await?;
    }
    Ok(())
}

async fn several_rates(bench: Bench) -> CaseResult {
    for kind in ["burst 10", "leaky burst 10", "queue burst 10", "queue burst 10 immediate 3"] {
        let under = |rate: u64| limit(&format!("{rate}/s {kind} name b"));
        let [slow, fast] = [Part::new(&under(1)?, kind, 0), Part::new(&under(2)?, kind, 0)];
        let mut mirrored = Mirrored::new(&bench);
        let answers = async {
            for part in [&slow, &fast] {
                mirrored.at(SECOND * 10).claim(Mode::Charge, &[part.of(5)]).await?;
            }
            mirrored.at(SECOND * 112 / 10).claim(Mode::Charge, &[fast.of(1)]).await?;
            for part in [&fast, &slow] {
                mirrored.at(SECOND * 109 / 10).claim(Mode::Charge, &[part.of(1)]).await?;
                mirrored.at(SECOND * 109 / 10).claim(Mode::Force, &[part.of(1)]).await?;
            }
            mirrored.stands(&[slow.clone(), fast.clone()], "late claims").await?;
            mirrored.at(SECOND * 112 / 10).stands(&[slow, fast], "late claims, for the others").await
        };
        answers.await.map_err(|failure| after(kind, failure))?;
    }
    Ok(())
}

async fn random(bench: Bench, kind: Kind) -> CaseResult {
    let handles = bench.handles(3).await?;
    let mut random = bench.random();
    let mut mirrored = Mirrored::new(&bench);
    let limit = kind.limit(60, PERIOD)?;
    let parts: Vec<Part> = (0..3).map(|key| Part::new(&limit, format!("{key}"), 0)).collect();
    for part in &parts {
        mirrored.set(newest()).claim(Mode::Charge, &[part.of(1)]).await?;
    }
    let mut held: Vec<(Part, Receipt)> = Vec::new();
    let (mut newest, mut floor) = (newest(), START);
    for step in 0..160 {
        newest = newest + Duration::from_secs(random.below(120));
        let behind = BEHIND[random.place(BEHIND.len())];
        let now = if random.chance(60) { earlier(newest, behind).max(floor) } else { newest };
        mirrored.on(&handles[random.place(3)]).set(now);
        let part = parts[random.place(parts.len())].of(random.between(1, 6));
        let done = match random.below(10) {
            0 => take(&mut random, &mut held, &mut mirrored).await,
            1 => mirrored.claim(Mode::Peek, &[part]).await.map(|_| false),
            2 if random.chance(20) => mirrored.reset(&[part]).await.map(|()| true),
            kind => {
                let mode = if kind == 3 { Mode::Force } else { Mode::Charge };
                let answer = mirrored.claim(mode, std::slice::from_ref(&part)).await;
                answer.map(|answer| {
                    held.extend(answer.charged.then(|| (part, answer.verdicts[0].receipt)));
                    false
                })
            }
        };
        // A meter that is as good as new may have been removed, and then nothing is late.
        if done.map_err(|failure| after(&format!("{step} steps"), failure))? {
            floor = newest;
        }
    }
    Ok(())
}

/// Refunds some units. Returns whether a meter is as good as new.
async fn take(
    random: &mut Random,
    held: &mut Vec<(Part, Receipt)>,
    mirrored: &mut Mirrored,
) -> CaseResult<bool> {
    if held.is_empty() {
        return Ok(false);
    }
    let charge = held.swap_remove(random.place(held.len()));
    mirrored.refund(&[charge]).await
}

async fn full_stays_full(bench: Bench) -> CaseResult {
    let handles = bench.handles(2).await?;
    for kind in bench.kinds() {
        let part = Part::new(&kind.limit(3, PERIOD)?, "k", 1);
        let mut mirrored = Mirrored::new(&bench);
        mirrored.set(newest()).claim(Mode::Charge, &[part.of(3)]).await?;
        for (handle, behind) in handles.iter().cycle().zip(BEHIND.into_iter().cycle().take(28)) {
            let asked = mirrored
                .on(handle)
                .set(earlier(newest(), behind))
                .claim(Mode::Charge, std::slice::from_ref(&part))
                .await?;
            ensure_eq!(asked.admitted, false, "whether one of 3 more was admitted {behind:?} late, {kind:?}");
        }
    }
    Ok(())
}
