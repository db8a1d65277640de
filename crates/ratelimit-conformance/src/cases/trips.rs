//! One request and one response for each slice, counted by a proxy between store and server.

use std::time::Duration;

use ratelimit_core::{Decisions, Limit, Limits, ManualClock, RateLimiter, Request};

use crate::bench::{Bench, Handle, START, limit, limits};
use crate::case::Case;
use crate::failure::{CaseResult, Failure, ensure};
use crate::kind::Kind;
use crate::proxy::Proxy;

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "trips/one-for-a-claim",
        "The first claim after connecting takes one trip, and so do further ones, peeks and refusals.",
        one_claim,
    );
    cases.extend([
        Case::new(
            "trips/one-for-three-limits",
            "A slice of three limits of different kinds takes one trip.",
            three,
        ),
        Case::new("trips/one-for-a-batch", "Fifty slices in one call take one trip.", batch),
        Case::new(
            "trips/one-for-refund-and-reset",
            "A refund takes one trip, and so does a reset.",
            refund_reset,
        ),
        Case::new(
            "trips/bytes-do-not-grow",
            "A claim on a full log of a thousand units sends no more bytes.",
            bytes,
        ),
        Case::new(
            "trips/no-connection-for-each",
            "Twenty claims one after another open no connection.",
            connections,
        ),
    ]);
    cases.into_iter().map(Case::any_time).collect()
}

/// A handle behind a proxy.
struct Watched {
    proxy: Proxy,
    handle: Handle,
}

impl Watched {
    async fn new(bench: &Bench) -> CaseResult<Self> {
        let (proxy, handle) = bench.through_proxy().await?;
        proxy.quiet().await;
        Ok(Self { proxy, handle })
    }

    fn limiter(&self, limits: impl Into<Limits>) -> RateLimiter<Handle, ManualClock> {
        RateLimiter::new(self.handle.clone(), limits).with_clock(ManualClock::at(START))
    }

    /// The call must take so many trips at most, and one at least.
    async fn trips<T>(&self, most: u64, what: &str, call: impl Future<Output = T>) -> CaseResult<T> {
        let before = self.proxy.traffic();
        let result = call.await;
        let passed = self.proxy.quiet().await - before;
        ensure!(
            passed.requests >= 1,
            "{what} did not pass through the proxy: open_at must connect to the address that it is given"
        );
        ensure!(
            passed.requests <= most && passed.responses <= most,
            "{what} took {} requests and {} responses, not {most}: {passed:?}",
            passed.requests,
            passed.responses
        );
        Ok(result)
    }
}

/// How many trips a slice of these limits may take: two for a store without scripts that has to read first.
fn allowed(bench: &Bench, limits: &[Limit]) -> u64 {
    let window = |limit: &Limit| matches!(limit.meter_for(b""), ratelimit_core::Meter::Window(_));
    let conservative = bench.promises().decisions == Decisions::Conservative;
    if conservative && !limits.iter().all(window) { 2 } else { 1 }
}

async fn one_claim(bench: Bench, kind: Kind) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(kind.limit(2, HOUR * 24 * 3_000)?);
    let most = allowed(&bench, limiter.limits());
    let full = Request::new("k").cost(2);
    let first = watched.trips(most, "the first claim", limiter.check(&full)).await??;
    ensure!(first.allowed(), "the first claim was refused: {first:?}");
    let refused = watched.trips(most, "a refusal", limiter.check(&full)).await??;
    ensure!(!refused.allowed(), "a claim on a full meter was admitted: {refused:?}");
    watched.trips(most, "a peek", limiter.peek("k")).await??;
    watched.trips(most, "a forced charge", limiter.charge(&full)).await??;
    Ok(())
}

async fn three(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limits(&["10/3000d", "20/3000d burst 20", "30/3000d log"])?);
    let most = allowed(&bench, limiter.limits());
    watched.trips(most, "the first slice of three limits", limiter.check("k")).await??;
    watched.trips(most, "the second", limiter.check("k")).await??;
    let limiter = watched.limiter(limits(&["10/3000d fixed", "20/3000d", "30/3000d precision 1d"])?);
    watched.trips(1, "a slice of three windows", limiter.check("other")).await??;
    Ok(())
}

async fn batch(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limit("10/3000d")?);
    let keys: Vec<String> = (0..50).map(|number| format!("user:{number}")).collect();
    for round in ["the first batch of fifty", "the second"] {
        for answer in watched.trips(1, round, limiter.check_many(&keys)).await? {
            ensure!(answer?.allowed(), "a claim of the batch was refused");
        }
    }
    let limiter = watched.limiter(limit("10/3000d burst 10")?);
    let most = allowed(&bench, limiter.limits());
    for answer in watched.trips(most, "a batch of fifty buckets", limiter.check_many(&keys)).await? {
        ensure!(answer?.allowed(), "a claim of the batch was refused");
    }
    Ok(())
}

async fn refund_reset(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    for kind in Kind::METERS {
        let limiter = watched.limiter(kind.limit(5, HOUR * 24 * 3_000)?);
        let most = allowed(&bench, limiter.limits());
        let decision = limiter.check("k").await?;
        watched.proxy.quiet().await;
        watched.trips(most, "a refund", limiter.refund("k", &decision)).await??;
        watched.trips(1, "a reset", limiter.reset("k")).await??;
    }
    Ok(())
}

async fn bytes(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limit("1000/3000d log")?);
    if bench.promises().decisions == Decisions::Conservative {
        return Err(Failure::not_applicable("the store has to read the whole log"));
    }
    limiter.check("k").await?;
    let before = watched.proxy.quiet().await;
    limiter.check("k").await?;
    let empty = watched.proxy.quiet().await - before;
    limiter.charge(Request::new("k").cost(998)).await?;
    let before = watched.proxy.quiet().await;
    limiter.check("k").await?;
    let full = watched.proxy.quiet().await - before;
    let (few, many) = (empty.sent + empty.received, full.sent + full.received);
    ensure!(many < few + 500, "a claim on a log of one unit took {few} bytes, on one of a thousand {many}");
    Ok(())
}

async fn connections(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limit("1000/3000d")?);
    limiter.check("k").await?;
    let before = watched.proxy.quiet().await;
    for _ in 0..20 {
        limiter.check("k").await?;
    }
    let passed = watched.proxy.quiet().await - before;
    ensure!(passed.connections == 0, "20 claims opened {} connections", passed.connections);
    ensure!(passed.requests == 20, "20 claims took {} requests", passed.requests);
    Ok(())
}
