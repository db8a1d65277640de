//! Concurrent calls on the same keys in opposite orders all end, and no charge is lost.

use ratelimit_core::Limit;
use ratelimit_core::store::{MAX_CLAIMS, Mode};

use super::contended::may_contend;
use super::mirrored::{Part, Slice, after, forget, give_back, promises_with, put, put_many};
use crate::bench::{Bench, limit, storm};
use crate::case::Case;
use crate::clock::START;
use crate::failure::{CaseResult, ensure};
use crate::in_time::in_time;
use crate::subject::Handle;

/// The concurrent calls, and the suffix of a case's name.
const CALLS: [(Call, &str); 7] = [
    (Call::Slices, "slices"),
    (Call::Forced, "forced-slices"),
    (Call::Batches, "batches"),
    (Call::BatchesOfSlices, "batches-of-slices"),
    (Call::Refunds, "refunds"),
    (Call::Resets, "resets"),
    (Call::Everything, "everything"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Slices,
    Forced,
    Batches,
    BatchesOfSlices,
    Refunds,
    Resets,
    Everything,
}

/// How many keys a call has, and how many tasks make calls at once. Stores handle small calls in another way than large ones, from
/// some number between these on.
const SIZES: [(usize, usize); 4] = [(4, 64), (9, 16), (26, 12), (64, 8)];

/// The same for batches, each of whose slices has a key of its own.
const BATCHES: [(usize, usize); 1] = [(300, 6)];

/// Units of each key that all others are charged next to.
const OTHERS: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    let case = |(call, name)| {
        Case::new(
            format!("deadlocks/{name}-in-opposite-orders"),
            "Calls on 4 to 64 keys, or batches of up to 300, in opposite orders all end. Charges and refunds add up; after \
             concurrent resets, one more leaves nothing.",
            move |bench| opposite(bench, call),
        )
        .any_time()
        .heavy()
    };
    CALLS.into_iter().map(case).collect()
}

impl Call {
    /// How many keys a call has, and how many tasks make calls at once.
    fn sizes(self) -> Vec<(usize, usize)> {
        let more: &[(usize, usize)] = if self == Self::Batches { &BATCHES } else { &[] };
        [&SIZES[..], more].concat()
    }
}

/// The keys in an order that depends on the task.
fn parts(limit: &Limit, size: usize, number: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = (0..size).map(|key| Part::new(limit, format!("{size}.{key}"), 1)).collect();
    parts.rotate_left(number % size);
    if number.is_multiple_of(2) {
        parts.reverse();
    }
    parts
}

async fn opposite(bench: Bench, call: Call) -> CaseResult {
    for (size, tasks) in call.sizes() {
        if size > MAX_CLAIMS && !bench.space.sends_together() {
            continue;
        }
        let done = of_size(&bench, call, size, tasks).await;
        done.map_err(|failure| after(&format!("{call:?} of {size} keys by {tasks} tasks at once"), failure))?;
    }
    Ok(())
}

async fn of_size(bench: &Bench, call: Call, size: usize, tasks: usize) -> CaseResult {
    let handles = bench.handles(4).await?;
    // Enough that nothing is refused.
    for limit in [limit("100000/3000d")?, limit("5000/3000d burst 5000")?, limit("5000/3000d log")?] {
        // Units that are never refunded: too many refunds would return these.
        for part in parts(&limit, size, 0) {
            put(&bench.store, START, Mode::Charge, &[part.of(OTHERS)]).await??;
        }
        let calls = storm(&handles, tasks, |handle, number| {
            let limit = limit.clone();
            async move { one(&handle, call, &limit, (size, number)).await }
        });
        calls.await?;
        let (all, what) = if matches!(call, Call::Resets | Call::Everything) {
            // Resets have removed charges of others.
            forget(&bench.store, START, &parts(&limit, size, 0)).await??;
            (limit.burst(), "all was reset".to_owned())
        } else {
            (limit.burst() - OTHERS, format!("all but {OTHERS} was given back"))
        };
        for part in parts(&limit, size, 1) {
            let peeked = put(&bench.store, START, Mode::Peek, &[part.of(0)]).await??;
            let left = peeked.verdicts[0].remaining;
            ensure!(left == all, "{left} are left after {what}, not {all}, {limit}");
        }
    }
    Ok(())
}

/// Charges one unit of each key a few times, and refunds all of them.
async fn one(handle: &Handle, call: Call, limit: &Limit, (size, number): (usize, usize)) -> CaseResult {
    let mode = if call == Call::Forced { Mode::Force } else { Mode::Charge };
    for round in 0..if size > 4 { 2 } else { 3 } {
        let parts = parts(limit, size, number + round);
        let slice = |parts: &[Part]| Slice { now: START, mode, parts: parts.to_vec() };
        let half = size / 2;
        let slices = match call {
            Call::Batches => parts.iter().map(|part| slice(std::slice::from_ref(part))).collect(),
            Call::BatchesOfSlices => vec![slice(&parts[..half]), slice(&parts[half..]), slice(&parts)],
            Call::Everything if number.is_multiple_of(3) => vec![slice(&parts), slice(&parts[1..])],
            _ => vec![slice(&parts)],
        };
        let answers = if let [only] = slices.as_slice() {
            vec![put(handle, START, mode, &only.parts).await?]
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
        // So that others come in between in a store that does not wait, too: a charge that was lost shows only then.
        tokio::task::yield_now().await;
        if call == Call::Resets || (call == Call::Everything && number.is_multiple_of(5)) {
            forget(handle, START, &parts).await??;
        }
        charged.reverse();
        give_back(handle, START, &charged).await??;
    }
    Ok(())
}
