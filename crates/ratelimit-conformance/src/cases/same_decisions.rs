//! The same claims at the same instants get the same answers: random sequences against the model.

use std::time::Duration;

use ratelimit_core::{Decisions, MAX_UNITS, Time};

use super::sequence::{Shape, steps};
use super::sequence_replay::{Compared, Ended, replay};
use super::sequence_shrink::Shrink;
use crate::bench::{Bench, Handle};
use crate::case::Case;
use crate::failure::{CaseResult, Failure};
use crate::kind::Kind;

/// How many cases share the random claims.
const CASES: u64 = 16;

/// A sequence that takes longer proves nothing when it fails: a server may have forgotten by its own clock what the
/// sequence's clock still remembers.
const SHORT: Duration = Duration::from_millis(800);

/// How often a sequence is tried that was not short.
const TRIES: u64 = 5;

/// A conservative store's answers may differ in one of so many claims, in what such a store may say.
const CONSERVATIVE: u64 = 50;

macro_rules! kinds {
    ($($kind:ident),*) => {
        [$((Kind::$kind, Shape { kinds: &[Kind::$kind], ..Shape::default() })),*]
    };
}

pub(super) fn cases() -> Vec<Case> {
    let about = "Random claims, peeks, forced charges, refunds and resets are answered as by the model.";
    let each = kinds![Fixed, Sliding, Segmented, Strict, Log, Bucket, Leaky, Queue].map(|(kind, shape)| {
        Case::new(format!("same-decisions/random-{}", kind.name()), about, move |bench| compare(bench, shape))
    });
    let mut cases = Vec::from(each);
    let shape = |name: &str, about, shape| Case::new(name, about, move |bench| compare(bench, shape));
    let base = Shape::default();
    cases.extend([
        shape(
            "same-decisions/random-slices",
            "Slices of up to a dozen claims of all kinds are answered as by the model.",
            Shape { slice: (4, 3), ..base },
        ),
        shape(
            "same-decisions/random-changes",
            "Quotas, bursts and rates that change on the way are answered as by the model.",
            Shape { changes: true, ..base },
        ),
        shape(
            "same-decisions/random-one-by-one",
            "Slices that go out one by one are answered as those that go out together.",
            Shape { batch: 1, steps: 60, changes: true, ..base },
        ),
        shape(
            "same-decisions/random-tiny-periods",
            "Periods of microseconds are answered as by the model.",
            Shape { periods: (4, 400), ..base },
        ),
        shape(
            "same-decisions/random-short-periods",
            "Periods of milliseconds, with the clock stepping back over several, are answered as by the model.",
            Shape { periods: (10_000, 900_000), changes: true, ..base },
        ),
        shape(
            "same-decisions/random-long-periods",
            "Periods of weeks to years are answered as by the model.",
            Shape { periods: (86_400_000_000, 300 * 86_400_000_000), changes: true, ..base },
        ),
        shape(
            "same-decisions/random-large-numbers",
            "Quotas near the largest are answered as by the model, without a rounded unit.",
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
    shape.steps_back &= promises.time == Time::Caller;
    if promises.decisions == Decisions::Conservative {
        shape.batch = 1; // slices of one batch are each other's contention
        shape.conservative = true;
    }
    let mut seeds = bench.random();
    let goal = bench.suite.random.div_ceil(CASES);
    let mut compared = Compared::default();
    let mut number = 0;
    while compared.claims < goal {
        let seed = seeds.bits();
        let Compared { claims, conservative } =
            sequence(&bench.store, shape, seed, number, bench.suite.seed).await?;
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

async fn sequence(store: &Handle, shape: Shape, seed: u64, number: u64, run: u64) -> CaseResult<Compared> {
    let steps = steps(shape, seed)?;
    let mut tries = 0;
    loop {
        let began = tokio::time::Instant::now();
        // Each try has keys of its own, so that the store has never seen them.
        let keys = format!("{number}.{tries}");
        tries += 1;
        match replay(shape, store, &steps, &keys).await? {
            Ended::Same(compared) => return Ok(compared),
            _ if began.elapsed() > SHORT && tries < TRIES => {}
            Ended::Differs(difference) => {
                let shrink = Shrink { shape, store, keys, short: SHORT, steps, difference };
                let told = shrink.told().await?;
                return Err(Failure::new(format!("sequence {number} of --seed {run}, {told}")));
            }
            Ended::Meaningless => return Err(Failure::new("the sequence steps back too far")),
        }
    }
}
