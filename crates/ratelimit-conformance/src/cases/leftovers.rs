//! Calls that write nothing leave nothing, whatever the handle remembers.

use ratelimit_core::{Decisions, Mode, Timestamp};

use super::beside::{Beside, Part, Slice, after};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::DAYS;
use crate::failure::{CaseResult, ensure_eq};

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
    let mut beside = Beside::new(&bench);
    beside.claim(Mode::Charge, std::slice::from_ref(&full)).await?;
    let before = bench.meters().await?;
    for kind in bench.kinds() {
        let limit = kind.limit(5, DAYS)?;
        for done in DONE {
            let what = format!("{done:?}, {kind:?}");
            let part = Part::new(&limit, format!("{done:?}"), 0);
            let mut receipt = beside.now();
            if known {
                let charged = beside.on(&bench.store).claim(Mode::Charge, &[part.of(2)]).await?;
                receipt = charged.verdicts[0].receipt;
                beside.claim(Mode::Peek, &[part.of(1)]).await?;
                beside.on(&other).reset(std::slice::from_ref(&part)).await?;
                ensure_eq!(bench.meters().await?, before, "meters after the reset before {what}");
            }
            beside.on(&bench.store);
            let made = make(&mut beside, done, &part, &full, receipt).await;
            made.map_err(|failure| after(&what, failure))?;
            if bench.promises().decisions == Decisions::Conservative && done.is_refused_slice() {
                // It reserves units before it knows the others, and may keep the empty meter for its time.
                beside.reset(std::slice::from_ref(&part)).await?;
            }
            ensure_eq!(bench.meters().await?, before, "meters after {what}, which writes nothing");
            beside.stands(std::slice::from_ref(&part), &what).await?;
        }
    }
    Ok(())
}

async fn make(beside: &mut Beside, done: Done, part: &Part, full: &Part, receipt: Timestamp) -> CaseResult {
    let slice = |parts: Vec<Part>| Slice { now: beside.now(), mode: Mode::Charge, parts };
    match done {
        Done::Peek => drop(beside.claim(Mode::Peek, &[part.of(1), full.of(0)]).await?),
        Done::Zero => drop(beside.claim(Mode::Charge, &[part.of(0)]).await?),
        Done::RefusedAlone => drop(beside.claim(Mode::Charge, &[part.of(6)]).await?),
        Done::RefusedFirst => drop(beside.claim(Mode::Charge, &[full.clone(), part.of(1)]).await?),
        Done::RefusedLast => drop(beside.claim(Mode::Charge, &[part.of(1), full.clone()]).await?),
        Done::RefusedInBatch => {
            let slices = [slice(vec![part.of(1), full.clone()]), slice(vec![full.clone(), part.of(1)])];
            beside.many(&slices).await?;
        }
        Done::Refund => drop(beside.refund(&[(part.of(2), receipt)]).await?),
        Done::RefundOfTwo => {
            let second = Part { key: [&part.key[..], b" second"].concat(), ..part.clone() };
            beside.refund(&[(part.of(1), receipt), (second.of(1), receipt)]).await?;
        }
        Done::Reset => beside.reset(std::slice::from_ref(part)).await?,
    }
    Ok(())
}
