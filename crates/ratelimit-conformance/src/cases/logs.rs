//! Logs of thousands of different instants are kept in full.

use std::time::Duration;

use ratelimit_core::{Mode, Timestamp};

use super::beside::{Beside, Part, Slice};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::START;
use crate::failure::{CaseResult, ensure_eq};

/// Units of the log, each at an instant of its own.
const UNITS: u64 = 2_100;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "logs/thousands-of-instants",
        "A log of 2,100 units, each at its own instant, keeps all of them and expires each at its time.",
        thousands,
    )]
}

async fn thousands(bench: Bench) -> CaseResult {
    let part = Part::new(&limit(&format!("{UNITS}/h log"))?, "k", 1);
    let at = |unit: u64| START + Duration::from_millis(unit);
    let slice = |now: Timestamp| Slice { now, mode: Mode::Charge, parts: vec![part.clone()] };
    let mut beside = Beside::new(&bench);
    let mut receipts = Vec::new();
    for first in (0..UNITS).step_by(100) {
        let batch: Vec<Slice> = (first..first + 100).map(|unit| slice(at(unit))).collect();
        receipts.extend(beside.many(&batch).await?.iter().map(|answer| answer.verdicts[0].receipt));
    }
    let refused = beside.set(at(UNITS)).claim(Mode::Charge, std::slice::from_ref(&part)).await?;
    ensure_eq!(refused.admitted, false, "whether one more than {UNITS} was admitted");
    for unit in [0, 1_000, 1_024, 2_048] {
        beside.refund(&[(part.of(1), receipts[unit])]).await?;
    }
    beside.stands(std::slice::from_ref(&part), "four refunds").await?;
    // An hour after the first thousand, and after most of the others.
    for unit in [999, 1_000, 1_999, UNITS - 1] {
        beside.set(at(unit) + Duration::from_secs(3_600));
        beside.stands(std::slice::from_ref(&part), &format!("unit {unit} was an hour ago")).await?;
        beside.set(beside.now() + Duration::from_nanos(1));
        beside.stands(std::slice::from_ref(&part), &format!("unit {unit} has gone")).await?;
    }
    Ok(())
}
