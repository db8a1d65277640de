//! Logs of thousands of different instants are kept in full.

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::store::Mode;

use super::mirrored::{Mirrored, Part, Slice};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{START, TICK};
use crate::failure::{CaseResult, ensure_eq};

/// Units of the log, each at an instant of its own.
const UNITS: u64 = 2_100;

/// Units of logs whose instants differ in their last digits, and how far these are apart.
const CLOSE: [(u64, Duration); 4] = [
    (40, Duration::from_nanos(1)),
    (150, Duration::from_nanos(999)),
    (700, Duration::from_nanos(1_001)),
    (1_500, Duration::from_nanos(1_000_001)),
];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "logs/thousands-of-instants",
            "A log of 2,100 units, each at its own instant, keeps all of them and expires each at its time.",
            thousands,
        ),
        Case::new(
            "logs/every-nanosecond",
            "Logs of 40 to 1,500 units that are nanoseconds apart keep each instant as it is: no unit leaves early or late, and a \
             refund returns the units of its own instant only.",
            every_nanosecond,
        ),
    ]
}

async fn every_nanosecond(bench: Bench) -> CaseResult {
    for (units, apart) in CLOSE {
        for text in ["{units}/h log", "{units} at once lease 1h"] {
            let part =
                Part::new(&limit(&text.replace("{units}", &units.to_string()))?, format!("{apart:?}"), 1);
            let begin = START + Duration::from_nanos(123_456_789);
            let at = |unit: u64| begin + apart * u32::try_from(unit).unwrap_or(u32::MAX);
            let slice = |unit: u64| Slice { now: at(unit), mode: Mode::Charge, parts: vec![part.clone()] };
            let mut mirrored = Mirrored::new(&bench);
            let mut receipts = Vec::new();
            for first in (0..units).step_by(100) {
                let batch: Vec<Slice> = (first..units.min(first + 100)).map(slice).collect();
                receipts.extend(mirrored.many(&batch).await?.iter().map(|answer| answer.verdicts[0].receipt));
            }
            mirrored.set(at(units)).stands(std::slice::from_ref(&part), "all units").await?;
            let middle = usize::try_from(units / 2).unwrap_or(0);
            for _ in 0..2 {
                // The second finds nothing of that instant.
                mirrored.refund(&[(part.of(1), receipts[middle])]).await?;
                mirrored.stands(std::slice::from_ref(&part), "a refund of the unit in the middle").await?;
            }
            for unit in [0, 1, units / 2, units / 2 + 1, units - 1] {
                let leaves = at(unit) + Duration::from_secs(3_600);
                for (now, when) in [(leaves, "was an hour ago"), (leaves + TICK, "has gone")] {
                    mirrored
                        .set(now)
                        .stands(std::slice::from_ref(&part), &format!("unit {unit} {when}"))
                        .await?;
                }
            }
        }
    }
    Ok(())
}

async fn thousands(bench: Bench) -> CaseResult {
    let part = Part::new(&limit(&format!("{UNITS}/h log"))?, "k", 1);
    let at = |unit: u64| START + Duration::from_millis(unit);
    let slice = |now: Timestamp| Slice { now, mode: Mode::Charge, parts: vec![part.clone()] };
    let mut mirrored = Mirrored::new(&bench);
    let mut receipts = Vec::new();
    for first in (0..UNITS).step_by(100) {
        let batch: Vec<Slice> = (first..first + 100).map(|unit| slice(at(unit))).collect();
        receipts.extend(mirrored.many(&batch).await?.iter().map(|answer| answer.verdicts[0].receipt));
    }
    let refused = mirrored.set(at(UNITS)).claim(Mode::Charge, std::slice::from_ref(&part)).await?;
    ensure_eq!(refused.admitted, false, "whether one more than {UNITS} was admitted");
    for unit in [0, 1_000, 1_024, 2_048] {
        mirrored.refund(&[(part.of(1), receipts[unit])]).await?;
    }
    mirrored.stands(std::slice::from_ref(&part), "four refunds").await?;
    // An hour after the first thousand, and after most of the others.
    for unit in [999, 1_000, 1_999, UNITS - 1] {
        mirrored.set(at(unit) + Duration::from_secs(3_600));
        mirrored.stands(std::slice::from_ref(&part), &format!("unit {unit} was an hour ago")).await?;
        mirrored.set(mirrored.now() + Duration::from_nanos(1));
        mirrored.stands(std::slice::from_ref(&part), &format!("unit {unit} has gone")).await?;
    }
    Ok(())
}
