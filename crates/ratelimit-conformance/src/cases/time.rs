//! Time never runs backwards for a meter.

use std::time::Duration;

use ratelimit_core::Limits;
use ratelimit_core::store::{CLOCK_SLACK, Mode};

use super::atomic::still;
use super::mirrored::{Part, put};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::{MINUTE, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

const SLACK: Duration = CLOCK_SLACK;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "time/late-claim-takes-nothing-twice",
        "A late claim is decided as of the newest charge: an exhausted meter stays exhausted.",
        takes_nothing_twice,
    );
    cases.extend([
        Case::new(
            "time/late-claim-in-a-new-window",
            "A window that has started for one caller has started for all.",
            new_window,
        ),
        Case::new(
            "time/late-claim-after-a-token-came-back",
            "A token that came back and was taken does not come back again.",
            token,
        ),
        Case::new(
            "time/late-claim-in-a-log",
            "A late unit of a log expires with the newest, not earlier.",
            log,
        ),
        Case::new(
            "time/step-back-inside-the-burst",
            "A clock that steps back causes no refusal while burst is left.",
            inside_the_burst,
        ),
        Case::new(
            "time/refusals-and-peeks-do-not-move-time",
            "Only a charge sets the newest instant.",
            only_charges,
        ),
        Case::new(
            "time/answers-tell-the-callers-instant",
            "The answer's `now` is the caller's time, even if the claim is late.",
            callers_instant,
        ),
    ]);
    for case in &mut cases {
        *case = case.clone().needs(Need::OrderedTime);
    }
    cases.extend([
        Case::new(
            "time/skewed-callers-are-bounded",
            "Callers whose clocks differ by a second together get at most one quota per window.",
            skewed,
        ),
        Case::new(
            "time/windows-are-the-same-for-all",
            "The windows of all handles start at the same instants.",
            same_windows,
        ),
        Case::new("time/forward-leaps", "A clock that leaps years ahead finds fresh meters.", leaps),
        Case::new(
            "time/unordered-steps-back-are-bounded",
            "A store that does not detect late claims admits at most one quota per window.",
            unordered,
        )
        .needs(Need::UnorderedTime),
    ]);
    cases
}

async fn takes_nothing_twice(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(5, MINUTE)?);
    let now = MINUTE + Duration::from_millis(500);
    trial.at(now).admit(5).await?;
    for back in [Duration::from_nanos(1), SLACK / 2, SLACK] {
        trial.at(now - back).refuse(1).await?;
    }
    trial.at(now).refuse(1).await?;
    Ok(())
}

async fn new_window(bench: Bench) -> CaseResult {
    for (text, left) in [("5/min fixed", 0), ("5/min", 0), ("5/min precision 15s", 0)] {
        let trial = Trial::new(&bench, limit(text)?);
        trial.at(MINUTE).admit(4).await?;
        // As of the new window: admitted units count there.
        trial.at(MINUTE - SLACK).admit(1).await?;
        trial.at(MINUTE + Duration::from_secs(1)).expect_left(left).await?;
    }
    Ok(())
}

async fn token(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/s burst 2")?);
    trial.admit(2).await?;
    trial.at(Duration::from_secs(1)).admit(1).await?;
    trial.at(Duration::from_millis(500)).refuse(1).await?;
    trial.at(Duration::from_secs(1)).refuse(1).await?;
    trial.at(Duration::from_millis(1_999)).refuse(1).await?;
    trial.at(Duration::from_secs(2)).admit(1).await?;
    Ok(())
}

async fn log(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/min log")?);
    trial.at(Duration::from_secs(10)).admit(1).await?;
    trial.at(Duration::from_secs(9)).admit(1).await?;
    trial.at(Duration::from_millis(69_500)).expect_left(0).await?;
    trial.at(Duration::from_secs(70)).expect_left(0).await?;
    trial.at(Duration::from_secs(70) + Duration::from_nanos(1)).expect_left(2).await
}

async fn inside_the_burst(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(10, MINUTE)?);
        trial.at(MINUTE).admit(3).await?;
        for back in 0..6 {
            trial.at(MINUTE - SLACK * back / 5).admit(1).await?;
        }
        trial.at(MINUTE).expect_left(1).await?;
    }
    Ok(())
}

async fn only_charges(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(2, MINUTE)?);
        trial.at(Duration::from_secs(30)).admit(1).await?;
        let before = trial.limiter.peek("k").await?.reset_after();
        trial.at(Duration::from_millis(30_900)).refuse(2).await?;
        trial.limiter.peek("k").await?;
        trial.ask(0).await?;
        trial.at(Duration::from_secs(30));
        ensure_eq!(trial.limiter.peek("k").await?.reset_after(), before, "reset-after, {kind:?}");
    }
    Ok(())
}

async fn callers_instant(bench: Bench) -> CaseResult {
    let one = [Part::new(&limit("5/min")?, "k", 1)];
    let newest = START + MINUTE;
    for now in [newest, START + (MINUTE - SLACK), newest] {
        let answer = put(&bench.store, now, Mode::Charge, &one).await??;
        ensure_eq!(answer.now, now, "the instant of the answer");
        ensure_eq!(
            answer.verdicts[0].receipt.instant(),
            newest,
            "the receipt of a charge as of the newest instant"
        );
        ensure_eq!(answer.verdicts[0].ready_at, now, "when the units may be used");
    }
    Ok(())
}

async fn skewed(bench: Bench) -> CaseResult {
    let limits: Limits = limit("10/min fixed")?.into();
    let (mut taken, late) = (0, bench.open().await?);
    for step in 0..40 {
        let now = START + Duration::from_millis(55_000 + 250 * step);
        let ahead = still(bench.store.clone(), &limits, now + SLACK);
        let behind = still(late.clone(), &limits, now);
        taken += u32::from(ahead.check("k").await?.allowed());
        taken += u32::from(behind.check("k").await?.allowed());
    }
    ensure!((10..=20).contains(&taken), "{taken} were admitted in two windows of 10");
    Ok(())
}

async fn same_windows(bench: Bench) -> CaseResult {
    let handles = bench.handles(3).await?;
    for text in ["1/min fixed", "1/min fixed offset 7s", "1/min fixed staggered"] {
        let trial = Trial::new(&bench, limit(text)?);
        let end = trial.admit(1).await?.reset_after();
        for handle in &handles {
            let other = trial.on(handle.clone());
            ensure_eq!(other.refuse(1).await?.reset_after(), end, "the end of the window of {text}");
        }
        let begin = trial.advance(end).now();
        trial.on(handles[1].clone()).set(begin).admit(1).await?;
        trial.on(handles[2].clone()).refuse(1).await?;
    }
    Ok(())
}

async fn leaps(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(5, MINUTE)?);
        for year in 0..5 {
            trial.at(Duration::from_secs(year * 366 * 86_400)).admit(5).await?;
            trial.refuse(1).await?;
        }
    }
    Ok(())
}

async fn unordered(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["10/min fixed"])?);
    let mut taken = 0;
    for step in 0..60_u64 {
        let near = MINUTE + Duration::from_millis(step * 10);
        taken += u32::from(trial.at(near).ask(1).await?.allowed());
        taken += u32::from(trial.at(near - SLACK).ask(1).await?.allowed());
    }
    ensure!((10..=20).contains(&taken), "{taken} were admitted in two windows of 10");
    Ok(())
}
