//! Meters survive as long as they can influence a decision, and are removed by themselves soon after.

use std::time::Duration;

use ratelimit_core::{Request, SystemClock, Timestamp};
use tokio::time::Instant;

use crate::bench::{Bench, limit};
use crate::case::{Case, Need};
use crate::clock::{DAY, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::in_time::is_long_ago;
use crate::kind::Kind;
use crate::subject::Handle;
use crate::trial::Trial;

type Limiter = ratelimit_core::RateLimiter<Handle, SystemClock>;

/// The time until an irrelevant meter must be removed, with traffic on other keys.
const SOON: Duration = Duration::from_secs(30);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "memory/forgotten",
        "Meters are removed while others are in use, at the latest 30 s and two periods after their last charge.",
        |bench, kind| forgotten(bench, kind, Duration::from_secs(1), 40),
    );
    cases.extend([
        Case::new(
            "memory/forgotten-tiny-periods",
            "Meters of a few milliseconds are removed too, not kept forever because their lifetime rounds to zero.",
            |bench| forgotten(bench, Kind::Sliding, Duration::from_millis(4), 100),
        ),
        Case::new("memory/forgotten-thousands", "Two thousand keys are removed, too.", |bench| {
            forgotten(bench, Kind::Bucket, Duration::from_millis(500), 2_000)
        }),
    ]);
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "memory/not-early-asked-often",
        "In real time: an exhausted meter under constant requests admits at the announced instant, not earlier.",
        |bench, kind| not_early(bench, kind, Duration::from_millis(25)),
    ));
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "memory/not-early-left-alone",
        "In real time: an idle exhausted meter still counts right before the announced instant.",
        left_alone,
    ));
    for case in &mut cases {
        *case = case.clone().any_time();
    }
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "memory/counts-until-reset",
        "A meter is as good as new at its reset instant, and not a nanosecond earlier.",
        |bench, kind| until_reset(bench, kind, Duration::from_secs(60)),
    ));
    cases.extend(Case::for_each(
        &Kind::RENEWED,
        "memory/forty-days",
        "A limit of forty days still counts: no lifetime is truncated or mistaken for a date.",
        |bench, kind| until_reset(bench, kind, DAY * 40),
    ));
    cases.extend(others());
    cases
}

fn others() -> Vec<Case> {
    vec![
        Case::new("memory/ten-years", "The longest period still counts.", |bench| {
            until_reset(bench, Kind::Sliding, DAY * 3_660)
        }),
        Case::new(
            "memory/periods-of-the-calendar",
            "A day, a month and a year of the calendar count until their last nanosecond, also if nobody asks meanwhile.",
            calendar,
        ),
        Case::new(
            "memory/clean-up-keeps-what-counts",
            "Thousands of meters expire around one that still counts.",
            keeps_what_counts,
        ),
        Case::new("memory/reset-forgets", "A reset meter takes no space.", reset_forgets),
        Case::new(
            "memory/used-again",
            "A meter that is used again after it expired is not removed by its former lifetime.",
            used_again,
        )
        .any_time(),
        Case::new(
            "memory/expired-state-does-not-count",
            "Expired state that is not yet removed does not count.",
            expired,
        ),
        Case::new(
            "memory/idle-just-short-of-the-lifetime",
            "After an idle time just short of a meter's lifetime no more than the burst is admitted.",
            idle_just_short,
        )
        .needs(Need::CallerTime),
    ]
}

async fn forgotten(bench: Bench, kind: Kind, period: Duration, keys: usize) -> CaseResult {
    ensure_eq!(bench.meters().await?, 0, "meters in a fresh space");
    let limiter = bench.real(kind.limit(5, period)?);
    let names: Vec<String> = (0..keys).map(|number| format!("user:{number}")).collect();
    // In several batches, because a store may need a round trip for each command.
    for names in names.chunks(250) {
        for answer in limiter.check_many(names).await {
            let decision = answer?;
            ensure!(decision.allowed(), "the first claim on a key was refused: {decision:?}");
        }
    }
    ensure!(bench.meters().await? > 0, "no meter is stored after {keys} charges");
    gone_soon(&bench, period).await
}

/// Checks that all meters are removed soon after this period, with traffic on another key.
pub(super) async fn gone_soon(bench: &Bench, period: Duration) -> CaseResult {
    let traffic = bench.real(limit("1000000/s fixed name traffic")?);
    let began = Instant::now();
    loop {
        for answer in traffic.check_many(["traffic"; 100]).await {
            answer?;
        }
        traffic.reset("traffic").await?;
        let left = bench.meters().await?;
        if left == 0 {
            return Ok(());
        }
        let since = began.elapsed();
        ensure!(since < SOON + period * 2, "{left} meters of {period:?} are still there after {since:?}");
        // Not more often: many such cases run at once, and some servers take long to list their meters.
        pause(Duration::from_millis(200)).await;
    }
}

/// Exhausts a meter in real time, and returns the instant at which a unit fits again.
async fn fill(limiter: &Limiter) -> CaseResult<Timestamp> {
    let full = Request::new("k").cost(3);
    limiter.charge(&full).await?;
    let reported = limiter.would_allow(&full).await?;
    let Some(wait) = reported.retry_after() else {
        return Err(Failure::new(format!("a cost of 3 of 3 is told never to fit: {reported:?}")));
    };
    Ok(reported.now() + wait)
}

/// Checks that all units fit from the announced instant on, and not earlier. Returns whether it has come.
async fn as_told(limiter: &Limiter, fits_at: Timestamp) -> CaseResult<bool> {
    let asked = Instant::now();
    let decision = limiter.would_allow(Request::new("k").cost(3)).await?;
    let now = decision.now();
    // After a long wait the store may have removed the meter by its server's clock.
    ensure!(
        decision.allowed() == (now >= fits_at) || is_long_ago(asked),
        "admitted at {now:?}: {}, told to come at {fits_at:?}",
        decision.allowed()
    );
    Ok(now >= fits_at)
}

async fn not_early(bench: Bench, kind: Kind, every: Duration) -> CaseResult {
    let limiter = bench.real(kind.limit(3, Duration::from_millis(1_600))?);
    let fits_at = fill(&limiter).await?;
    loop {
        if as_told(&limiter, fits_at).await? {
            return Ok(());
        }
        pause(every).await;
    }
}

async fn left_alone(bench: Bench, kind: Kind) -> CaseResult {
    let limiter = bench.real(kind.limit(3, Duration::from_millis(3_200))?);
    let full = Request::new("k").cost(3);
    let fits_at = fill(&limiter).await?;
    let reported = limiter.would_allow(&full).await?;
    let wait = fits_at.since(reported.now());
    pause(wait.saturating_sub(Duration::from_millis(150))).await;
    for _ in 0..2 {
        as_told(&limiter, fits_at).await?;
        pause(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn until_reset(bench: Bench, kind: Kind, period: Duration) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(4, period)?);
    // From the start of a window, so that the meter of a fixed window has its full lifetime.
    trial.advance(trial.key("begin").admit(1).await?.reset_after());
    let reset = trial.admit(4).await?.reset_after();
    trial.refuse(1).await?;
    // Long enough for the end of a lifetime that is mistaken for a date or for zero.
    pause(Duration::from_millis(if period > DAY { 1_500 } else { 1 })).await;
    trial.refuse(1).await?;
    trial.advance(reset - Duration::from_nanos(1));
    let left = trial.left().await?;
    ensure!(left < 4, "all is left a nanosecond before the reset after {reset:?}");
    trial.refuse(4).await?;
    trial.advance(Duration::from_nanos(1)).expect_left(4).await?;
    trial.admit(4).await?;
    Ok(())
}

async fn calendar(bench: Bench) -> CaseResult {
    for text in ["4/day in UTC", "4/month in UTC", "4/year in UTC"] {
        let trial = Trial::new(&bench, limit(text)?).key(text);
        let reset = trial.admit(4).await?.reset_after();
        pause(Duration::from_millis(1_200)).await;
        trial.advance(reset - Duration::from_nanos(1)).refuse(1).await?;
        trial.advance(Duration::from_nanos(1)).expect_left(4).await?;
    }
    Ok(())
}

async fn keeps_what_counts(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3/d log")?);
    let short = trial.under(limit("1/s burst 1")?);
    trial.admit(3).await?;
    for round in 0..30 {
        trial.at(Duration::from_secs(20 * round));
        let keys: Vec<String> = (0..100).map(|number| format!("{round} {number}")).collect();
        for answer in short.limiter.check_many(&keys).await {
            ensure!(answer?.allowed(), "the first claim on a key was refused");
        }
        trial.refuse(1).await?;
    }
    Ok(())
}

async fn reset_forgets(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(3, DAY)?);
        trial.admit(3).await?;
        ensure!(bench.meters().await? > 0, "no meter is stored after a charge, {kind:?}");
        trial.limiter.reset("k").await?;
        ensure_eq!(bench.meters().await?, 0, "meters after the only one was reset, {kind:?}");
        trial.expect_left(3).await?;
        trial.limiter.reset("unknown").await?;
    }
    Ok(())
}

async fn used_again(bench: Bench) -> CaseResult {
    let limiter = bench.real(limit("3/2s log")?);
    let traffic = bench.real(limit("1000000/s fixed name traffic")?);
    fill(&limiter).await?;
    pause(Duration::from_millis(2_100)).await;
    let fits_at = fill(&limiter).await?;
    loop {
        for answer in traffic.check_many(["traffic"; 50]).await {
            answer?;
        }
        if as_told(&limiter, fits_at).await? {
            return Ok(());
        }
        pause(Duration::from_millis(100)).await;
    }
}

async fn expired(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(4, Duration::from_secs(60))?);
        for _ in 0..5 {
            let reset = trial.admit(4).await?.reset_after();
            trial.advance(reset);
            ensure_eq!(trial.left().await?, 4, "left at the reset, {kind:?}");
        }
    }
    Ok(())
}

async fn idle_just_short(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(10, Duration::from_secs(60))?);
        for short in [1, 1_000, 1_000_000, 100_000_000] {
            let trial = trial.key(format!("{short}"));
            let reset = trial.admit(10).await?.reset_after();
            trial.advance(reset.saturating_sub(Duration::from_nanos(short)));
            let burst = trial.drain(30).await?;
            ensure!(
                burst <= 10,
                "{burst} were admitted at once of 10, {short} ns before the reset, {kind:?}"
            );
            trial.advance(Duration::from_secs(600));
        }
    }
    Ok(())
}
