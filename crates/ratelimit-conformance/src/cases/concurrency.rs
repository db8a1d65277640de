//! Concurrency limits: units that are held until they are released.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use ratelimit_core::RateLimiter;
use ratelimit_core::store::Decisions;

use super::atomic::exactly;
use super::contended::{admitted, done, may_contend};
use crate::bench::{Bench, limit, limits, storm};
use crate::case::{Case, Need};
use crate::clock::{SECOND, START, TICK, pause};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::subject::Handle;
use crate::trial::Trial;

const LEASE: Duration = Duration::from_secs(60);
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "concurrency/released-units-are-free",
            "Units are held until they are released, and then free at once.",
            released,
        ),
        Case::new(
            "concurrency/only-the-lease-is-released",
            "A release returns units of concurrency limits, and leaves what other limits have charged.",
            only_the_lease,
        ),
        Case::new(
            "concurrency/a-lease-ends",
            "Units that nobody releases are free a nanosecond after the lease, and a late release takes nobody else's.",
            lease_ends,
        ),
        Case::new(
            "concurrency/renewed-leases-hold",
            "A renewed lease holds, a full limit stays full, and a lease that has ended is not renewed.",
            renewed,
        ),
        Case::new(
            "concurrency/burst-of-many",
            "Many tasks on several handles are admitted exactly as often as the limit allows.",
            burst,
        ),
        Case::new(
            "concurrency/never-too-many-at-work",
            "Many tasks take, renew and release units. Never are more at work than the limit allows, and at the end no unit is held.",
            at_work,
        ),
        Case::new(
            "concurrency/permits-in-real-time",
            "A permit outlives its lease, a dropped one is released, and one that is not renewed ends.",
            permits,
        )
        .needs(Need::ExactPerKey)
        .any_time(),
    ]
}

async fn released(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3 at once")?);
    let first = trial.admit(1).await?;
    let second = trial.advance(TICK).admit(2).await?;
    trial.refuse(1).await?;
    trial.limiter.release(&first).await?;
    trial.expect_left(1).await?;
    trial.limiter.release(&second).await?;
    trial.expect_left(3).await?;
    trial.admit(3).await?;
    trial.refuse(1).await?;
    // Under two limits, so that a release returns units of several meters.
    let both = trial.under(limits(&["2 at once name jobs", "5 at once name heavy"])?);
    let leased = both.admit(2).await?;
    both.advance(TICK).refuse(1).await?;
    both.limiter.release(&leased).await?;
    let left: Vec<u64> = both.limiter.peek("k").await?.each().map(|each| each.remaining()).collect();
    ensure_eq!(left, [2, 5], "left under each limit after a release");
    Ok(())
}

async fn only_the_lease(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["2 at once name jobs", "3/h", "5/h log name log"])?);
    let first = trial.admit(1).await?;
    trial.admit(1).await?;
    let refused = trial.refuse(1).await?;
    ensure_eq!(refused.decided_by().name(), Some("jobs"), "the limit that refused");
    trial.limiter.release(&first).await?;
    let third = trial.admit(1).await?;
    let left: Vec<u64> = third.each().map(|limit| limit.remaining()).collect();
    ensure_eq!(left, [0, 0, 2], "left under each limit");
    trial.limiter.release(&third).await?;
    ensure_eq!(trial.refuse(1).await?.decided_by().index(), 1, "the limit that refused");
    Ok(())
}

async fn lease_ends(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2 at once")?);
    let crashed = trial.admit(1).await?;
    trial.at(Duration::from_secs(1)).admit(1).await?;
    let refused = trial.refuse(1).await?;
    let wait = LEASE - Duration::from_secs(1) + TICK;
    ensure_eq!(refused.retry_after(), Some(wait), "retry-after: when the oldest lease ends");
    trial.at(LEASE).refuse(1).await?;
    trial.at(LEASE + TICK).admit(1).await?;
    trial.refuse(1).await?;
    trial.limiter.release(&crashed).await?;
    trial.refuse(1).await?;
    Ok(())
}

async fn renewed(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2 at once lease 1min")?);
    let held = [trial.admit(1).await?, trial.at(TICK).admit(1).await?];
    for third in 1..8 {
        trial.at(LEASE / 3 * third);
        for decision in &held {
            ensure!(trial.limiter.renew(decision).await?, "a lease that holds was not renewed");
            trial.refuse(1).await?;
        }
        ensure_eq!(trial.left().await?, 0, "left after both leases were renewed");
    }
    trial.limiter.release(&held[0]).await?;
    trial.expect_left(1).await?;
    trial.advance(LEASE + TICK);
    ensure!(!trial.limiter.renew(&held[1]).await?, "a lease that has ended was renewed");
    trial.expect_left(2).await
}

async fn burst(bench: Bench) -> CaseResult {
    exactly(&bench, &limit("50 at once")?.into(), START, 50).await
}

async fn at_work(bench: Bench) -> CaseResult {
    const LIMIT: usize = 6;
    const TASKS: usize = 40;
    let limits = limit(&format!("{LIMIT} at once lease 1h"))?.into();
    let handles = bench.handles(4).await?;
    let promises = bench.promises();
    let working = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = storm(&handles, TASKS, |handle, _| {
        let limiter = RateLimiter::new(handle, ratelimit_core::Limits::clone(&limits));
        let (working, asked) = (working.clone(), asked.clone());
        async move {
            let (mut most, mut rounds) = (0, 0);
            for round in 0..6 {
                let answer = limiter.check("k").await;
                let held = answer.as_ref().ok().cloned();
                let is_admitted = admitted(promises, answer)?;
                if is_admitted {
                    most = most.max(working.fetch_add(1, SeqCst) + 1);
                }
                asked.fetch_add(usize::from(round == 0), SeqCst);
                let Some(decision) = held.filter(|_| is_admitted) else {
                    tokio::task::yield_now().await;
                    continue;
                };
                rounds += 1;
                // The first are at work until all have asked once.
                while asked.load(SeqCst) < TASKS {
                    tokio::task::yield_now().await;
                }
                // A store in memory does not suspend.
                tokio::task::yield_now().await;
                let renewed = limiter.renew(&decision).await;
                working.fetch_sub(1, SeqCst);
                // A store that may refuse under contention may also fail to renew or to return the old units.
                match renewed {
                    Err(error) if may_contend(promises, &error) => {}
                    renewed => ensure!(
                        renewed? || promises.decisions == Decisions::Conservative,
                        "a lease that holds was not renewed"
                    ),
                }
                done(promises, || limiter.release(&decision)).await??;
            }
            Ok((most, rounds))
        }
    })
    .await?;
    let most = counts.iter().map(|(most, _)| *most).max().unwrap_or(0);
    ensure!(most <= LIMIT, "{most} were at work at once where {LIMIT} may be");
    ensure!(counts.iter().any(|(_, rounds)| *rounds > 0), "nobody was admitted");
    if promises.decisions != Decisions::Conservative {
        let limiter = RateLimiter::new(bench.store.clone(), ratelimit_core::Limits::clone(&limits));
        ensure_eq!(limiter.peek("k").await?.remaining(), LIMIT as u64, "left after all have released");
    }
    Ok(())
}

async fn permits(bench: Bench) -> CaseResult {
    // A machine may stop for a while.
    let limit = limit("2 at once lease 3s")?;
    let limiter = Arc::new(bench.real(limit));
    let crashed = limiter.check("k").await?;
    let held = limiter.check("k").await?;
    ensure!(crashed.allowed() && held.allowed(), "the first two were refused");
    let permit = limiter.hold(held);
    ensure!(!limiter.check("k").await?.allowed(), "a third was admitted beside two");
    // The lease of the crashed holder ends; that of the permit is renewed.
    comes_to(&limiter, 1, "the lease of a crashed holder").await?;
    pause(SECOND).await;
    ensure!(!permit.is_lost(), "a permit was lost while it was held");
    ensure!(limiter.peek("k").await?.remaining() <= 1, "a permit that is held was free");
    permit.release().await?;
    ensure_eq!(limiter.peek("k").await?.remaining(), 2, "free after the release");
    drop(limiter.hold(limiter.check("k").await?));
    comes_to(&limiter, 2, "a permit was dropped").await
}

/// Waits until this number of units is free, and fails after a while.
async fn comes_to(limiter: &RateLimiter<Handle>, units: u64, after: &str) -> CaseResult {
    for _ in 0..500 {
        if limiter.peek("k").await?.remaining() == units {
            return Ok(());
        }
        pause(Duration::from_millis(20)).await;
    }
    ensure_eq!(limiter.peek("k").await?.remaining(), units, "free after {after}");
    Ok(())
}
