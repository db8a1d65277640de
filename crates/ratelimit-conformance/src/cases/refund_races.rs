//! Refunds of meters that are not there, while these are charged for the first time.

use ratelimit_core::{Limit, ManualClock, RateLimiter, Request};
use std::sync::Arc;

use super::contended::{admitted, done, on_several_keys};
use crate::bench::{Bench, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure};
use crate::kind::Kind;
use crate::subject::Handle;

/// Rounds of a case. Each has new keys.
const ROUNDS: usize = 60;

/// Keys of a refund. While the store is at one of them, others are charged.
const KEYS: usize = 2;

/// Tasks: one refunds, the others charge.
const TASKS: usize = 8;

/// How often each of the others charges each key.
const CHARGES: usize = 4;

/// Far more units than are charged.
const QUOTA: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    let cases = Case::for_each(
        &Kind::METERS,
        "refunds/next-to-first-charges",
        "A refund of meters that were reset loses none of the units that are charged at the same time.",
        next_to_first_charges,
    );
    cases.into_iter().map(|case| case.needs(Need::OneCount)).collect()
}

fn limiter(handle: Handle, limit: Limit) -> RateLimiter<Handle, ManualClock> {
    RateLimiter::new(handle, limit).with_clock(ManualClock::at(START))
}

async fn next_to_first_charges(bench: Bench, kind: Kind) -> CaseResult {
    let handles = bench.handles(4).await?;
    let promises = bench.promises();
    let limit = kind.limit(QUOTA, HOUR)?;
    let first = limiter(bench.store.clone(), limit.clone());
    for round in 0..ROUNDS {
        let keys: Arc<[String]> = (0..KEYS).map(|number| format!("{round}.{number}")).collect();
        let [one, others @ ..] = &keys[..] else { return Ok(()) };
        let all = others.iter().fold(Request::new(one), |request, key| request.and(key));
        let charged = first.check(&all).await?;
        first.reset(&all).await?;
        let charged = Arc::new(charged.into_owned());
        let taken = storm(&handles, TASKS, |handle, task| {
            let (limiter, keys, charged) = (limiter(handle, limit.clone()), keys.clone(), charged.clone());
            async move {
                let mut taken = [0; KEYS];
                if task == 0 {
                    done(on_several_keys(promises), || limiter.refund(&charged)).await??;
                    return Ok(taken);
                }
                // Each task begins with another key.
                for place in (0..KEYS * CHARGES).map(|number| (number + task) % KEYS) {
                    taken[place] += u64::from(admitted(promises, limiter.check(&keys[place]).await)?);
                }
                Ok(taken)
            }
        });
        let taken = taken.await?;
        for (place, key) in keys.iter().enumerate() {
            let admitted: u64 = taken.iter().map(|task| task[place]).sum();
            let left = first.peek(key).await?.remaining();
            // The refund may have returned its unit of one of these.
            let least = QUOTA - admitted;
            ensure!(
                (least..=least + 1).contains(&left),
                "{left} of {QUOTA} are left after {admitted} were admitted, of which at most one was refunded"
            );
        }
    }
    Ok(())
}
