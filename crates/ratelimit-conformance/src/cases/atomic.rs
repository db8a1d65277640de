//! Concurrent claims from many tasks and handles behave as if they were sequential.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratelimit_core::store::{Decisions, MAX_CLAIMS, Mode};
use ratelimit_core::{Limits, ManualClock, RateLimiter, Request, Timestamp};

use super::contended::{admitted, done, on_several_keys};
use super::mirrored::{Part, forget, put};
use crate::bench::{Bench, limit, limits, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START};
use crate::describe;
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::kind::Kind;
use crate::subject::Handle;
use crate::trial::Trial;

/// The number of handles that claim concurrently.
pub(super) const HANDLES: usize = 4;

/// The limits of slices. Fifty of these fit.
const THREE: [&str; 3] = ["300/min", "50/h burst 50", "70/h log"];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "atomic/burst-of-many",
        "Many tasks on several handles are admitted exactly as often as the limit allows.",
        burst,
    );
    cases = cases.into_iter().map(Case::heavy).collect();
    cases.extend(Case::for_each(
        &Kind::METERS,
        "atomic/costs",
        "With costs of one to five, only claims that do not fit are refused.",
        costs,
    ));
    cases.extend([
        Case::new(
            "atomic/several-limits",
            "Concurrent slices of three limits are admitted exactly.",
            several_limits,
        ),
        Case::new(
            "atomic/largest-slices",
            "Concurrent slices of as many limits as a slice can have are admitted exactly.",
            largest_slices,
        )
        .heavy(),
        Case::new(
            "atomic/several-keys",
            "Concurrent slices of two keys in opposite orders are admitted exactly.",
            several_keys,
        ),
        Case::new(
            "atomic/previous-window-not-empty",
            "Exactly as much as the previous window leaves is admitted.",
            previous_window,
        ),
        Case::new(
            "atomic/first-claims",
            "A limit of one admits only one of several concurrent claims on a new key.",
            first_claims,
        ),
        Case::new(
            "atomic/refunds-race-claims",
            "Concurrent claims and refunds never hold more units than the limit allows, and lose none.",
            refunds_race,
        ),
        Case::new("atomic/forced-charges", "Concurrent forced charges are all counted.", forced)
            .needs(Need::ExactPerKey),
        Case::new(
            "atomic/zero-next-to-charges",
            "Concurrent slices that charge one limit and none of another lose no unit of either.",
            zero_next_to_charges,
        )
        .needs(Need::ExactPerKey),
        Case::new("atomic/peeks-disturb-nobody", "Peeks between claims change nothing.", peeks),
        Case::new(
            "atomic/resets-race-claims",
            "A reset during concurrent claims makes all units available again, but only once.",
            resets,
        ),
        Case::new("atomic/batches", "Concurrent batches from several handles are admitted exactly.", batches),
        Case::new(
            "atomic/seen-at-once",
            "A charge through one handle is visible to another at once.",
            seen_at_once,
        ),
    ]);
    cases
}

/// A limiter on one of several handles, with a clock that stands still.
pub(super) fn still(handle: Handle, limits: &Limits, now: Timestamp) -> RateLimiter<Handle, ManualClock> {
    RateLimiter::new(handle, limits.clone()).with_clock(ManualClock::at(now))
}

/// Many tasks take these costs of a key concurrently. Returns each cost, and whether it was admitted.
async fn contend(
    bench: &Bench,
    limits: &Limits,
    key: &[u8],
    now: Timestamp,
    costs: &[u64],
) -> CaseResult<Vec<(u64, bool)>> {
    bench.journal.learn(limits);
    let promises = bench.promises();
    let handles = bench.handles(HANDLES).await?;
    storm(&handles, costs.len(), |handle, number| {
        let limiter = still(handle, limits, now);
        let (cost, key) = (costs[number], key.to_vec());
        async move {
            let answer = limiter.check(Request::new(&key).cost(cost)).await;
            Ok((cost, admitted(promises, answer)?))
        }
    })
    .await
}

/// One unit of the key `k` for each of many tasks: exactly `expected` are admitted, either concurrently or, if the store is
/// conservative, after further tries.
pub(super) async fn exactly(bench: &Bench, limits: &Limits, now: Timestamp, expected: u64) -> CaseResult {
    exactly_on(bench, limits, b"k", now, expected).await
}

/// The same on this key.
pub(super) async fn exactly_on(
    bench: &Bench,
    limits: &Limits,
    key: &[u8],
    now: Timestamp,
    expected: u64,
) -> CaseResult {
    let tasks = vec![1; usize::try_from(expected).unwrap_or(0) * 2 + 40];
    let found = contend(bench, limits, key, now, &tasks).await?;
    let at_once = found.iter().filter(|(_, admitted)| *admitted).count() as u64;
    let calls = format!(
        "of {} calls of one unit through {HANDLES} handles, {} on key {}",
        tasks.len(),
        reported(limits),
        describe::key(key)
    );
    ensure!(at_once <= expected, "{at_once} were admitted at once where only {expected} fit, {calls}");
    if bench.promises().decisions != Decisions::Conservative {
        ensure_eq!(at_once, expected, "admitted at once {calls}");
    }
    let trial = Trial::new(bench, limits.clone()).key(key);
    let later = trial.set(now).drain(expected + 1).await?;
    ensure_eq!(at_once + later, expected, "admitted at once and one by one after it, {calls}");
    Ok(())
}

/// The limits, as text.
fn reported(limits: &Limits) -> String {
    let texts: Vec<String> = limits.iter().take(3).map(|limit| format!("`{limit}`")).collect();
    let more = if limits.len() > 3 { format!(" and {} more", limits.len() - 3) } else { String::new() };
    texts.join(", ") + &more
}

async fn burst(bench: Bench, kind: Kind) -> CaseResult {
    exactly(&bench, &kind.limit(80, HOUR)?.into(), START, 80).await
}

async fn costs(bench: Bench, kind: Kind) -> CaseResult {
    let mut random = bench.random();
    let costs: Vec<u64> = (0..160).map(|_| random.between(1, 5)).collect();
    let limits: Limits = kind.limit(200, HOUR)?.into();
    let found = contend(&bench, &limits, b"k", START, &costs).await?;
    let taken: u64 = found.iter().filter(|(_, admitted)| *admitted).map(|(cost, _)| cost).sum();
    ensure!(
        taken <= 200,
        "{taken} units were admitted of 200, by 160 calls through {HANDLES} handles, {}",
        reported(&limits)
    );
    let trial = Trial::new(&bench, limits);
    ensure_eq!(trial.left().await?, 200 - taken, "units left after {taken} of 200");
    let cheapest = found.iter().filter(|(_, admitted)| !*admitted).map(|(cost, _)| *cost).min();
    if let Some(cost) = cheapest.filter(|_| bench.promises().decisions != Decisions::Conservative) {
        ensure!(cost > 200 - taken, "a cost of {cost} was refused although {} were left", 200 - taken);
    }
    Ok(())
}

async fn several_limits(bench: Bench) -> CaseResult {
    let three = limits(&THREE)?;
    exactly(&bench, &three, START, 50).await?;
    for (text, expected) in THREE.into_iter().zip([250, 0, 20]) {
        let trial = Trial::new(&bench, limit(text)?);
        ensure_eq!(trial.left().await?, expected, "left of {text} after 50 slices of three");
    }
    Ok(())
}

/// As many limits as a slice can have.
pub(super) fn sixty_four() -> CaseResult<Limits> {
    let texts: Vec<String> = (0..MAX_CLAIMS).map(|nth| format!("20/h name l{nth}")).collect();
    limits(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

async fn largest_slices(bench: Bench) -> CaseResult {
    let all = sixty_four()?;
    exactly(&bench, &all, START, 20).await?;
    for one in all.iter() {
        ensure_eq!(Trial::new(&bench, one.clone()).left().await?, 0, "left of {one} after 20 slices");
    }
    Ok(())
}

async fn several_keys(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = on_several_keys(bench.promises());
    let limits: Limits = limit("40/h")?.into();
    let found = storm(&handles, 120, |handle, number| {
        let limiter = still(handle, &limits, START);
        async move {
            let (first, second) = if number % 2 == 0 { ("left", "right") } else { ("right", "left") };
            admitted(promises, limiter.check(Request::new(first).and(second)).await)
        }
    })
    .await?;
    let taken = found.iter().filter(|admitted| **admitted).count() as u64;
    ensure!(
        taken <= 40,
        "{taken} were admitted of 40, by 120 slices of two keys through {HANDLES} handles, 40/h"
    );
    if promises.decisions.are_exact_on_one_node() {
        ensure_eq!(taken, 40, "admitted");
    }
    let trial = Trial::new(&bench, limits);
    for key in ["left", "right"] {
        ensure_eq!(trial.key(key).left().await?, 40 - taken, "left of {key} after {taken} of 40");
    }
    Ok(())
}

async fn previous_window(bench: Bench) -> CaseResult {
    for text in ["100/min", "100/min precision 20s"] {
        let limits: Limits = limit(text)?.into();
        let trial = Trial::new(&bench, limits.clone());
        trial.at(Duration::from_secs(10)).admit(60).await?;
        // Three quarters of the segment with the 60 are still covered: 45 of them count.
        let (at, left) = if text == "100/min" { (75, 55) } else { (65, 55) };
        let now = START + Duration::from_secs(at);
        trial.set(now).expect_left(left).await?;
        exactly(&bench, &limits, now, left).await?;
    }
    Ok(())
}

async fn first_claims(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    for kind in bench.kinds() {
        let limits: Limits = kind.limit(1, HOUR)?.into();
        for round in 0..10 {
            let found = storm(&handles, HANDLES * 2, |handle, _| {
                let limiter = still(handle, &limits, START);
                async move { admitted(promises, limiter.check(&format!("key {round}")).await) }
            })
            .await?;
            let first = found.iter().filter(|admitted| **admitted).count();
            ensure!(
                first <= 1,
                "{first} of {} first claims were admitted by a limit of 1, {kind:?}",
                found.len()
            );
            if promises.decisions != Decisions::Conservative {
                ensure_eq!(first, 1, "first claims admitted by a limit of 1, {kind:?}");
            }
        }
    }
    Ok(())
}

async fn refunds_race(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    for kind in Kind::METERS {
        let limits: Limits = kind.limit(10, HOUR)?.into();
        let held = Arc::new(AtomicU64::new(0));
        storm(&handles, 40, |handle, _| {
            let limiter = still(handle, &limits, START);
            let held = held.clone();
            async move {
                for _ in 0..5 {
                    let answer = limiter.check("k").await;
                    let decision = answer.as_ref().ok().cloned();
                    if !admitted(promises, answer)? {
                        continue;
                    }
                    let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                    ensure!(now <= 10, "{now} units were held at once of 10, {kind:?}");
                    tokio::task::yield_now().await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    if let Some(decision) = decision {
                        done(promises, || limiter.refund(&decision)).await??;
                    }
                }
                Ok(())
            }
        })
        .await?;
        Trial::new(&bench, limits).expect_left(10).await?;
    }
    Ok(())
}

async fn forced(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let limits: Limits = limit("1000/h")?.into();
    storm(&handles, 100, |handle, _| {
        let limiter = still(handle, &limits, START);
        async move { Ok(limiter.charge(Request::new("k").cost(7)).await?.into_owned()) }
    })
    .await?;
    Trial::new(&bench, limits).expect_left(300).await
}

async fn zero_next_to_charges(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    for kind in Kind::METERS {
        let part = |name| Ok::<_, Failure>(Part::new(&kind.builder(200, HOUR).name(name).build()?, "k", 0));
        let both = [part("first")?, part("second")?];
        storm(&handles, 100, |handle, number| {
            let [first, second] = [both[0].of(number as u64 % 2), both[1].of((number as u64 + 1) % 2)];
            async move {
                let answer = put(&handle, START, Mode::Charge, &[first, second]).await??;
                ensure!(answer.admitted, "a unit of 200 was refused after at most fifty: {answer:?}");
                Ok(())
            }
        })
        .await?;
        let left = put(&bench.store, START, Mode::Peek, &both).await??.verdicts;
        let left: Vec<u64> = left.iter().map(|verdict| verdict.remaining).collect();
        ensure_eq!(left, [150, 150], "left of 200 each after fifty charges each, {kind:?}");
    }
    Ok(())
}

async fn peeks(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    let limits: Limits = limit("50/h")?.into();
    let found = storm(&handles, 200, |handle, number| {
        let limiter = still(handle, &limits, START);
        async move {
            match number % 3 {
                0 => admitted(promises, limiter.peek("k").await).map(|_| false),
                1 => {
                    let peeked = limiter.would_allow(Request::new("k").cost(3)).await;
                    admitted(promises, peeked).map(|_| false)
                }
                _ => admitted(promises, limiter.check("k").await),
            }
        }
    })
    .await?;
    let at_once = found.iter().filter(|admitted| **admitted).count() as u64;
    ensure!(
        at_once <= 50,
        "{at_once} were admitted of 50, by 67 claims beside 133 peeks through {HANDLES} handles, 50/h"
    );
    let later = Trial::new(&bench, limits).drain(51).await?;
    ensure_eq!(at_once + later, 50, "admitted at once and one by one after it");
    Ok(())
}

async fn resets(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    for kind in Kind::METERS.into_iter().chain([Kind::Segmented]) {
        let limits: Limits = kind.limit(20, HOUR)?.into();
        let meter = Part::new(&limits[0], "k", 0);
        let trial = Trial::new(&bench, limits.clone());
        // A reset forgets these too. In a segmented window they are in an earlier segment than the claims.
        let earlier = trial.drain(10).await?;
        let since_start = if kind == Kind::Segmented { HOUR / 4 } else { Duration::ZERO };
        let now = START + since_start;
        let found = storm(&handles, 120, |handle, number| {
            let limiter = still(handle.clone(), &limits, now);
            let meter = meter.clone();
            async move {
                if number == 60 {
                    forget(&handle, now, &[meter]).await??;
                    return Ok(false);
                }
                admitted(promises, limiter.check("k").await)
            }
        })
        .await?;
        let at_once = found.iter().filter(|admitted| **admitted).count() as u64;
        let taken = earlier + at_once + trial.at(since_start).drain(41).await?;
        // Up to ten before the reset, and all of 20 after it. A node that counts for itself may learn from others what its
        // reset has removed.
        let least = if promises.decisions == Decisions::Eventual { 20 } else { earlier + 20 };
        ensure!(
            (least..=40).contains(&taken),
            "{taken} were admitted by a limit of 20 with one reset, not {least} to 40, {kind:?}"
        );
    }
    Ok(())
}

async fn batches(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = bench.promises();
    for kind in Kind::METERS {
        let limits: Limits = kind.limit(60, HOUR)?.into();
        let found = storm(&handles, 16, |handle, _| {
            let limiter = still(handle, &limits, START);
            async move {
                let answers = limiter.check_many(["k"; 10]).await;
                ensure_eq!(answers.len(), 10, "answers to ten requests");
                let each = answers.into_iter().map(|answer| admitted(promises, answer));
                Ok(each.collect::<CaseResult<Vec<_>>>()?.into_iter().filter(|admitted| *admitted).count()
                    as u64)
            }
        })
        .await?;
        let at_once: u64 = found.iter().sum();
        ensure!(
            at_once <= 60,
            "{at_once} were admitted of 60, by 16 batches of ten through {HANDLES} handles, {} on key \"k\"",
            reported(&limits)
        );
        if promises.decisions != Decisions::Conservative {
            ensure_eq!(at_once, 60, "admitted at once, {kind:?}");
        }
        let later = Trial::new(&bench, limits).drain(61).await?;
        ensure_eq!(at_once + later, 60, "admitted at once and one by one after it, {kind:?}");
    }
    batches_of_slices(bench).await
}

/// Batches of slices of three limits on two keys, of which fifty fit.
async fn batches_of_slices(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    let promises = on_several_keys(bench.promises());
    let three = limits(&THREE)?;
    for round in 0..4 {
        let both = ["left", "right"].map(|key| format!("{key} {round}"));
        let found = storm(&handles, 16, |handle, number| {
            let limiter = still(handle, &three, START);
            let [mut first, mut second] = both.clone();
            async move {
                if number % 2 == 1 {
                    std::mem::swap(&mut first, &mut second);
                }
                let mut count = 0;
                for answer in limiter.check_many((0..10).map(|_| Request::new(&first).and(&second))).await {
                    count += u64::from(admitted(promises, answer)?);
                }
                Ok(count)
            }
        })
        .await?;
        let taken: u64 = found.iter().sum();
        ensure!(
            taken <= 50,
            "{taken} slices were admitted of 50, by 16 batches of ten slices of {} on two keys through {HANDLES} handles",
            reported(&three)
        );
        if promises.decisions.are_exact_on_one_node() {
            ensure_eq!(taken, 50, "slices admitted in batches");
        }
        for (text, all) in THREE.into_iter().zip([300, 50, 70]) {
            let trial = Trial::new(&bench, limit(text)?);
            for key in &both {
                let left = trial.key(key).left().await?;
                ensure_eq!(left, all - taken, "left of {text} to {key} after {taken} slices of three limits");
            }
        }
    }
    Ok(())
}

async fn seen_at_once(bench: Bench) -> CaseResult {
    let handles = bench.handles(HANDLES).await?;
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(20, HOUR)?);
        for (taken, handle) in (1..=20).zip(handles.iter().cycle()) {
            let left = trial.on(handle.clone()).admit(1).await?.remaining();
            ensure_eq!(left, 20 - taken, "left after {taken} units on {HANDLES} handles in turn, {kind:?}");
        }
        trial.refuse(1).await?;
    }
    Ok(())
}
