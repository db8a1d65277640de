//! Batches of hundreds of slices, on one key and on many, in all modes.

use ratelimit_core::store::Mode;

use super::mirrored::{Mirrored, Part, Slice, after};
use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::clock::{DAYS, START};
use crate::failure::{CaseResult, ensure_eq};
use crate::kind::Kind;
use crate::random::Random;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "batches/hundreds-on-one-key",
        "Three hundred charges, forced charges and peeks on one key in a batch get the answers of the model.",
        on_one_key,
    );
    cases.extend(Case::for_each(
        &Kind::ALL,
        "batches/hundreds-of-keys",
        "A hundred keys in one batch, twice: answers and states are those of the model.",
        of_keys,
    ));
    cases.extend([
        Case::new(
            "batches/thousands-on-one-key",
            "Five thousand slices on one key in one batch: each sees the charges before it.",
            thousands,
        )
        .heavy(),
        Case::new(
            "batches/hundreds-of-slices",
            "Four hundred slices of several limits and keys, in all modes, get the answers of the model.",
            of_slices,
        ),
        Case::new(
            "batches/refused-among-hundreds",
            "A refusal at any position of a batch changes no later answer.",
            refused,
        ),
    ]);
    cases.into_iter().map(|case| case.any_time().needs(Need::ExactPerKey)).collect()
}

fn mode(random: &mut Random) -> Mode {
    match random.below(8) {
        0 => Mode::Peek,
        1 => Mode::Force,
        _ => Mode::Charge,
    }
}

async fn on_one_key(bench: Bench, kind: Kind) -> CaseResult {
    let mut random = bench.random();
    let part = Part::new(&kind.limit(500, DAYS)?, "k", 0);
    let mut slices = Vec::new();
    for _ in 0..300 {
        let cost = [0, 1, 1, 2, 3, 7, 60][random.place(7)];
        slices.push(Slice { now: START, mode: mode(&mut random), parts: vec![part.of(cost)] });
    }
    let mut mirrored = Mirrored::new(&bench);
    mirrored.many(&slices).await?;
    mirrored.stands(&[part], "three hundred slices in one batch").await
}

async fn of_keys(bench: Bench, kind: Kind) -> CaseResult {
    let limit = kind.limit(10, DAYS)?;
    let parts: Vec<Part> = (0..100).map(|key| Part::new(&limit, format!("{key}"), 0)).collect();
    let mut mirrored = Mirrored::new(&bench);
    for round in 0..2 {
        let cost = |key: usize| [1, 4, 7, 0][(key + round) % 4];
        let slice = |(key, part): (usize, &Part)| Slice {
            now: START,
            mode: Mode::Charge,
            parts: vec![part.of(cost(key))],
        };
        mirrored.many(&parts.iter().enumerate().map(slice).collect::<Vec<_>>()).await?;
        mirrored.stands(&parts, "a hundred keys in one batch").await?;
    }
    Ok(())
}

async fn thousands(bench: Bench) -> CaseResult {
    bench.sends_together()?;
    let part = Part::new(&"6000/3000d".parse()?, "k", 1);
    let slices = vec![Slice { now: START, mode: Mode::Charge, parts: vec![part.clone()] }; 5_000];
    let mut mirrored = Mirrored::new(&bench);
    let answers = mirrored.on(&bench.patient().await?).many(&slices).await?;
    ensure_eq!(answers.iter().filter(|answer| answer.admitted).count(), 5_000, "admitted of 5,000");
    mirrored.stands(&[part], "five thousand slices in one batch").await
}

async fn of_slices(bench: Bench) -> CaseResult {
    let mut random = bench.random();
    let limits: Vec<_> = bench.kinds().iter().map(|kind| kind.limit(30, DAYS)).collect::<Result<_, _>>()?;
    let mut slices = Vec::new();
    for _ in 0..400 {
        let (first, keys) = (random.place(limits.len()), random.between(1, 2));
        let key = random.below(12);
        let mut parts = Vec::new();
        for limit in limits.iter().cycle().skip(first).take(1 + random.place(3)) {
            parts.extend((0..keys).map(|next| Part::new(limit, format!("{}", key + next), random.below(4))));
        }
        slices.push(Slice { now: START, mode: mode(&mut random), parts });
    }
    let mut mirrored = Mirrored::new(&bench);
    mirrored.many(&slices).await?;
    let meters = limits.iter().flat_map(|limit| (0..13).map(|key| Part::new(limit, format!("{key}"), 0)));
    mirrored.stands(&meters.collect::<Vec<_>>(), "four hundred slices in one batch").await
}

async fn refused(bench: Bench) -> CaseResult {
    let limit = "5/3000d log".parse()?;
    for place in [0, 1, 99, 198, 199] {
        let mut slices = Vec::new();
        for number in 0..200 {
            let cost = if number == place { 6 } else { 1 };
            let part = Part::new(&limit, format!("{place} {}", number % 100), cost);
            slices.push(Slice { now: START, mode: Mode::Charge, parts: vec![part] });
        }
        let answered = Mirrored::new(&bench).many(&slices).await;
        let answers = answered.map_err(|failure| after(&format!("a refusal in place {place}"), failure))?;
        for (number, answer) in answers.iter().enumerate() {
            ensure_eq!(answer.admitted, number != place, "whether slice {number} was admitted");
        }
    }
    Ok(())
}
