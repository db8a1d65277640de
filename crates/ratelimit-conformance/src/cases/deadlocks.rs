//! Concurrent calls on the same keys in opposite orders all end, and no charge is lost.

use ratelimit_core::{Limit, Mode};

use super::beside::{Part, Slice, forget, give_back, promises_with, put, put_many};
use super::contended::may_contend;
use crate::bench::{Bench, limit, storm};
use crate::case::Case;
use crate::clock::START;
use crate::failure::{CaseResult, ensure};
use crate::in_time::in_time;
use crate::subject::Handle;

/// The concurrent calls, and the suffix of a case's name.
const CALLS: [(Call, &str); 6] = [
    (Call::Slices, "slices"),
    (Call::Batches, "batches"),
    (Call::BatchesOfSlices, "batches-of-slices"),
    (Call::Refunds, "refunds"),
    (Call::Resets, "resets"),
    (Call::Everything, "everything"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Slices,
    Batches,
    BatchesOfSlices,
    Refunds,
    Resets,
    Everything,
}

/// Units of each key that all others are charged next to.
const OTHERS: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    let case = |(call, name)| {
        Case::new(
            format!("deadlocks/{name}-in-opposite-orders"),
            "Calls on several keys in opposite orders all end. Charges and refunds add up; after concurrent resets, one more leaves \
             nothing.",
            move |bench| opposite(bench, call),
        )
        .any_time()
        .heavy()
    };
    CALLS.into_iter().map(case).collect()
}

/// The keys in an order that depends on the task.
fn parts(limit: &Limit, number: usize) -> Vec<Part> {
    let mut keys = ["a", "b", "c", "d"];
    keys.rotate_left(number % 4);
    if number.is_multiple_of(2) {
        keys.reverse();
    }
    keys.map(|key| Part::new(limit, key, 1)).into()
}

async fn opposite(bench: Bench, call: Call) -> CaseResult {
    let handles = bench.handles(4).await?;
    // Enough that nothing is refused.
    let limits = [limit("100000/3000d")?, limit("5000/3000d log")?];
    for limit in &limits {
        // Units that are never refunded: too many refunds would return these.
        for part in parts(limit, 0) {
            put(&bench.store, START, Mode::Charge, &[part.of(OTHERS)]).await??;
        }
        let calls = storm(&handles, 64, |handle, number| {
            let limit = limit.clone();
            async move { one(&handle, call, &limit, number).await }
        });
        calls.await?;
        let (all, what) = if matches!(call, Call::Resets | Call::Everything) {
            // Resets have removed charges of others.
            forget(&bench.store, START, &parts(limit, 0)).await??;
            (limit.burst(), "all was reset".to_owned())
        } else {
            (limit.burst() - OTHERS, format!("all but {OTHERS} was given back"))
        };
        for part in parts(limit, 1) {
            let peeked = put(&bench.store, START, Mode::Peek, &[part.of(0)]).await??;
            let left = peeked.verdicts[0].remaining;
            ensure!(left == all, "{left} are left after {what}, not {all}, {limit}");
        }
    }
    Ok(())
}

/// Charges one unit of each key three times, and refunds all of them.
async fn one(handle: &Handle, call: Call, limit: &Limit, number: usize) -> CaseResult {
    for round in 0..3 {
        let parts = parts(limit, number + round);
        let slice = |parts: &[Part]| Slice { now: START, mode: Mode::Charge, parts: parts.to_vec() };
        let slices = match call {
            Call::Batches => parts.iter().map(|part| slice(std::slice::from_ref(part))).collect(),
            Call::BatchesOfSlices => vec![slice(&parts[..2]), slice(&parts[2..]), slice(&parts)],
            Call::Everything if number.is_multiple_of(3) => vec![slice(&parts), slice(&parts[1..])],
            _ => vec![slice(&parts)],
        };
        let answers = if let [only] = slices.as_slice() {
            vec![put(handle, START, Mode::Charge, &only.parts).await?]
        } else {
            in_time("a batch", put_many(handle, &slices)).await?
        };
        let mut charged = Vec::new();
        for (slice, answer) in slices.iter().zip(answers) {
            let receipts: Vec<_> = match &answer {
                Ok(answer) if answer.charged => {
                    answer.verdicts.iter().map(|verdict| verdict.receipt).collect()
                }
                _ => Vec::new(),
            };
            let promises = promises_with(handle, &slice.parts);
            answer
                .map(drop)
                .or_else(|error| if may_contend(promises, &error) { Ok(()) } else { Err(error) })?;
            charged.extend(slice.parts.iter().cloned().zip(receipts));
        }
        if call == Call::Resets || (call == Call::Everything && number.is_multiple_of(5)) {
            forget(handle, START, &parts).await??;
        }
        charged.reverse();
        give_back(handle, START, &charged).await??;
    }
    Ok(())
}
