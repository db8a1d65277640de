//! One round trip for each slice, counted by a proxy between store and server; two if the store cannot decide on its server.

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Decisions, Mode, Time};
use ratelimit_core::{IntoLimits, Limit, ManualClock, RateLimiter, Request};

use super::mirrored::{Part, forget, give_back, put};
use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::clock::{DAYS, START};
use crate::failure::{CaseResult, Failure, ensure};
use crate::kind::Kind;
use crate::proxy::Proxy;
use crate::subject::Handle;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "trips/one-for-a-claim",
        "The first claim after connecting takes one round trip, and so do further claims, peeks and refusals. A conservative \
         store may take a second one to release a reservation, and for buckets and logs.",
        one_claim,
    );
    cases.extend([
        Case::new(
            "trips/one-for-three-limits",
            "A slice of three limits of different kinds takes one round trip; two on a conservative store.",
            three,
        ),
        Case::new(
            "trips/one-for-a-batch",
            "Fifty slices in one call take one round trip, and so do two hundred and fifty; buckets take two on a conservative store.",
            batch,
        )
        .heavy(),
        Case::new(
            "trips/one-for-refund-and-reset",
            "A refund takes one round trip, and so does a reset. A conservative store may take a second one to refund a \
             bucket or a log, and to reset a window.",
            refund_reset,
        ),
        Case::new(
            "trips/one-for-refund-and-reset-of-several",
            "A refund of three limits takes one round trip, and so does a reset. On a conservative store a reset takes two, \
             and so does a refund of buckets and logs.",
            refund_reset_several,
        ),
        Case::new(
            "trips/bytes-do-not-grow",
            "A claim on a full log of a thousand units sends no more bytes.",
            bytes,
        ),
        Case::new(
            "trips/no-connection-for-each",
            "Twenty consecutive claims open no connection.",
            connections,
        ),
    ]);
    cases.into_iter().map(Case::any_time).collect()
}

/// A handle behind a proxy.
struct Watched {
    proxy: Proxy,
    handle: Handle,
    bench: Bench,
}

impl Watched {
    async fn new(bench: &Bench) -> CaseResult<Self> {
        let (proxy, handle) = bench.through_proxy().await?;
        proxy.quiet().await;
        Ok(Self { proxy, handle, bench: bench.clone() })
    }

    fn limiter(&self, limits: impl IntoLimits) -> RateLimiter<Handle, ManualClock> {
        RateLimiter::new(self.handle.clone(), limits).with_clock(ManualClock::at(START))
    }

    /// Checks that the call takes at least one round trip, and at most this number.
    async fn trips<T>(&self, most: u64, what: &str, call: impl Future<Output = T>) -> CaseResult<T> {
        self.bench.sends_together()?;
        let before = self.proxy.traffic();
        let result = call.await;
        let passed = self.proxy.quiet().await - before;
        let why =
            if before.requests == 0 { ": open_at must connect to the address that it is given" } else { "" };
        ensure!(passed.requests >= 1, "{what} sent no request through the proxy{why}");
        ensure!(
            passed.requests <= most && passed.responses <= most,
            "{what} took {} requests and {} responses, not {most}: {passed:?}",
            passed.requests,
            passed.responses
        );
        Ok(result)
    }
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// An admitted claim or batch, or a forced charge.
    Admitted,
    /// A refused claim.
    Refused,
    Peek,
    Refund,
    Reset,
}

/// The maximum number of round trips of a call without contention. It follows from the promises of the store.
///
/// A store with exact decisions decides where the state is: one round trip for every call. A conservative store cannot
/// decide there. It adds to the counters of a window and reads the result in one round trip, and needs another one to undo a
/// refused addition. It has to read a bucket or a log before it writes. It must not remove the counter of a window without
/// reading it, because others may have reserved units in it.
fn most(bench: &Bench, limits: &[Limit], call: Call) -> u64 {
    if bench.promises().decisions != Decisions::Conservative {
        return 1;
    }
    let is_window = |limit: &Limit| matches!(limit.meter_for(b""), Meter::Window(_));
    let two = match call {
        Call::Admitted | Call::Refund => !limits.iter().all(is_window),
        Call::Refused => true,
        Call::Peek => false,
        Call::Reset => limits.iter().any(is_window),
    };
    1 + u64::from(two)
}

async fn one_claim(bench: Bench, kind: Kind) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(kind.limit(2, DAYS)?);
    let most = |call| most(&bench, limiter.limits(), call);
    let full = Request::new("k").cost(2);
    let first = watched.trips(most(Call::Admitted), "the first claim", limiter.check(&full)).await??;
    ensure!(first.allowed(), "the first claim was refused: {first:?}");
    for what in ["a refusal", "a second refusal"] {
        let refused = watched.trips(most(Call::Refused), what, limiter.check(&full)).await??;
        ensure!(!refused.allowed(), "a claim on a full meter was admitted: {refused:?}");
    }
    watched.trips(most(Call::Peek), "a peek", limiter.peek("k")).await??;
    watched.trips(most(Call::Admitted), "a forced charge", limiter.charge(&full)).await??;
    if bench.promises().time == Time::Server {
        return Ok(());
    }
    // A store that adapts to refusals must not take more round trips when claims fit again.
    limiter.clock().advance(DAYS * 3);
    let later =
        watched.trips(most(Call::Admitted), "a claim after a refusal", limiter.check(&full)).await??;
    ensure!(later.allowed(), "a claim three periods later was refused: {later:?}");
    Ok(())
}

async fn three(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limits(&["10/3000d", "20/3000d burst 20", "30/3000d log"])?);
    let most_of_all = most(&bench, limiter.limits(), Call::Admitted);
    watched.trips(most_of_all, "the first slice of three limits", limiter.check("k")).await??;
    watched.trips(most_of_all, "the second", limiter.check("k")).await??;
    let limiter = watched.limiter(limits(&["10/3000d fixed", "20/3000d", "30/3000d precision 1d"])?);
    watched.trips(1, "a slice of three windows", limiter.check("other")).await??;
    Ok(())
}

async fn batch(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limit("10/3000d")?);
    let keys: Vec<String> = (0..250).map(|number| format!("user:{number}")).collect();
    let buckets = watched.limiter(limit("10/3000d burst 10")?);
    let most = most(&bench, buckets.limits(), Call::Admitted);
    for (keys, round) in [(&keys[..50], "the first batch"), (&keys[..50], "the second"), (&keys, "the third")]
    {
        for (limiter, most, kind) in [(&limiter, 1, "windows"), (&buckets, most, "buckets")] {
            let what = format!("{round}, of {} {kind},", keys.len());
            for answer in watched.trips(most, &what, limiter.check_many(keys)).await? {
                ensure!(answer?.allowed(), "a claim of {what} was refused");
            }
        }
    }
    Ok(())
}

async fn refund_reset(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    for kind in Kind::METERS {
        let limiter = watched.limiter(kind.limit(5, DAYS)?);
        let most = |call| most(&bench, limiter.limits(), call);
        let decision = limiter.check("k").await?;
        watched.proxy.quiet().await;
        watched.trips(most(Call::Refund), "a refund", limiter.refund(&decision)).await??;
        watched.trips(most(Call::Reset), "a reset", limiter.reset("k")).await??;
    }
    Ok(())
}

async fn refund_reset_several(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let texts = ["10/3000d", "20/3000d burst 20", "30/3000d log"];
    let mut charged = Vec::new();
    for text in texts {
        let part = Part::new(&limit(text)?, "k", 2);
        let answer = put(&watched.handle, START, Mode::Charge, std::slice::from_ref(&part)).await??;
        charged.push((part, answer.verdicts[0].receipt));
    }
    watched.proxy.quiet().await;
    let parts: Vec<Part> = charged.iter().map(|(part, _)| part.clone()).collect();
    let most = |call, texts: &[&str]| Ok::<_, Failure>(most(&bench, &limits(texts)?, call));
    // A store may need separate round trips for windows and for other meters.
    let split = if bench.promises().decisions == Decisions::Conservative { 1 } else { 0 };
    for (texts, charged) in [(&texts[..split], &charged[..split]), (&texts[split..], &charged[split..])] {
        if !charged.is_empty() {
            let refund = give_back(&watched.handle, START, charged);
            watched.trips(most(Call::Refund, texts)?, "a refund of several limits", refund).await???;
        }
    }
    let reset = forget(&watched.handle, START, &parts);
    watched.trips(most(Call::Reset, &texts)?, "a reset of three limits", reset).await???;
    Ok(())
}

async fn bytes(bench: Bench) -> CaseResult {
    let watched = Watched::new(&bench).await?;
    let limiter = watched.limiter(limit("1000/3000d log")?);
    if bench.promises().decisions == Decisions::Conservative {
        return Err(Failure::not_applicable("the store has to read the whole log"));
    }
    bench.sends_together()?;
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
    ensure!(
        !bench.space.sends_together() || passed.requests == 20,
        "20 claims took {} requests",
        passed.requests
    );
    Ok(())
}
