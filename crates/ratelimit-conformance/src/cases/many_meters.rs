//! Tens of thousands of meters are distinct, and none is evicted.

use std::time::Duration;

use ratelimit_core::Limit;
use ratelimit_core::store::{MAX_CLAIMS, Mode};

use super::mirrored::{Part, Slice, forget, put_many};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::START;
use crate::failure::{CaseResult, ensure};
use crate::subject::Handle;

pub(super) fn cases() -> Vec<Case> {
    let case = Case::new(
        "names/tens-of-thousands",
        "At least 4,000 keys, 12,000 if they fit into twenty seconds, and 40,000 if they fit into two: no two are confused, and later keys evict none.",
        tens_of_thousands,
    );
    vec![case.any_time()]
}

async fn tens_of_thousands(bench: Bench) -> CaseResult {
    let one = limit("1/3000d fixed")?;
    let slice = |number: u64| {
        let part = Part::new(&one, format!("user:{number}"), 1);
        Slice { now: START, mode: Mode::Charge, parts: vec![part] }
    };
    let began = tokio::time::Instant::now();
    let mut keys = 0;
    let most = |elapsed: Duration| match elapsed.as_secs() {
        0..2 => 40_000,
        2..20 => 12_000,
        _ => 4_000,
    };
    while keys < most(began.elapsed()) {
        let batch: Vec<Slice> = (keys..keys + 500).map(slice).collect();
        for (number, answer) in (keys..).zip(put_many(&bench.store, &batch).await?) {
            ensure!(answer?.admitted, "the first claim on key {number} was refused");
        }
        keys += 500;
    }
    // All of the first meters, which a bounded store evicts first, and a sample of all.
    let again: Vec<u64> = (0..1_000).chain((1_000..keys).step_by(97)).collect();
    for numbers in again.chunks(500) {
        let batch: Vec<Slice> = numbers.iter().map(|number| slice(*number)).collect();
        for (number, answer) in numbers.iter().zip(put_many(&bench.store, &batch).await?) {
            ensure!(!answer?.admitted, "key {number} was forgotten after {keys} keys had been charged");
        }
    }
    clean_up(&bench.store, &one, keys).await
}

/// Resets all keys, because other cases on the same server count its meters.
async fn clean_up(store: &Handle, limit: &Limit, keys: u64) -> CaseResult {
    let numbers: Vec<u64> = (0..keys).collect();
    for numbers in numbers.chunks(MAX_CLAIMS) {
        let part = |number: &u64| Part::new(limit, format!("user:{number}"), 0);
        forget(store, START, &numbers.iter().map(part).collect::<Vec<_>>()).await??;
    }
    Ok(())
}
