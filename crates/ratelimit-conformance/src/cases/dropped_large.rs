//! Calls with many parts that are dropped: each slice takes effect in full or not at all, and nothing takes effect twice.

use ratelimit_core::store::{Mode, Receipt};

use super::contended::may_contend;
use super::dropped::cut;
use super::mirrored::{Part, Slice, after, forget, give_back, put, put_many};
use crate::bench::{Bench, limit};
use crate::case::{Case, Need};
use crate::clock::START;
use crate::failure::{CaseResult, ensure};
use crate::in_time::{in_time, settled};
use crate::subject::Handle;

/// The dropped calls, and the suffix of a case's name.
const CALLS: [(Call, &str); 6] = [
    (Call::Slice, "slices"),
    (Call::Forced, "forced-slices"),
    (Call::Batch, "batches"),
    (Call::BatchOfSlices, "batches-of-slices"),
    (Call::Refund, "refunds"),
    (Call::Reset, "resets"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Slice,
    Forced,
    Batch,
    BatchOfSlices,
    Refund,
    Reset,
}

/// The parts of a call. Stores handle large calls in another way than small ones: in pieces, of which the last has few parts, of 8
/// or of 25, or one way up to 16 or 50 and another beyond.
const SIZES: [usize; 3] = [9, 26, 64];

/// The same for batches of a part each.
const BATCHES: [usize; 1] = [300];

/// How often each call is made, each time on other meters and dropped at another point.
const CUTS: u64 = 10;

/// Units of each meter, those that are taken before, and those of the dropped call.
const UNITS: u64 = 50;
const BEFORE: u64 = 20;
const OF_CALL: u64 = 7;

pub(super) fn cases() -> Vec<Case> {
    let case = |(call, name)| {
        let case = Case::new(
            format!("dropped/large-{name}"),
            "A call with 9 to 64 parts, or a batch of up to 300, is dropped at any point: each slice takes effect once and in full, \
             or not at all, and all meters can be used after it.",
            move |bench| large(bench, call),
        );
        case.any_time().needs(Need::ExactPerKey)
    };
    CALLS.into_iter().map(case).collect()
}

async fn large(bench: Bench, call: Call) -> CaseResult {
    let more: &[usize] = if call == Call::Batch && bench.space.sends_together() { &BATCHES } else { &[] };
    for (text, sizes) in [("50/3000d", [&SIZES[..], more].concat()), ("50/3000d log", vec![9, 51])] {
        for size in sizes {
            let done = of_size(&bench, call, text, size).await;
            done.map_err(|failure| after(&format!("{call:?} of {size} parts were dropped"), failure))?;
        }
    }
    Ok(())
}

/// Meters of one key, so that a store that is exact for each key decides them together.
fn parts(text: &str, name: &str, size: usize) -> CaseResult<Vec<Part>> {
    let one =
        |number: usize| limit(&format!("{text} name l{number}")).map(|limit| Part::new(&limit, name, BEFORE));
    (0..size).map(one).collect()
}

async fn of_size(bench: &Bench, call: Call, text: &str, size: usize) -> CaseResult {
    let store = &bench.store;
    let mut all = Vec::new();
    for number in 0..CUTS {
        let parts = parts(text, &format!("{size} {number}"), size)?;
        let mut receipts: Vec<Receipt> = Vec::new();
        for some in parts.chunks(64) {
            let charged = put(store, START, Mode::Force, some).await??;
            receipts.extend(charged.verdicts.iter().map(|verdict| verdict.receipt));
        }
        cut(make(store, call, &parts, receipts), number).await;
        all.push(parts);
    }
    let flat: Vec<Part> = all.concat();
    settled(|| left_of(store, &flat)).await?;
    for parts in all {
        let left = left_of(store, &parts).await?;
        let after = match call {
            Call::Refund => UNITS - BEFORE + OF_CALL,
            Call::Reset => UNITS,
            _ => UNITS - BEFORE - OF_CALL,
        };
        let is_one = |left: &u64| [UNITS - BEFORE, after].contains(left);
        ensure!(left.iter().all(is_one), "{left:?} are left, and not {} or {after}", UNITS - BEFORE);
        // The slices of a batch of slices have nine parts each.
        let whole = match call {
            Call::Slice | Call::Forced => parts.len(),
            Call::BatchOfSlices => 9,
            _ => 1,
        };
        ensure!(
            left.chunks(whole).all(|slice| slice.iter().all(|left| *left == slice[0])),
            "{left:?} are left: a slice took effect in part"
        );
        for some in parts.chunks(64) {
            let one_each: Vec<Part> = some.iter().map(|part| part.of(1)).collect();
            let again = put(store, START, Mode::Force, &one_each).await??;
            let refunds: Vec<_> =
                some.iter().zip(&again.verdicts).map(|(part, one)| (part.of(1), one.receipt)).collect();
            give_back(store, START, &refunds).await??;
        }
        ensure!(left_of(store, &parts).await? == left, "a unit that was taken and refunded changed {left:?}");
    }
    Ok(())
}

async fn make(store: &Handle, call: Call, parts: &[Part], receipts: Vec<Receipt>) -> CaseResult {
    let of_call: Vec<Part> = parts.iter().map(|part| part.of(OF_CALL)).collect();
    let batch = |size: usize| -> Vec<Slice> {
        let slice = |parts: &[Part]| Slice { now: START, mode: Mode::Charge, parts: parts.to_vec() };
        of_call.chunks(size).map(slice).collect()
    };
    match call {
        Call::Slice => drop(put(store, START, Mode::Charge, &of_call).await?),
        Call::Forced => drop(put(store, START, Mode::Force, &of_call).await?),
        Call::Batch => drop(in_time("a batch", put_many(store, &batch(1))).await?),
        Call::BatchOfSlices => drop(in_time("a batch", put_many(store, &batch(9))).await?),
        Call::Refund => {
            let refunds: Vec<_> = of_call.into_iter().zip(receipts).collect();
            drop(give_back(store, START, &refunds).await?);
        }
        Call::Reset => {
            for some in parts.chunks(64) {
                drop(forget(store, START, some).await?);
            }
        }
    }
    Ok(())
}

/// What is left of each of these meters.
async fn left_of(store: &Handle, parts: &[Part]) -> CaseResult<Vec<u64>> {
    let mut left = Vec::new();
    for some in parts.chunks(100) {
        let peek = |part: &Part| Slice { now: START, mode: Mode::Peek, parts: vec![part.of(0)] };
        let peeks: Vec<Slice> = some.iter().map(peek).collect();
        for answer in in_time("a batch", put_many(store, &peeks)).await? {
            match answer {
                Err(error) if may_contend(store.dyn_promises(), &error) => left.push(u64::MAX),
                answer => left.push(answer?.verdicts[0].remaining),
            }
        }
    }
    Ok(left)
}
