//! Bans in real time, also by the server's clock, and bans that last long.

use std::time::Duration;

use ratelimit_core::store::{CLOCK_SLACK, Time};
use ratelimit_core::{Clock, Decision, Limits, ManualClock, RateLimiter, Request, SystemClock, Timestamp};
use tokio::time::Instant;

use super::memory::gone_soon;
use crate::bench::{Bench, limits};
use crate::case::{Case, Need};
use crate::clock::{DAY, DAYS, SECOND, START, TICK, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::in_time::is_long_ago;
use crate::subject::Handle;
use crate::trial::Trial;

/// Two units that do not come back meanwhile, and bans of 1.5, 3 and 4 seconds.
const BANNING: [&str; 2] = ["2/3000d log", "ban 1500ms after 2 in 1h growing 2 up to 4s"];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "bans/in-real-time",
            "In real time, by the caller's clock or the server's: a ban holds until its announced instant, for every handle, and not \
             longer, and each further one is longer.",
            in_real_time,
        )
        .any_time()
        .needs(Need::ExactPerKey),
        Case::new(
            "bans/counts-after-thirteen-seconds",
            "In real time: a long ban, a refusal that counts towards one and an earlier ban are still known after thirteen seconds.",
            after_a_pause,
        )
        .any_time()
        .needs(Need::ExactPerKey)
        .slow(),
        Case::new(
            "bans/forgotten",
            "In real time: the meters of bans, of refusals and of earlier bans are removed after their time.",
            forgotten,
        )
        .any_time()
        .needs(Need::ExactPerKey),
        Case::new(
            "bans/forty-days-and-a-year",
            "Bans of forty days and of 366 hold to the nanosecond, and refusals of forty days ago count.",
            long,
        ),
    ]
}

type Limiter = RateLimiter<Handle, BansClock>;

/// The clock of a caller: right, or wrong by years if the store decides by its server's clock.
#[derive(Clone, Debug)]
enum BansClock {
    Right(SystemClock),
    Wrong(ManualClock),
}

impl Clock for BansClock {
    fn now(&self) -> Timestamp {
        match self {
            Self::Right(clock) => clock.now(),
            Self::Wrong(clock) => clock.now(),
        }
    }
}

/// Limiters on several handles. On a store that decides by its server's clock their clocks differ by years.
async fn limiters(bench: &Bench, limits: &Limits) -> CaseResult<Vec<Limiter>> {
    let right = SystemClock::new();
    let mut clocks = vec![BansClock::Right(right), BansClock::Right(right)];
    if bench.promises().time == Time::Server {
        clocks.push(BansClock::Wrong(ManualClock::at(START)));
        clocks.push(BansClock::Wrong(ManualClock::at(right.now() + DAYS)));
    }
    let handles = bench.handles(2).await?;
    let limiter = |(clock, handle): (BansClock, &Handle)| {
        RateLimiter::new(handle.clone(), limits.clone()).with_clock(clock)
    };
    Ok(clocks.into_iter().zip(handles.iter().cycle()).map(limiter).collect())
}

/// How long the key is banned.
fn ban(decision: &Decision<'_>) -> Option<Duration> {
    let ban = decision.each().find(|status| status.rule().is_ban() && !status.allowed());
    ban.map(|status| status.retry_after().unwrap_or(Duration::MAX))
}

/// Is refused until a ban of this length begins. Returns its end.
async fn banned(limiters: &[Limiter], key: &str, refusals: usize, length: Duration) -> CaseResult<Timestamp> {
    let both = Request::new(key).cost(2);
    let charged = limiters[0].check(&both).await?;
    ensure!(charged.allowed(), "2 of 2 were refused: {charged:?}");
    for (number, limiter) in (1..=refusals).zip(limiters.iter().rev().cycle()) {
        let asked = Instant::now();
        let refused = limiter.check(&both).await?;
        ensure!(!refused.allowed(), "4 of 2 were admitted: {refused:?}");
        ensure_eq!(
            ban(&refused).is_some(),
            number == refusals,
            "whether refusal {number} of {refusals} bans"
        );
        if let Some(found) = ban(&refused) {
            // A ban begins when the refusal is counted, which is a call of its own.
            let late = asked.elapsed() + CLOCK_SLACK / 10;
            ensure!(
                found >= length && found <= length + late,
                "a ban of {length:?} holds for {found:?}: {refused:?}"
            );
            // From now on, only the ban refuses.
            limiters[0].refund(&charged).await?;
            let announced = refused.now() + found;
            let banned = limiters[0].would_allow(key).await?;
            let Some(left) = ban(&banned) else {
                ensure!(is_long_ago(asked), "no ban after {refused:?}: {banned:?}");
                return Ok(announced);
            };
            let end = banned.now() + left;
            ensure!(
                end >= announced && end <= announced + late,
                "a ban that was announced until {announced:?}, {late:?} later at most, holds until {end:?}: {banned:?}"
            );
            return Ok(end);
        }
    }
    Err(Failure::new("no refusal bans"))
}

async fn in_real_time(bench: Bench) -> CaseResult {
    let limiters = limiters(&bench, &limits(&BANNING)?).await?;
    for length in [1_500, 3_000, 4_000].map(Duration::from_millis) {
        let end = banned(&limiters, "k", 2, length).await?;
        'banned: loop {
            for limiter in &limiters {
                let asked = Instant::now();
                let peeked = limiter.would_allow("k").await?;
                ensure!(
                    peeked.allowed() == (peeked.now() >= end) || is_long_ago(asked),
                    "a key that is banned until {end:?}: {peeked:?}"
                );
                if peeked.allowed() {
                    break 'banned;
                }
                let other = limiter.would_allow("other").await?;
                ensure!(other.allowed(), "another key is banned: {other:?}");
            }
            pause(Duration::from_millis(60)).await;
        }
    }
    limiters[0].reset("k").await?;
    // The first one after a reset.
    banned(&limiters, "k", 2, Duration::from_millis(1_500)).await?;
    Ok(())
}

async fn after_a_pause(bench: Bench) -> CaseResult {
    let of = |text: &str| limits(&["2/3000d log", text]);
    let long = limiters(&bench, &of("ban 300d after 2 in 300d")?).await?;
    let growing = limiters(&bench, &of("ban 1s after 1 in 1h growing 3 up to 10d name growing")?).await?;
    banned(&long, "banned", 2, DAY * 300).await?;
    let both = Request::new("refused").cost(2);
    ensure!(long[0].check(&both).await?.allowed(), "2 of 2 were refused");
    let refused = long[0].check(&both).await?;
    ensure_eq!(ban(&refused), None, "a ban after one refusal");
    banned(&growing, "growing", 1, SECOND).await?;
    pause(super::pauses::PAUSE).await;
    for limiter in &long {
        let peeked = limiter.would_allow("banned").await?;
        ensure!(
            ban(&peeked).is_some(),
            "a ban of 300 days was over after {:?}: {peeked:?}",
            super::pauses::PAUSE
        );
    }
    let refused = long[0].check(&both).await?;
    ensure!(ban(&refused).is_some(), "a refusal was forgotten after {:?}: {refused:?}", super::pauses::PAUSE);
    banned(&growing, "growing", 1, SECOND * 3).await?;
    Ok(())
}

async fn forgotten(bench: Bench) -> CaseResult {
    ensure_eq!(bench.meters().await?, 0, "meters in a fresh space");
    let limits = limits(&["2/500ms fixed", "ban 500ms after 2 in 500ms growing 2 up to 1s"])?;
    let limiters = limiters(&bench, &limits).await?;
    for key in 0..20 {
        for _ in 0..5 {
            limiters[0].check(&format!("{key}")).await?;
        }
    }
    ensure!(bench.meters().await? > 0, "no meter is stored after refusals");
    // The longest is the memory of earlier bans: twice the longest ban for each.
    gone_soon(&bench, SECOND * 4).await
}

async fn long(bench: Bench) -> CaseResult {
    for (text, days) in [("ban 40d after 2 in 41d", 40), ("ban 366d after 2 in 41d", 366)] {
        let trial = Trial::new(&bench, limits(&["1/s log", text])?).key(text);
        trial.admit(1).await?;
        ensure_eq!(ban(&trial.refuse(1).await?), None, "a ban after one refusal");
        trial.advance(DAY * 40).admit(1).await?;
        let refused = trial.refuse(1).await?;
        ensure_eq!(
            ban(&refused),
            Some(DAY * days),
            "how long the second refusal bans, forty days after the first"
        );
        pause(Duration::from_millis(1_200)).await;
        trial.advance(DAY * days - TICK).refuse(1).await?;
        trial.advance(TICK).admit(1).await?;
        trial.limiter.reset(trial.request(1)).await?;
    }
    Ok(())
}
