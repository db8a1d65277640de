//! Calls that write nothing leave nothing, whatever the handle remembers.

use ratelimit_core::Limit;
use ratelimit_core::store::{Decisions, Mode, Receipt};

use super::mirrored::{Mirrored, Part, Slice, after};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::DAYS;
use crate::failure::{CaseResult, ensure_eq};
use crate::subject::Handle;

/// What the first handle does after another one has reset the meter.
const DONE: [Done; 9] = [
    Done::Peek,
    Done::Zero,
    Done::RefusedAlone,
    Done::RefusedFirst,
    Done::RefusedLast,
    Done::RefusedInBatch,
    Done::Refund,
    Done::RefundOfTwo,
    Done::Reset,
];

#[derive(Clone, Copy, Debug)]
enum Done {
    Peek,
    Zero,
    RefusedAlone,
    RefusedFirst,
    RefusedLast,
    RefusedInBatch,
    Refund,
    RefundOfTwo,
    Reset,
}

impl Done {
    /// Whether claims of several meters are refused together.
    fn is_refused_slice(self) -> bool {
        matches!(self, Self::RefusedFirst | Self::RefusedLast | Self::RefusedInBatch)
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "memory/nothing-is-left-behind",
            "A handle that knows a meter which another one has reset stores nothing for it with a refused slice, a refund, a peek, \
             a cost of zero or a reset. A conservative store may keep an empty meter after a refused slice, for its time.",
            |bench| nothing_left(bench, true),
        )
        .any_time(),
        Case::new(
            "memory/nothing-is-left-of-unknown-meters",
            "The same calls on meters that were never charged.",
            |bench| nothing_left(bench, false),
        )
        .any_time(),
    ]
}

async fn nothing_left(bench: Bench, known: bool) -> CaseResult {
    ensure_eq!(bench.meters().await?, 0, "meters in a fresh space");
    let other = bench.open().await?;
    let full = Part::new(&limit("1/3000d fixed name full")?, "k", 1);
    let mut mirrored = Mirrored::new(&bench);
    mirrored.claim(Mode::Charge, std::slice::from_ref(&full)).await?;
    let before = bench.meters().await?;
    let mut empty = Empty { bench, other, full, known, before, mirrored };
    for kind in empty.bench.kinds() {
        let limit = kind.limit(5, DAYS)?;
        let together = empty.after(&limit, &DONE, "").await;
        let Err(failure) = together.map_err(|failure| after(&format!("{DONE:?}, {kind:?}"), failure)) else {
            continue;
        };
        // Which of them was it?
        for done in DONE {
            empty.before = empty.bench.meters().await?;
            let alone = empty.after(&limit, &[done], "alone").await;
            alone.map_err(|failure| after(&format!("{done:?}, {kind:?}"), failure))?;
        }
        return Err(failure);
    }
    Ok(())
}

/// A space in which only `full` is charged.
struct Empty {
    bench: Bench,
    /// A handle that resets what the first one knows.
    other: Handle,
    full: Part,
    /// Whether the first handle knows the meters.
    known: bool,
    /// The number of meters.
    before: u64,
    mirrored: Mirrored,
}

impl Empty {
    /// Does each of these on a key of its own, and then counts the meters: to list them takes long on some servers.
    async fn after(&mut self, limit: &Limit, all: &[Done], round: &str) -> CaseResult {
        let Self { bench, other, full, known, before, mirrored } = self;
        let part = |done: &Done| Part::new(limit, format!("{done:?}{round}"), 0);
        let parts: Vec<Part> = all.iter().map(part).collect();
        let mut receipts = vec![Receipt::at(mirrored.now()); parts.len()];
        if *known {
            for (part, receipt) in parts.iter().zip(&mut receipts) {
                let charged = mirrored.on(&bench.store).claim(Mode::Charge, &[part.of(2)]).await?;
                *receipt = charged.verdicts[0].receipt;
                mirrored.claim(Mode::Peek, &[part.of(1)]).await?;
                mirrored.on(other).reset(std::slice::from_ref(part)).await?;
            }
            ensure_eq!(bench.meters().await?, *before, "meters after the others were reset");
        }
        mirrored.on(&bench.store);
        for ((done, part), receipt) in all.iter().zip(&parts).zip(receipts) {
            let made = make(mirrored, *done, part, full, receipt).await;
            made.map_err(|failure| after(&format!("{done:?}"), failure))?;
            if bench.promises().decisions == Decisions::Conservative && done.is_refused_slice() {
                // It reserves units before it knows the others, and may keep the empty meter for its time.
                mirrored.reset(std::slice::from_ref(part)).await?;
            }
        }
        ensure_eq!(bench.meters().await?, *before, "meters after calls that write nothing");
        mirrored.stands(&parts, "calls that write nothing").await
    }
}

async fn make(mirrored: &mut Mirrored, done: Done, part: &Part, full: &Part, receipt: Receipt) -> CaseResult {
    let slice = |parts: Vec<Part>| Slice { now: mirrored.now(), mode: Mode::Charge, parts };
    match done {
        Done::Peek => drop(mirrored.claim(Mode::Peek, &[part.of(1), full.of(0)]).await?),
        Done::Zero => drop(mirrored.claim(Mode::Charge, &[part.of(0)]).await?),
        Done::RefusedAlone => drop(mirrored.claim(Mode::Charge, &[part.of(6)]).await?),
        Done::RefusedFirst => drop(mirrored.claim(Mode::Charge, &[full.clone(), part.of(1)]).await?),
        Done::RefusedLast => drop(mirrored.claim(Mode::Charge, &[part.of(1), full.clone()]).await?),
        Done::RefusedInBatch => {
            let slices = [slice(vec![part.of(1), full.clone()]), slice(vec![full.clone(), part.of(1)])];
            mirrored.many(&slices).await?;
        }
        Done::Refund => drop(mirrored.refund(&[(part.of(2), receipt)]).await?),
        Done::RefundOfTwo => {
            let second = Part { key: [&part.key[..], b" second"].concat(), ..part.clone() };
            mirrored.refund(&[(part.of(1), receipt), (second.of(1), receipt)]).await?;
        }
        Done::Reset => mirrored.reset(std::slice::from_ref(part)).await?,
    }
    Ok(())
}
