//! In real time: a server removes no meter that counts, however its lifetimes were written. The pauses are longer than the
//! time that stores add to lifetimes for the clocks of callers.

use std::slice;
use std::time::Duration;

use ratelimit_core::store::Mode;
use ratelimit_core::{Alignment, Clock, SystemClock, Timestamp};

use tokio::time::Instant;

use super::lifetimes::{ALL, WAYS, meters, write};
use super::mirrored::{Mirrored, Part, after, put};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{DAYS, MINUTE, SECOND, pause};
use crate::failure::CaseResult;
use crate::kind::Kind;

/// How long the meters are left alone or charged: a second, the ten seconds that stores may add, and two more.
pub(super) const PAUSE: Duration = Duration::from_secs(13);

/// A period of which three quarters, the whole and the double are each one or two seconds more than a multiple of 2^32
/// milliseconds, or less.
const WRAPS: Duration = Duration::from_millis((4 << 32) + 1_000);

/// The periods of meters that outlive the pause.
const LONG: [Duration; 2] = [DAYS, WRAPS];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "lifetimes/counts-after-thirteen-seconds",
            "In real time: long meters still count, whichever operations wrote them, and whatever lived shortly beside them \
             or in their place. So do meters that are charged all the time.",
            |bench| async move {
                tokio::try_join!(left_alone(&bench, PAUSE), charged_all_the_time(&bench))?;
                Ok(())
            },
        )
        .any_time()
        .slow(),
        Case::new(
            "lifetimes/counts-after-a-minute",
            "In real time: long meters that nobody uses for more than a minute still count, whichever operations wrote them.",
            |bench| async move { left_alone(&bench, MINUTE + SECOND * 2).await },
        )
        .any_time()
        .slow(),
        Case::new(
            "lifetimes/counts-for-the-longest-lease",
            "In real time: a log that limits with different leases share counts for the longest of them, after a charge, a \
             batch or a release under a shorter one.",
            leases,
        )
        .any_time()
        .slow(),
    ]
}

async fn leases(bench: Bench) -> CaseResult {
    let clock = SystemClock::new();
    let mut mirrored = Mirrored::new(&bench);
    let mut written = Vec::new();
    for way in ["a charge", "a batch", "a release"] {
        let under =
            |lease: &str| CaseResult::Ok(Part::new(&limit(&format!("2 at once lease {lease}"))?, way, 1));
        let (short, long) = (under("1s")?, under("1h")?);
        mirrored.set(clock.now());
        if way == "a release" {
            mirrored.claim(Mode::Charge, slice::from_ref(&long)).await?;
            let held = mirrored.claim(Mode::Charge, slice::from_ref(&short)).await?;
            mirrored.refund(&[(short, held.verdicts[0].receipt)]).await?;
        } else {
            mirrored.claim(Mode::Charge, slice::from_ref(&long)).await?;
            let now = mirrored.now();
            mirrored.claim_as_of(now, Mode::Charge, short, way == "a batch").await?;
        }
        written.push((long, way));
    }
    pause(PAUSE).await;
    // Other calls make the store clean up.
    let traffic = Part::new(&Kind::Fixed.limit(1_000, SECOND)?, "traffic", 1);
    for _ in 0..40 {
        put(&bench.store, clock.now(), Mode::Charge, slice::from_ref(&traffic)).await??;
    }
    for (long, way) in written {
        mirrored
            .set(clock.now())
            .stands(&[long], &format!("{PAUSE:?} and {way} under a shorter lease"))
            .await?;
    }
    Ok(())
}

async fn left_alone(bench: &Bench, wait: Duration) -> CaseResult {
    let clock = SystemClock::new();
    let mut waiting = Vec::new();
    for period in LONG {
        for (way, name) in WAYS {
            for kind in bench.kinds() {
                let key = format!("{name} of {kind:?} for {period:?}");
                let mut short = kind.builder(1_000, SECOND).name("long");
                if kind.has_burst() {
                    short = short.burst(ALL);
                }
                if kind == Kind::Steps {
                    // So that a step has as many units as the burst.
                    short = short.step(Duration::from_millis(ALL));
                }
                let mut mirrored = Mirrored::new(bench);
                // Permits under another lease share their log, which another case tests.
                if kind.is_renewed() && kind != Kind::Permits {
                    let part = Part::new(&short.build()?, &key, 1);
                    mirrored.set(clock.now()).claim(Mode::Charge, &[part]).await?;
                }
                waiting.push((mirrored, way, kind, period, key));
            }
        }
    }
    // Until what the short limits have charged has drained.
    pause(Duration::from_millis(5)).await;
    let mut written = Vec::new();
    for (mut mirrored, way, kind, period, what) in waiting {
        let mut long = kind.builder(ALL, period).name("long");
        if kind.is_window() {
            long = long.alignment(begins_at(clock.now(), period));
        }
        let meters = meters(long, Kind::Fixed.builder(1_000, SECOND).name("other"), &what)?;
        let outcome = write(mirrored.set(clock.now()), way, &meters).await;
        outcome.map_err(|failure| after(&what, failure))?;
        written.push((mirrored, meters, what));
    }
    pause(wait).await;
    for (mut mirrored, meters, what) in written {
        mirrored.set(clock.now()).stands(&[meters[0].of(ALL)], &format!("{wait:?} and {what}")).await?;
    }
    Ok(())
}

async fn charged_all_the_time(bench: &Bench) -> CaseResult {
    let mut meters = Vec::new();
    for kind in bench.kinds() {
        for call in ["claims", "batches", "forced charges"] {
            let part = Part::new(&kind.limit(3, SECOND)?, call, 1);
            meters.push(charged_by(bench, call, part));
        }
    }
    futures::future::try_join_all(meters).await?;
    Ok(())
}

async fn charged_by(bench: &Bench, call: &str, part: Part) -> CaseResult {
    let clock = SystemClock::new();
    let began = Instant::now();
    let mut mirrored = Mirrored::new(bench);
    while began.elapsed() < PAUSE {
        let mode = if call == "forced charges" { Mode::Force } else { Mode::Charge };
        let compared = mirrored.claim_as_of(clock.now(), mode, part.clone(), call == "batches").await;
        if !compared.map_err(|failure| after(&format!("{:?} of {call}", began.elapsed()), failure))? {
            return Ok(());
        }
        pause(Duration::from_millis(250)).await;
    }
    Ok(())
}

/// Where windows of this period begin if one begins in this millisecond.
pub(super) fn begins_at(now: Timestamp, period: Duration) -> Alignment {
    let millis = u128::from(now.as_nanos() / 1_000_000) % period.as_millis();
    let earlier = period.as_millis() - millis;
    Alignment::Offset(Duration::from_millis(u64::try_from(earlier).unwrap_or(0)))
}
