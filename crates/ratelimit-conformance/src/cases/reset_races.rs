//! Batches on several keys, one of which is reset meanwhile.

use ratelimit_core::{Limit, ManualClock, RateLimiter, Timestamp};
use std::sync::Arc;

use super::contended::admitted;
use super::mirrored::{Part, forget};
use crate::bench::{Bench, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::failure::{CaseResult, ensure};
use crate::kind::Kind;
use crate::subject::Handle;

/// Rounds of a case. Each has new keys.
const ROUNDS: usize = 30;

/// Batches of a round, one after another, and resets at the same time.
const BATCHES: usize = 8;

/// Far more units than are charged.
const QUOTA: u64 = 100;

pub(super) fn cases() -> Vec<Case> {
    let cases = Case::for_each(
        &Kind::METERS,
        "atomic/batches-next-to-resets",
        "A batch counts what it has admitted, even if one of its keys is reset at the same time.",
        batches_next_to_resets,
    );
    cases.into_iter().map(|case| case.needs(Need::OneCount)).collect()
}

fn limiter(handle: Handle, limit: Limit, now: Timestamp) -> RateLimiter<Handle, ManualClock> {
    RateLimiter::new(handle, limit).with_clock(ManualClock::at(now))
}

/// Each batch has a key that was charged just before, one that is new, and one that was charged an hour ago.
async fn batches_next_to_resets(bench: Bench, kind: Kind) -> CaseResult {
    let (handles, promises) = (bench.handles(2).await?, bench.promises());
    let limit = kind.limit(QUOTA, HOUR)?;
    let (earlier, now) = (START, START + HOUR);
    let before = limiter(bench.store.clone(), limit.clone(), earlier);
    let first = limiter(bench.store.clone(), limit.clone(), now);
    for round in 0..ROUNDS {
        let key = |kind: &str, number: usize| format!("{round}.{number}.{kind}");
        let batches: Arc<[[String; 3]]> =
            (0..BATCHES).map(|number| [key("known", 0), key("new", number), key("old", number)]).collect();
        first.check(&batches[0][0]).await?;
        for answer in before.check_many(batches.iter().map(|[_, _, old]| old)).await {
            answer?;
        }
        let found = storm(&handles, 2, |handle, task| {
            let (limiter, batches) = (limiter(handle.clone(), limit.clone(), now), batches.clone());
            let limit = limit.clone();
            async move {
                let mut taken = [1, 0];
                for batch in batches.iter() {
                    if task == 0 {
                        forget(&handle, now, &[Part::new(&limit, &batch[2], 0)]).await??;
                        continue;
                    }
                    for (place, answer) in limiter.check_many(batch).await.into_iter().take(2).enumerate() {
                        taken[place] += u64::from(admitted(promises, answer)?);
                    }
                }
                Ok(taken)
            }
        });
        // The task of the resets has taken nothing. Either may end first.
        let taken = found.await?.into_iter().max().unwrap_or_default();
        let known = first.peek(&batches[0][0]).await?.remaining();
        ensure!(
            known <= QUOTA - taken[0],
            "{known} of {QUOTA} are left of a key under which {} were admitted",
            taken[0]
        );
        let mut charged = 0;
        for [_, new, _] in batches.iter() {
            charged += QUOTA - first.peek(new).await?.remaining();
        }
        ensure!(
            charged >= taken[1],
            "{charged} units are counted under keys under which {} were admitted",
            taken[1]
        );
    }
    Ok(())
}
