//! The same claims at the same instants get the same answers: random sequences are compared with the model.

use std::time::Duration;

use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::store::{Decisions, Time};

use super::sequence::steps;
use super::sequence_parts::{Drawn, Shape};
use super::sequence_replay::{Compared, Ended, replay};
use super::sequence_shrink::Shrink;
use crate::bench::Bench;
use crate::case::Case;
use crate::failure::{CaseResult, Failure};
use crate::kind::Kind;

/// The number of cases that share the random claims.
const CASES: u64 = 21;

/// The failure of a longer sequence proves nothing: a server may have removed meters by its own clock that still count by
/// the clock of the sequence.
const SHORT: Duration = Duration::from_millis(800);

/// The number of tries of a sequence that takes longer.
const TRIES: u64 = 5;

/// Steps of a sequence in which each slice is a call of its own, so that it takes no longer than [`SHORT`].
const ONE_BY_ONE: u64 = 60;

/// What the failure says if the last try took longer, too.
const SLOW: &str = "\n     each try took longer than 800 ms, so the server may have removed meters by its own clock: run the case \
                    alone, or on a faster machine";

/// One in this many answers of a conservative store may differ, within its promise.
const CONSERVATIVE: u64 = 50;

pub(super) fn cases() -> Vec<Case> {
    let about = "Random claims, peeks, forced charges, refunds and resets get the answers of the model.";
    let only = |drawn| Shape { only: Some(drawn), ..Shape::default() };
    let mut cases = Case::for_each(&Kind::ALL, "same-decisions/random", about, move |bench, kind| {
        compare(bench, only(Drawn::Kind(kind)))
    });
    let shape = |name: &str, about, shape| Case::new(name, about, move |bench| compare(bench, shape));
    let base = Shape::default();
    cases.extend([
        shape(
            "same-decisions/random-bans",
            "Bans that begin at random, requests meanwhile, and resets get the answers of the model.",
            only(Drawn::Ban),
        ),
        shape(
            "same-decisions/random-slices",
            "Slices of up to a dozen claims of all kinds get the answers of the model.",
            Shape { slice: (4, 3), ..base },
        ),
        shape(
            "same-decisions/random-changes",
            "Claims under changing quotas, bursts and rates get the answers of the model.",
            Shape { changes: true, ..base },
        ),
        shape(
            "same-decisions/random-one-by-one",
            "Slices get the same answers one by one as in a batch.",
            Shape { batch: 1, steps: ONE_BY_ONE, changes: true, ..base },
        ),
        shape(
            "same-decisions/random-tiny-periods",
            "Claims with periods of microseconds get the answers of the model.",
            Shape { periods: (4, 400), ..base },
        ),
        shape(
            "same-decisions/random-short-periods",
            "Claims with periods of milliseconds, and a clock that steps back over several, get the answers of the model.",
            Shape { periods: (10_000, 900_000), changes: true, ..base },
        ),
        shape(
            "same-decisions/random-long-periods",
            "Claims with periods of weeks to years get the answers of the model.",
            Shape { periods: (86_400_000_000, 300 * 86_400_000_000), changes: true, ..base },
        ),
        shape(
            "same-decisions/random-large-numbers",
            "Claims with quotas near the maximum get the answers of the model, without rounding.",
            Shape { quota: MAX_UNITS, changes: true, ..base },
        ),
        shape(
            "same-decisions/random-everything",
            "Everything at once: all kinds, periods of seconds to days, changes, slices.",
            Shape { periods: (1_000_000, 86_400_000_000), quota: 5_000, changes: true, slice: (5, 3), ..base },
        ),
    ]);
    debug_assert_eq!(cases.len() as u64, CASES);
    cases
}

async fn compare(bench: Bench, mut shape: Shape) -> CaseResult {
    let promises = bench.promises();
    shape.steps_back &= promises.time == Time::Caller && promises.monotonic;
    if promises.decisions == Decisions::Conservative {
        shape.batch = 1; // the slices of a batch contend with each other
        shape.steps = shape.steps.min(ONE_BY_ONE);
        shape.conservative = true;
    }
    let kinds = || bench.kinds().into_iter().map(Drawn::Kind).chain([Drawn::Ban]).collect();
    let drawn: Vec<Drawn> = shape.only.map_or_else(kinds, |only| vec![only]);
    let mut seeds = bench.random();
    let goal = bench.suite.random.div_ceil(CASES);
    let mut compared = Compared::default();
    let mut number = 0;
    while compared.claims < goal {
        let seed = seeds.bits();
        let Compared { claims, conservative } =
            sequence(&bench, shape, drawn.clone(), seed, number).await.inspect_err(|_| {
                // The message has the steps of the sequence.
                bench.journal.clear();
            })?;
        compared.claims += claims;
        compared.conservative += conservative;
        number += 1;
    }
    if compared.conservative * CONSERVATIVE > compared.claims {
        let Compared { claims, conservative } = compared;
        let what = format!(
            "{conservative} answers to {claims} claims said that less remains than does, or gave another receipt; \
             one in {CONSERVATIVE} may"
        );
        return Err(Failure::new(format!("{what}, by --seed {}", bench.suite.seed)));
    }
    Ok(())
}

async fn sequence(
    bench: &Bench,
    shape: Shape,
    drawn: Vec<Drawn>,
    seed: u64,
    number: u64,
) -> CaseResult<Compared> {
    let (store, run) = (&bench.store, bench.suite.seed);
    let steps = steps(shape, drawn, seed)?;
    let mut tries = 0;
    loop {
        let began = tokio::time::Instant::now();
        // Each try has new keys.
        let keys = format!("{number}.{tries}");
        tries += 1;
        match replay(shape, store, &steps, &keys).await? {
            Ended::Same(compared) => return Ok(compared),
            _ if began.elapsed() > SHORT && tries < TRIES => {}
            Ended::Differs(difference) => {
                let slow = if began.elapsed() > SHORT { SLOW } else { "" };
                let shrink = Shrink { shape, store, keys, short: SHORT, steps, difference };
                let reported = shrink.reported().await?;
                return Err(Failure::new(format!("sequence {number} of --seed {run}, {reported}{slow}")));
            }
            // The windows of staggered limits depend on the key. So the store may have removed a meter here that could not be
            // removed when the sequence was written, and the clock steps back before that. The next one does not.
            Ended::Meaningless => return Ok(Compared::default()),
        }
    }
}
