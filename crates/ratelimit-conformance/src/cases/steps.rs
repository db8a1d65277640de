//! Windows that begin with a key's first request, buckets that are refilled in steps, and totals.

use std::time::Duration;

use ratelimit_core::{Decision, Limits};

use super::atomic::exactly;
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::{HOUR, MINUTE, SECOND, START, TICK};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::trial::Trial;

const YEAR: Duration = Duration::from_secs(365 * 86_400);
pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(
            "steps/a-window-begins-with-the-first-request",
            "A window begins with the first request after the last one ended, and all of its units return at its end.",
            first_request,
        ),
        Case::new(
            "steps/uneven-windows",
            "Units that do not divide the window return exactly at its end as well.",
            uneven,
        ),
        Case::new(
            "steps/a-bucket-is-refilled-at-once",
            "A bucket gets the tokens of a step at its end, and none before, up to its burst.",
            refilled,
        ),
        Case::new(
            "steps/a-total-never-restarts",
            "A total stays used up for years, waiting does not help, and a larger quota adds to it.",
            total,
        ),
        Case::new(
            "steps/refunds",
            "A refund returns what has not drained, keeps the step while a part of its first request remains, and returns nothing after its end.",
            refunds,
        ),
        Case::new(
            "steps/a-refund-of-the-first-request",
            "If the request that began a step is refunded, the others stay as long as if the refund had begun it.",
            refund_of_the_first,
        ),
        Case::new(
            "steps/forced-charges-outlast-a-step",
            "What was charged beyond the limit is carried into the next steps.",
            forced,
        ),
        Case::new(
            "steps/late-callers",
            "A caller whose clock is behind counts in the step that has begun already.",
            late,
        ),
        Case::new(
            "steps/all-or-nothing-with-others",
            "Steps and other limits are charged together or not at all, and a refusal begins no window.",
            with_others,
        ),
        Case::new(
            "steps/batches",
            "Requests of a batch share one window, in their order, and no unit returns before its end.",
            batches,
        ),
        Case::new("steps/reset", "After a reset, the next request begins a window.", reset),
        Case::new(
            "steps/the-quota-may-change",
            "A window keeps its count and its beginning if the quota changes.",
            changes,
        ),
        Case::new(
            "steps/concurrent",
            "Many tasks are admitted exactly, in the first window and in the next one.",
            concurrent,
        ),
    ];
    cases.map(|case| case.needs(Need::OneCount)).into()
}

async fn first_request(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3/h from first request")?);
    let first = trial.at(17 * MINUTE).admit(1).await?;
    ensure_eq!((first.remaining(), first.reset_after()), (2, HOUR), "left and reset of a new window");
    let last = trial.at(47 * MINUTE).admit(2).await?;
    ensure_eq!((last.remaining(), last.reset_after()), (0, HOUR / 2), "left and reset after half of it");
    let refused = trial.at(57 * MINUTE).refuse(1).await?;
    ensure_eq!(refused.retry_after(), Some(20 * MINUTE), "retry-after");
    trial.at(77 * MINUTE - TICK).refuse(1).await?;
    trial.at(77 * MINUTE).expect_left(3).await?;
    let next = trial.at(90 * MINUTE).admit(3).await?;
    ensure_eq!(
        next.reset_after(),
        HOUR,
        "a new window begins with a request, and not with the end of the last one"
    );
    trial.at(77 * MINUTE + HOUR).refuse(1).await?;
    trial.wait_exactly(2).await?;
    Ok(())
}

async fn uneven(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("7/h from first request")?);
    let first = trial.admit(1).await?;
    ensure_eq!(first.reset_after(), HOUR, "reset-after");
    trial.advance(MINUTE).admit(6).await?;
    trial.at(HOUR - TICK).refuse(1).await?;
    trial.at(HOUR).admit(7).await?;
    Ok(())
}

async fn refilled(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("40/h burst 100 step 15min")?);
    trial.admit(95).await?;
    trial.at(15 * MINUTE - TICK).expect_left(5).await?;
    trial.at(15 * MINUTE).expect_left(15).await?;
    let refused = trial.at(20 * MINUTE).refuse(36).await?;
    ensure_eq!(refused.retry_after(), Some(40 * MINUTE), "retry-after, until the fourth step has ended");
    ensure_eq!(refused.reset_after(), 130 * MINUTE, "reset-after, until the tenth step has ended");
    trial.admit(15).await?;
    trial.at(150 * MINUTE).expect_left(90).await?;
    trial.at(165 * MINUTE).expect_left(100).await?;
    trial.at(1_000 * MINUTE).expect_left(100).await?;
    // An empty bucket counts its steps anew.
    trial.admit(100).await?;
    trial.at(1_015 * MINUTE - TICK).expect_left(0).await?;
    trial.at(1_015 * MINUTE).expect_left(10).await
}

async fn total(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10 in total")?);
    trial.admit(7).await?;
    let refused = trial.refuse(4).await?;
    ensure_eq!(wait(&refused), None, "retry-after of a total that is used up");
    let used = trial.at(YEAR).admit(3).await?;
    for years in [2, 20] {
        trial.at(years * YEAR).refuse(1).await?;
    }
    trial.under(limit("15 in total")?).expect_left(5).await?;
    trial.under(limit("15 in total")?).admit(4).await?;
    trial.under(limit("8 in total")?).expect_left(0).await?;
    trial.limiter.refund(&used).await?;
    trial.under(limit("15 in total")?).expect_left(4).await?;
    trial.limiter.reset(trial.request(1)).await?;
    trial.expect_left(10).await
}

/// The retry-after, but `None` instead of a second. A fallback that would never admit a request says a second, because
/// the store that it replaces may admit it.
fn wait(refused: &Decision<'_>) -> Option<Duration> {
    refused.retry_after().filter(|wait| *wait != SECOND)
}

async fn refunds(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/h from first request")?);
    let first = trial.admit(4).await?;
    let second = trial.at(30 * MINUTE).admit(6).await?;
    trial.at(40 * MINUTE).limiter.refund(&second).await?;
    trial.expect_left(6).await?;
    let settled = trial.admit(5).await?;
    trial.limiter.settle(&settled, 2).await?;
    trial.expect_left(4).await?;
    trial.at(HOUR - TICK).expect_left(4).await?;
    trial.at(HOUR).admit(3).await?;
    trial.limiter.refund(&first).await?;
    trial.expect_left(7).await
}

async fn refund_of_the_first(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("100/5h from first request")?);
    let first = trial.admit(1).await?;
    let second = trial.at(4 * HOUR).admit(98).await?;
    trial.limiter.refund(&first).await?;
    trial.admit(1).await?;
    trial.at(5 * HOUR).expect_left(1).await?;
    let refused = trial.refuse(2).await?;
    ensure_eq!(refused.retry_after(), Some(4 * HOUR), "retry-after in a step that has begun anew");
    trial.at(8 * HOUR).limiter.refund(&second).await?;
    trial.at(9 * HOUR).expect_left(99).await?;
    trial.at(13 * HOUR - TICK).expect_left(99).await?;
    trial.at(13 * HOUR).admit(100).await?;

    let half = SECOND / 2;
    let steps = trial.key("steps").under(limit("10/s burst 20 step 500ms")?);
    let first = steps.at(Duration::ZERO).admit(7).await?;
    steps.at(half).admit(10).await?; // two of the first ones are left
    steps.at(half + half / 2).limiter.refund(&first).await?;
    steps.expect_left(10).await?;
    steps.at(2 * half + half / 2 - TICK).expect_left(10).await?;
    steps.at(2 * half + half / 2).expect_left(15).await?;
    steps.at(3 * half + half / 2).expect_left(20).await?;

    let slow = trial.key("quotas").under(limit("4/h from first request")?);
    let fast = slow.under(limit("8/h from first request")?);
    let first = slow.at(Duration::ZERO).admit(2).await?;
    fast.at(HOUR / 2).admit(3).await?;
    slow.limiter.refund(&first).await?;
    fast.at(HOUR).expect_left(5).await?;
    fast.at(HOUR + HOUR / 2).expect_left(8).await?;

    let total = trial.key("total").under(limit("10 in total")?);
    let first = total.at(Duration::ZERO).admit(3).await?;
    let second = total.at(HOUR).admit(4).await?;
    total.limiter.refund(&first).await?;
    total.at(YEAR).expect_left(6).await?;
    total.limiter.refund(&second).await?;
    total.expect_left(10).await
}

async fn forced(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/h from first request")?);
    trial.admit(3).await?;
    let charged = trial.limiter.charge(trial.request(22)).await?;
    ensure_eq!((charged.remaining(), charged.reset_after()), (0, 3 * HOUR), "left and reset of a debt");
    let refused = trial.refuse(1).await?;
    ensure_eq!(refused.retry_after(), Some(2 * HOUR), "retry-after of a debt");
    trial.at(2 * HOUR).expect_left(5).await?;
    trial.at(3 * HOUR).expect_left(10).await
}

async fn late(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("4/min from first request")?);
    trial.at(SECOND).admit(2).await?;
    trial.at(Duration::ZERO).admit(1).await?;
    trial.at(61 * SECOND - TICK).expect_left(1).await?;
    trial.at(61 * SECOND).admit(1).await?;
    let late = trial.at(60 * SECOND).admit(3).await?;
    ensure_eq!(late.reset_after(), 61 * SECOND, "reset-after for a caller that is a second behind");
    trial.refuse(1).await?;
    let total = trial.under(limit("10 in total")?);
    total.at(10 * SECOND).admit(10).await?;
    for late in [10 * SECOND - TICK, 9 * SECOND, Duration::ZERO] {
        total.at(late).refuse(1).await?;
    }
    Ok(())
}

async fn with_others(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["5/h from first request", "3/min fixed", "9 in total"])?);
    trial.refuse(4).await?;
    trial.at(HOUR / 2).admit(3).await?;
    trial.refuse(1).await?;
    trial.at(HOUR / 2 + MINUTE).admit(2).await?;
    let refused = trial.at(HOUR / 2 + 2 * MINUTE).refuse(1).await?;
    ensure_eq!(refused.retry_after(), Some(58 * MINUTE), "the refused request has begun no window");
    trial.at(HOUR + HOUR / 2).admit(3).await?;
    let refused = trial.at(2 * HOUR).refuse(2).await?;
    let left: Vec<u64> = refused.each().map(|limit| limit.remaining()).collect();
    ensure_eq!((left, wait(&refused)), (vec![2, 3, 1], None), "left under each limit, and retry-after");
    Ok(())
}

async fn batches(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/h from first request")?);
    let ask = |costs: [u64; 4]| costs.map(|cost| trial.request(cost));
    for begun in [Duration::ZERO, HOUR] {
        let mut admitted = Vec::new();
        for decision in trial.at(begun).limiter.check_many(ask([2, 4, 3, 1])).await {
            admitted.push(decision?.allowed());
        }
        ensure_eq!(admitted, [true, false, true, false], "which of a batch are admitted");
        for decision in trial.at(begun + HOUR / 2).limiter.check_many(ask([1, 2, 1, 1])).await {
            let decision = decision?;
            ensure!(!decision.allowed(), "admitted before the end of a full window: {decision:?}");
        }
    }
    Ok(())
}

async fn reset(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/h from first request")?);
    trial.admit(2).await?;
    trial.at(HOUR / 2).limiter.reset(trial.request(1)).await?;
    let decision = trial.admit(2).await?;
    ensure_eq!(decision.reset_after(), HOUR, "reset-after");
    trial.at(HOUR).refuse(1).await?;
    Ok(())
}

async fn changes(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("4/h from first request")?);
    trial.admit(4).await?;
    trial.at(HOUR / 2);
    trial.under(limit("8/h from first request")?).expect_left(4).await?;
    trial.under(limit("8/h from first request")?).admit(3).await?;
    trial.under(limit("2/h from first request")?).expect_left(0).await?;
    trial.refuse(1).await?;
    trial.at(HOUR);
    trial.under(limit("8/h from first request")?).expect_left(8).await?;
    for other in ["4/2h from first request", "4/h fixed", "4/h from first request name other", "4/h step 1h"]
    {
        trial.at(HOUR / 2).under(limit(other)?).expect_left(4).await?;
    }
    let slow = trial.key("a refund");
    let fast = slow.under(limit("8/h from first request")?);
    let first = slow.at(Duration::ZERO).admit(2).await?;
    fast.at(HOUR / 2).admit(2).await?;
    slow.at(50 * MINUTE).limiter.refund(&first).await?;
    fast.expect_left(6).await?;
    // An hour is no multiple of seven nanoseconds.
    for (before, after) in [(7, 1), (7, 6), (700, 1), (1, 7)] {
        let under = |quota| limit(&format!("{quota}/h from first request name {before}-{after}"));
        trial.at(Duration::ZERO).under(under(before)?).admit(before).await?;
        trial.at(HOUR - TICK).under(under(after)?).expect_left(after.saturating_sub(before)).await?;
        trial.at(HOUR + SECOND).under(under(after)?).admit(after).await?;
    }
    Ok(())
}

async fn concurrent(bench: Bench) -> CaseResult {
    let limits: Limits = limit("60/h from first request")?.into();
    exactly(&bench, &limits, START, 60).await?;
    exactly(&bench, &limits, START + HOUR, 60).await?;
    let limits: Limits = limit("60 in total")?.into();
    exactly(&bench, &limits, START, 60).await
}
