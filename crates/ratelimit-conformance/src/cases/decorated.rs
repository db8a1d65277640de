//! The store behind a pointer and in a decorator is the same store.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::layers::Timeout;
use ratelimit_core::{CounterStore, DynCounterStore, ManualClock, RateLimiter, Request};

use crate::bench::{Bench, limits};
use crate::case::{Case, Need};
use crate::clock::START;
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::subject::Handle;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "decorated/erased-twice",
            "Behind two pointers the store promises and decides the same.",
            erased,
        )
        .needs(Need::ExactPerKey),
        Case::new("decorated/timeout", "With a time limit the store promises and decides the same.", timeout)
            .needs(Need::ExactPerKey),
        Case::new(
            "decorated/timeout-in-a-pointer",
            "With a time limit and behind a pointer the store promises and decides the same.",
            both,
        )
        .needs(Need::ExactPerKey),
        Case::new(
            "decorated/debug-is-not-empty",
            "The `Debug` output of a handle contains a word. Another case checks that it contains no key.",
            debug,
        )
        .any_time(),
    ]
}

async fn erased(bench: Bench) -> CaseResult {
    let again: Handle = Arc::new(bench.store.clone());
    all_methods(&bench, again).await
}

async fn timeout(bench: Bench) -> CaseResult {
    let limited = Timeout::new(bench.store.clone(), Duration::from_secs(30));
    all_methods(&bench, limited).await
}

async fn both(bench: Bench) -> CaseResult {
    let limited: Handle = Arc::new(Timeout::new(bench.store.clone(), Duration::from_secs(30)));
    all_methods(&bench, limited).await
}

/// Every method of the store, through its decoration.
async fn all_methods<S: CounterStore>(bench: &Bench, store: S) -> CaseResult {
    ensure_eq!(store.promises(), bench.promises(), "the promises");
    let limiter = RateLimiter::new(store, limits(&["5/min", "8/h log"])?);
    let limiter = limiter.with_clock(ManualClock::at(START));
    let request = Request::new("k").cost(2);
    let decision = limiter.check(&request).await?;
    ensure_eq!(decision.remaining(), 3, "left after a charge of 2");
    let mut found = Vec::new();
    for answer in limiter.check_many([&request, &request, &request]).await {
        found.push(answer?.allowed());
    }
    ensure_eq!(found, [true, false, false], "admitted of a batch");
    limiter.refund(&decision).await?;
    let left: Vec<u64> = limiter.peek("k").await?.each().map(|each| each.remaining()).collect();
    ensure_eq!(left, [3, 6], "left after a refund");
    let forced = limiter.charge(Request::new("k").cost(5)).await?;
    ensure!(forced.allowed(), "a forced charge was not made: {forced:?}");
    limiter.reset("k").await?;
    let left: Vec<u64> = limiter.peek("k").await?.each().map(|each| each.remaining()).collect();
    ensure_eq!(left, [5, 8], "left after a reset");
    Ok(())
}

async fn debug(bench: Bench) -> CaseResult {
    let store: &dyn DynCounterStore = &*bench.store;
    let printed = format!("{store:?}");
    ensure!(printed.chars().any(char::is_alphabetic), "the store prints nothing: {printed:?}");
    Ok(())
}
