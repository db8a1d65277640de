//! Races on limits and meters beside the usual ones: other kinds, long keys, refunds of older units, refused slices.

use std::time::Duration;

use ratelimit_core::{Decision, Limit, Limits, Request};

use super::atomic::{exactly, exactly_on, still};
use super::contended::{admitted, done, on_several_keys};
use super::mirrored::after;
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, MINUTE, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

/// The number of handles that call concurrently.
const HANDLES: usize = 4;

/// Limits with more state than others, or with other turns.
const OTHERS: [&str; 3] =
    ["80/h precision 1min", "80/h strict precision 2min", "80/h queue burst 80 immediate 3"];

/// Limits under which units are charged and later refunded, limits under which others are charged concurrently, and the
/// time between both.
const REFUNDED: [(&str, &str, Duration); 5] = [
    ("1000/h burst 1000 name b", "2000/h burst 1000 name b", Duration::ZERO),
    ("1000/min name previous", "1000/min name previous", MINUTE),
    ("1000/min precision 10s name earlier", "1000/min precision 10s name earlier", Duration::from_secs(30)),
    ("1000 in total", "1000 in total", HOUR),
    ("1000/h from first request", "1000/h from first request", MINUTE),
];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "atomic/burst-on-other-kinds",
            "Many tasks are admitted exactly on windows of many segments, on queues with immediate units, and on long keys.",
            other_kinds,
        )
        .heavy(),
        Case::new(
            "atomic/refunds-of-older-units",
            "Refunds of units at another rate, of a previous window or of a total lose no unit that is charged concurrently.",
            older_units,
        )
        .needs(Need::OneCount),
        Case::new(
            "atomic/refused-slices-take-nothing",
            "Concurrent slices that are refused because of one key take no unit of another key, not even for a moment.",
            refused_slices,
        ),
    ]
}

async fn other_kinds(bench: Bench) -> CaseResult {
    for text in OTHERS {
        let burst = exactly(&bench, &limit(text)?.into(), START, 80).await;
        burst.map_err(|failure| after(text, failure))?;
    }
    for kind in Kind::METERS {
        for length in [300, 2_000] {
            let limits: Limits = kind.limit(80, HOUR)?.into();
            let burst = exactly_on(&bench, &limits, &vec![b'k'; length], START, 80).await;
            burst.map_err(|failure| after(&format!("{kind:?}, a key of {length} bytes"), failure))?;
        }
    }
    Ok(())
}

async fn older_units(bench: Bench) -> CaseResult {
    for (first, second, later) in REFUNDED {
        for round in 0..3 {
            let [first, second] = [limit(first)?, limit(second)?];
            let what = format!("round {round} of {first} and {second}");
            let raced = refund_older(&bench, format!("{round}"), [first, second], later).await;
            raced.map_err(|failure| after(&what, failure))?;
        }
    }
    Ok(())
}

/// Twenty tasks refund what was charged before, and twenty charge.
async fn refund_older(bench: &Bench, key: String, limits: [Limit; 2], later: Duration) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    let [first, second] = limits;
    let before = Trial::new(bench, first.clone()).key(&key);
    let mut charged: Vec<Decision<'static>> = Vec::new();
    for _ in 0..20 {
        charged.push(before.admit(5).await?);
    }
    let now = START + later;
    let after = before.under(second.clone());
    after.set(now).admit(1).await?;
    let taken = storm(&handles, 40, |handle, number| {
        let refunded = charged[number / 2].clone();
        let limit = if number.is_multiple_of(2) { first.clone() } else { second.clone() };
        let (limiter, key) = (still(handle, &limit.into(), now), key.clone());
        async move {
            if number.is_multiple_of(2) {
                done(promises, || limiter.refund(&refunded)).await??;
                return Ok(0);
            }
            let mut taken = 0;
            for _ in 0..5 {
                taken += u64::from(admitted(promises, limiter.check(&key).await)?);
                tokio::task::yield_now().await;
            }
            Ok(taken)
        }
    })
    .await?;
    let taken: u64 = taken.into_iter().sum();
    ensure_eq!(
        after.left().await?,
        999 - taken,
        "left of 1000 after {taken} and one, and refunds of the rest"
    );
    Ok(())
}

async fn refused_slices(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    for kind in Kind::METERS {
        let limits: Limits = kind.limit(20, HOUR)?.into();
        // A store may take the keys of a slice in their order.
        for (round, [free, full]) in [["a", "z"], ["z", "a"]].into_iter().cycle().take(6).enumerate() {
            let [free, full] = [free, full].map(|key| format!("{key}{round}"));
            let trial = Trial::new(&bench, limits.clone());
            trial.key(&full).admit(20).await?;
            trial.key(&free).admit(10).await?;
            let found = storm(&handles, 40, |handle, number| {
                let limiter = still(handle, &limits, START);
                let (free, full) = (free.clone(), full.clone());
                async move {
                    if number % 4 == 3 {
                        return admitted(promises, limiter.check(&free).await);
                    }
                    let both = limiter.check(Request::new(&free).and(&full)).await;
                    ensure!(
                        !admitted(on_several_keys(promises), both)?,
                        "a slice was admitted although one of its keys is full"
                    );
                    Ok(false)
                }
            })
            .await?;
            let taken = found.iter().filter(|admitted| **admitted).count() as u64;
            if promises.decisions.are_exact_on_one_node() {
                ensure_eq!(taken, 10, "admitted of ten that fit, beside slices that are refused, {kind:?}");
            }
            ensure_eq!(
                trial.key(&free).left().await?,
                10 - taken,
                "left of the key that is not full, {kind:?}"
            );
        }
    }
    Ok(())
}
