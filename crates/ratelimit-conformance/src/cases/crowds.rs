//! Hundreds of calls at once, on hundreds of keys and on one.

use ratelimit_core::Limits;
use ratelimit_core::store::{Decisions, Mode};

use super::atomic::{HANDLES, still};
use super::contended::admitted;
use super::mirrored::{Part, give_back, put};
use crate::bench::{Bench, limit, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::random::Random;

/// Calls at once on one key: more than stores usually keep in a queue, a pool or a batch.
const CALLS: usize = 600;

/// Units that others hold, so that a refund that happens twice is seen.
const OTHERS: u64 = 700;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("atomic/many-keys", "Hundreds of keys at once are each admitted exactly.", many_keys)
            .heavy(),
        Case::new(
            "atomic/hundreds-at-once",
            "Six hundred claims, forced charges and peeks at once on one key, through one handle and through four, and then as \
             many refunds: all units are counted, and none comes back twice.",
            hundreds,
        )
        .needs(Need::ExactPerKey)
        .heavy(),
    ]
}

async fn many_keys(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    let limits: Limits = limit("2/h burst 2")?.into();
    let mut order: Vec<usize> = (0..300 * HANDLES).collect();
    let mut random = Random::new(bench.seed);
    for last in (1..order.len()).rev() {
        order.swap(last, random.place(last + 1));
    }
    let found = storm(&handles, order.len(), |handle, number| {
        let limiter = still(handle, &limits, START);
        let key = order[number] % 300;
        async move { Ok((key, admitted(promises, limiter.check(&format!("user:{key}")).await)?)) }
    })
    .await?;
    let mut counts = [0_u64; 300];
    found.iter().for_each(|(key, admitted)| counts[*key] += u64::from(*admitted));
    for (key, count) in counts.iter().enumerate() {
        ensure!(*count <= 2, "{count} of four were admitted for key {key} by a limit of 2");
        if promises.decisions != Decisions::Conservative {
            ensure_eq!(*count, 2, "of four admitted for key {key}");
        }
    }
    Ok(())
}

async fn hundreds(bench: Bench) -> CaseResult {
    for kind in Kind::METERS {
        for handles in [1, HANDLES] {
            let part = Part::new(&kind.limit(5_000, HOUR)?, format!("{handles} handles"), 0);
            put(&bench.store, START, Mode::Charge, &[part.of(OTHERS)]).await??;
            let handles = bench.handles(handles).await?;
            let charged = storm(&handles, CALLS, |handle, number| {
                let (part, mode) = (part.of(1), [Mode::Charge, Mode::Force, Mode::Peek][number % 3]);
                async move {
                    let answer = put(&handle, START, mode, std::slice::from_ref(&part)).await??;
                    ensure!(
                        answer.admitted,
                        "{mode:?} of a unit was refused where thousands are left: {answer:?}"
                    );
                    Ok(answer.charged.then(|| answer.verdicts[0].receipt))
                }
            })
            .await?;
            let receipts: Vec<_> = charged.into_iter().flatten().collect();
            let what = format!("of {CALLS} calls at once through {} handles, {kind:?}", handles.len());
            let left = |bench: Bench, part: Part| async move {
                CaseResult::Ok(put(&bench.store, START, Mode::Peek, &[part]).await??.verdicts[0].remaining)
            };
            let after = 5_000 - OTHERS - receipts.len() as u64;
            ensure_eq!(
                left(bench.clone(), part.clone()).await?,
                after,
                "left of 5000 after the charges {what}"
            );
            let refunds = receipts.len();
            storm(&handles, refunds, |handle, number| {
                let refund = [(part.of(1), receipts[number])];
                async move { Ok(give_back(&handle, START, &refund).await??) }
            })
            .await?;
            let all = 5_000 - OTHERS;
            ensure_eq!(
                left(bench.clone(), part.clone()).await?,
                all,
                "left of 5000 after {refunds} refunds {what}"
            );
        }
    }
    Ok(())
}
