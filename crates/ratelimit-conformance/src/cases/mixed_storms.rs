//! Concurrent claims, slices, batches, forced charges, peeks and refunds, on meters in every state: no unit is lost.

use std::time::Duration;

use ratelimit_core::store::{Answer, Mode};
use ratelimit_core::{Algorithm, Limit, StoreError, Timestamp};

use super::contended::may_contend;
use super::mirrored::{Part, Slice, earlier, give_back, put, put_many};
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, Failure, ensure};
use crate::in_time::in_time;
use crate::subject::Handle;

/// Units of each meter: more than are taken concurrently.
const ALL: u64 = 6_000;

/// The time from a first charge to the storm, and the suffix of a case's name.
const WHEN: [(Duration, &str); 5] = [
    (Duration::ZERO, "at-once"),
    (Duration::from_secs(1_000), "on-a-busy-meter"),
    (Duration::from_secs(3_600), "at-a-turn"),
    (Duration::from_secs(5_400), "in-the-next-window"),
    (Duration::from_secs(1_000_000), "on-an-expired-meter"),
];

/// Just after a turn, so that late callers are in the window before it.
const AFTER_A_TURN: Duration = Duration::from_millis(3_600_100);

/// How late some callers are.
const BEHIND: Duration = Duration::from_millis(500);

/// Limits of other kinds, which nodes that count for themselves count in another way.
const OTHERS: [&str; 5] = [
    "6000 in total",
    "6000/h from first request",
    "6000/h burst 6000 step 15min",
    "6000/h queue burst 6000 immediate 3",
    "6000/h precision 1min",
];

pub(super) fn cases() -> Vec<Case> {
    let about = "Concurrent claims, slices, batches, forced charges, peeks and refunds leave exactly the units that they did not take.";
    let case = |(when, name)| {
        Case::new(format!("storms/of-everything-{name}"), about, move |bench| {
            of_all_kinds(bench, when, Duration::ZERO)
        })
    };
    let mut cases: Vec<Case> = WHEN.into_iter().map(case).collect();
    cases.push(
        Case::new(
            "storms/of-everything-by-late-callers",
            "The same if the clocks of half of the callers are behind the newest charge.",
            |bench| of_all_kinds(bench, AFTER_A_TURN, BEHIND),
        )
        .needs(Need::OrderedTime),
    );
    cases.push(
        Case::new(
            "storms/of-everything-on-other-kinds",
            "The same on totals, windows that begin with a first request, buckets in steps, queues and many segments.",
            of_other_kinds,
        )
        .needs(Need::OneCount),
    );
    cases.into_iter().map(Case::heavy).collect()
}

async fn of_all_kinds(bench: Bench, when: Duration, behind: Duration) -> CaseResult {
    for kind in bench.kinds() {
        let other = kind.builder(ALL, HOUR).name("other").build()?;
        mixed(&bench, when, behind, [kind.limit(ALL, HOUR)?, other]).await?;
    }
    Ok(())
}

async fn of_other_kinds(bench: Bench) -> CaseResult {
    for text in OTHERS {
        let both = [limit(text)?, limit(&format!("{text} name other"))?];
        mixed(&bench, Duration::from_secs(1_000), Duration::ZERO, both).await?;
    }
    Ok(())
}

async fn mixed(bench: &Bench, when: Duration, behind: Duration, both: [Limit; 2]) -> CaseResult {
    let handles = bench.handles(4).await?;
    let [part, other] = both.each_ref().map(|limit| Part::new(limit, "k", 0));
    let limit = &both[0];
    let now = START + when;
    put(&bench.store, START, Mode::Charge, &[part.of(ALL / 3), other.of(1)]).await??;
    let mut before = 0;
    if !behind.is_zero() {
        // From now on, all that comes with an earlier clock is late.
        put(&bench.store, now, Mode::Charge, &[part.of(3), other.of(1)]).await??;
        before = 3;
    }
    let calls = storm(&handles, 90, |handle, number| {
        let (bench, parts) = (bench.clone(), [part.clone(), other.clone()]);
        // Late callers and others use different handles: each handle has a clock of its own.
        let now = if (number / 2).is_multiple_of(2) { now } else { earlier(now, behind) };
        async move { one(&bench, &handle, number, now, &parts).await }
    });
    let calls = calls.await?;
    let [taken, back] = [0, 1].map(|which| calls.iter().map(|units: &[u64; 2]| units[which]).sum::<u64>());
    // A refund to a queue returns nothing while other calls have later turns. Under contention, a store may also have
    // assigned later turns and taken them back.
    let lost = match limit.algorithm() {
        Algorithm::LeakyQueue if bench.promises().decisions.are_exact_on_one_node() => back,
        Algorithm::LeakyQueue => u64::MAX,
        _ => 0,
    };
    let meter = limit.meter_for(b"k");
    let mut state = meter.fresh();
    meter.charge(&mut state, ALL / 3, START);
    meter.charge(&mut state, before + taken, now);
    let expected = meter.verdict(&state, 0, now, None).remaining;
    let left = put(&bench.store, now, Mode::Peek, &[part.of(0)]).await??.verdicts[0].remaining;
    ensure!(
        left <= expected && left >= expected.saturating_sub(lost),
        "{left} units are left, not {expected}, after {taken} were taken and {back} refunded, {limit}"
    );
    Ok(())
}

/// Takes units in some way, refunds half of them, and returns how many it has kept and refunded.
async fn one(
    bench: &Bench,
    handle: &Handle,
    number: usize,
    now: Timestamp,
    [part, other]: &[Part; 2],
) -> CaseResult<[u64; 2]> {
    let [mut kept, mut back] = [0; 2];
    for round in 0..3 {
        let slice = |mode, parts: &[Part]| Slice { now, mode, parts: parts.to_vec() };
        let answers = match (number + round) % 5 {
            0 => vec![put(handle, now, Mode::Charge, &[part.of(3)]).await?],
            1 => vec![put(handle, now, Mode::Charge, &[part.of(3), other.of(1)]).await?],
            2 => {
                let second = if number.is_multiple_of(2) { Mode::Force } else { Mode::Charge };
                let slices = [
                    slice(Mode::Charge, &[part.of(3)]),
                    slice(second, &[part.of(3), other.of(1)]),
                    slice(Mode::Peek, &[part.of(3)]),
                ];
                in_time("a batch", put_many(handle, &slices)).await?
            }
            3 => vec![put(handle, now, Mode::Force, &[part.of(3)]).await?],
            _ => vec![put(handle, now, Mode::Peek, &[part.of(3)]).await?],
        };
        for (place, answer) in answers.into_iter().enumerate() {
            let Some(answer) = settled(bench, answer)?.filter(|answer| answer.charged) else { continue };
            if (number + place).is_multiple_of(2) {
                kept += 3;
            } else {
                give_back(handle, now, &[(part.of(3), answer.verdicts[0].receipt)]).await??;
                back += 3;
            }
        }
    }
    Ok([kept, back])
}

/// The answer, or `None` for a contention error, after which nothing is charged.
fn settled(bench: &Bench, answer: Result<Answer, StoreError>) -> CaseResult<Option<Answer>> {
    match answer {
        Err(error) if may_contend(bench.promises(), &error) => Ok(None),
        Err(error) => Err(Failure::from(error)),
        Ok(answer) => Ok(Some(answer)),
    }
}
