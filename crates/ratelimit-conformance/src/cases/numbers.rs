//! The largest numbers, the longest times, and rates in the long run.

use std::time::Duration;

use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::store::Mode;
use ratelimit_core::{Limit, Timestamp};

use super::mirrored::{Mirrored, Part, Slice, put};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{DAY, DAYS, HOUR, START};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

const WINDOWS: [Kind; 4] = [Kind::Fixed, Kind::Sliding, Kind::Segmented, Kind::Strict];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "numbers/cost-above-the-limit",
        "The store itself refuses a cost above the limit forever, and charges nothing.",
        cost_above,
    );
    cases.extend([
        Case::new("numbers/largest-quota", "The largest quota is counted to the last unit.", largest_quota)
            .any_time(),
        Case::new(
            "numbers/quota-of-zero",
            "A quota of zero admits nothing, alone, in a slice or in a batch, also if the limit was higher before and is again.",
            quota_of_zero,
        )
        .any_time(),
        Case::new(
            "numbers/weights-are-exact",
            "The weight of the previous window is exact for numbers beyond the precision of floats.",
            weights,
        ),
        Case::new(
            "numbers/longest-period",
            "Ten years with the largest quota are weighted to the unit.",
            longest,
        ),
        Case::new("numbers/million-a-second", "A bucket of 1,000,000 a second keeps its rate.", million),
        Case::new(
            "numbers/odd-rates-are-never-exceeded",
            "Rates that do not divide a second are not exceeded.",
            odd_rates,
        ),
        Case::new("numbers/thousand-a-second-limits", "Rates of 1000/s and more do limit.", thousand),
        Case::new("numbers/largest-burst", "A bucket that takes 73 years to drain.", largest_burst),
        Case::new(
            "numbers/burst-of-the-largest-number",
            "A bucket that holds the largest number.",
            huge_burst,
        ),
        Case::new(
            "numbers/near-the-end-of-time",
            "The last hour that can be given as now, and the last instant.",
            end,
        ),
        Case::new("numbers/near-the-epoch", "The first instants after 1970 began.", epoch),
        Case::new("numbers/idle-for-decades", "After idle decades exactly one burst is admitted.", idle),
        Case::new(
            "numbers/forced-beyond-everything",
            "Forced charges of the largest cost that is counted, and of larger ones, again and again.",
            beyond,
        ),
        Case::new(
            "numbers/long-log",
            "A log of twenty thousand units, taken ten thousand at once.",
            long_log,
        ),
        Case::new("numbers/most-segments", "A window of 3,600 segments.", most_segments),
        Case::new("numbers/shortest-window", "A window of one microsecond.", shortest),
        Case::new(
            "numbers/remaining-never-above-the-limit",
            "`remaining` never exceeds the limit.",
            never_above,
        ),
    ]);
    cases
}

async fn cost_above(bench: Bench, kind: Kind) -> CaseResult {
    let limit = kind.limit(5, HOUR)?;
    let trial = Trial::new(&bench, limit.clone());
    for used in [0, 2, 3] {
        for cost in [6, 7, 10_000, MAX_UNITS] {
            let parts = [Part::new(&limit, "k", cost)];
            for mode in [Mode::Charge, Mode::Peek] {
                let answer = put(&bench.store, START, mode, &parts).await??;
                ensure!(!answer.admitted, "{mode:?} of {cost} was admitted by a limit of 5: {answer:?}");
                ensure_eq!(answer.verdicts[0].fits_at, None, "when a cost of {cost} would fit");
            }
        }
        if used > 0 {
            trial.admit(used).await?;
        }
    }
    trial.expect_left(0).await
}

async fn largest_quota(bench: Bench) -> CaseResult {
    for kind in WINDOWS {
        let trial = Trial::new(&bench, kind.limit(MAX_UNITS, DAYS)?);
        trial.admit(MAX_UNITS - 2).await?;
        trial.refuse(3).await?;
        trial.expect_left(2).await?;
        trial.admit(1).await?;
        trial.admit(1).await?;
        trial.refuse(1).await?;
        trial.key("at once").admit(MAX_UNITS).await?;
    }
    Ok(())
}

async fn quota_of_zero(bench: Bench) -> CaseResult {
    let mut mirrored = Mirrored::new(&bench);
    for kind in WINDOWS {
        let part = |quota| kind.limit(quota, DAYS).map(|limit| Part::new(&limit, kind.name(), 1));
        let (ten, none) = (part(10)?, part(0)?);
        let other = Part::new(&kind.builder(10, DAYS).name("other").build()?, kind.name(), 1);
        for used in [0, 4] {
            if used > 0 {
                mirrored.claim(Mode::Charge, &[ten.of(used)]).await?;
            }
            for (mode, parts) in [
                (Mode::Charge, vec![none.clone()]),
                (Mode::Peek, vec![none.clone()]),
                (Mode::Charge, vec![other.clone(), none.clone()]),
            ] {
                let refused = mirrored.claim(mode, &parts).await?;
                ensure!(!refused.admitted, "{mode:?} was admitted by a quota of zero, {kind:?}: {refused:?}");
            }
            let slice = |mode, part: &Part| Slice { now: mirrored.now(), mode, parts: vec![part.clone()] };
            let batch = [(Mode::Charge, &none), (Mode::Charge, &other), (Mode::Peek, &none)];
            mirrored.many(&batch.map(|(mode, part)| slice(mode, part))).await?;
            mirrored.stands(&[none.clone(), other.clone(), ten.clone()], "a quota of zero").await?;
        }
        let rest = mirrored.claim(Mode::Charge, &[ten.of(6)]).await?;
        ensure!(rest.admitted, "6 of 6 were refused after a quota of zero, {kind:?}: {rest:?}");
        mirrored.claim(Mode::Charge, &[ten]).await?; // refused
    }
    Ok(())
}

/// The units that the previous window leaves, in integers.
fn left(limit: u64, previous: u64, covered: Duration, period: Duration) -> u64 {
    let weighted = (u128::from(previous) * covered.as_nanos()).div_ceil(period.as_nanos());
    limit - u64::try_from(weighted).unwrap_or(limit)
}

async fn check_weights(bench: &Bench, period: Duration, key: &str) -> CaseResult {
    let trial = Trial::new(bench, Limit::sliding_window(MAX_UNITS, period).build()?);
    // The start of a window.
    let begin = trial.key("begin").admit(1).await?.reset_after();
    let start = trial.now() + begin;
    let mut random = bench.random();
    for round in 0..20 {
        let trial = trial.key(format!("{key} {round}"));
        let previous = MAX_UNITS - random.below(1 << 20);
        trial.set(start).admit(previous).await?;
        for _ in 0..3 {
            let elapsed = Duration::from_nanos(random.below(u64::try_from(period.as_nanos())?));
            trial.set(start + period + elapsed);
            trial.expect_left(left(MAX_UNITS, previous, period - elapsed, period)).await?;
        }
    }
    Ok(())
}

async fn weights(bench: Bench) -> CaseResult {
    check_weights(&bench, HOUR, "hour").await?;
    check_weights(&bench, Duration::from_micros(86_399_999_983), "prime").await
}

async fn longest(bench: Bench) -> CaseResult {
    check_weights(&bench, DAY * 3_660, "ten years").await
}

async fn million(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1000000/s burst 1000")?);
    trial.admit(1_000).await?;
    trial.refuse(1).await?;
    for step in 1..=300 {
        trial.at(Duration::from_millis(step)).admit(1_000).await?;
        let refused = trial.refuse(1).await?;
        ensure_eq!(
            refused.retry_after(),
            Some(Duration::from_micros(1)),
            "retry-after at a million a second"
        );
    }
    trial.advance(Duration::from_micros(1)).admit(1).await?;
    Ok(())
}

async fn odd_rates(bench: Bench) -> CaseResult {
    for quota in [3_u64, 7, 997, 65_537, 999_983] {
        let trial =
            Trial::new(&bench, Limit::token_bucket(quota, Duration::from_secs(1)).burst(quota).build()?);
        let trial = trial.key(format!("{quota}"));
        trial.admit(quota).await?;
        let mut taken = 0;
        for step in 1..=20 {
            trial.at(Duration::from_millis(step * 500));
            let fits = trial.left().await?;
            if fits > 0 {
                trial.admit(fits).await?;
            }
            taken += fits;
            trial.refuse(1).await?;
        }
        let most = quota * 10;
        ensure!(taken <= most, "{taken} were admitted in 10 s at {quota}/s");
        ensure!(taken * 1_000 >= most * 999 - 1_000, "only {taken} were admitted in 10 s at {quota}/s");
    }
    Ok(())
}

async fn thousand(bench: Bench) -> CaseResult {
    for text in
        ["1000/s burst 5", "50000/s burst 5", "1000000/s burst 5", "1000/s", "1000/s fixed", "1000/s log"]
    {
        let trial = Trial::new(&bench, limit(text)?).key(text);
        let most = trial.limiter.limits()[0].burst();
        trial.admit(most).await?;
        trial.refuse(1).await?;
    }
    Ok(())
}

async fn largest_burst(bench: Bench) -> CaseResult {
    // The number of whole days in 2^61 ns.
    let most = (1_u64 << 61) / 86_400_000_000_000;
    for kind in [Kind::Bucket, Kind::Leaky, Kind::Queue] {
        let trial = Trial::new(&bench, kind.builder(1, DAY).burst(most).build()?);
        trial.admit(most).await?;
        trial.refuse(1).await?;
        trial.advance(DAY - Duration::from_nanos(1)).refuse(1).await?;
        trial.advance(Duration::from_nanos(1)).admit(1).await?;
        trial.advance(DAY * 1_000).expect_left(1_000).await?;
    }
    Ok(())
}

async fn huge_burst(bench: Bench) -> CaseResult {
    let trial =
        Trial::new(&bench, Limit::token_bucket(1_000_000, Duration::from_secs(1)).burst(MAX_UNITS).build()?);
    trial.admit(MAX_UNITS - 1).await?;
    trial.admit(1).await?;
    trial.refuse(1).await?;
    trial.advance(Duration::from_nanos(1_234_567_000)).expect_left(1_234_567).await
}

async fn end(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(5, DAY * 3_660)?);
        let hour = Timestamp::from_nanos(Timestamp::MAX.as_nanos() - 3_600_000_000_000);
        trial.set(hour).admit(2).await?;
        trial.set(Timestamp::MAX).admit(1).await?;
        trial.refuse(3).await?;
        trial.admit(2).await?;
        trial.refuse(1).await?;
        ensure_eq!(trial.left().await?, 0, "left at the last instant, {kind:?}");
    }
    Ok(())
}

async fn epoch(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(2, Duration::from_secs(60))?);
        trial.set(Timestamp::EPOCH).admit(1).await?;
        trial.set(Timestamp::from_nanos(1)).admit(1).await?;
        trial.refuse(1).await?;
        trial.wait_exactly(1).await?;
    }
    Ok(())
}

async fn idle(bench: Bench) -> CaseResult {
    for kind in bench.renewed() {
        let trial = Trial::new(&bench, kind.limit(5, Duration::from_secs(1))?);
        for now in [Timestamp::from_secs(1), START, Timestamp::MAX] {
            trial.set(now).admit(1).await?;
            ensure_eq!(trial.drain(20).await?, 4, "admitted at once after the first, {kind:?} at {now:?}");
            trial.refuse(1).await?;
        }
    }
    Ok(())
}

async fn beyond(bench: Bench) -> CaseResult {
    let mut mirrored = Mirrored::new(&bench);
    for kind in bench.kinds() {
        for cost in [MAX_UNITS, MAX_UNITS + 1, u64::MAX] {
            let part = [Part::new(&kind.limit(1_000, HOUR)?, format!("{cost}"), cost)];
            for _ in 0..3 {
                let forced = mirrored.claim(Mode::Force, &part).await?;
                ensure_eq!(
                    (forced.admitted, forced.verdicts[0].remaining),
                    (true, 0),
                    "admitted and left when {cost} were forced, {kind:?}"
                );
            }
            mirrored.claim(Mode::Charge, &part).await?;
            let refused = mirrored.claim(Mode::Charge, &[part[0].of(1)]).await?;
            ensure!(
                !refused.admitted && refused.verdicts[0].fits_at.is_some() == kind.is_renewed(),
                "a unit after {cost} were forced, {kind:?}: {refused:?}"
            );
            mirrored.reset(&part).await?;
            mirrored.stands(&part, &format!("a reset of {cost}, {kind:?}")).await?;
            let forced = mirrored.claim(Mode::Force, &part).await?;
            mirrored.refund(&[(part[0].clone(), forced.verdicts[0].receipt)]).await?;
            mirrored.stands(&part, &format!("a refund of {cost}, {kind:?}")).await?;
            mirrored.reset(&part).await?;
        }
    }
    Ok(())
}

async fn long_log(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("20000/min log")?);
    trial.admit(10_000).await?;
    trial.at(Duration::from_secs(1)).admit(9_999).await?;
    trial.refuse(2).await?;
    trial.admit(1).await?;
    let wait = trial.wait_exactly(5_000).await?;
    ensure_eq!(wait, Duration::from_secs(59) + Duration::from_nanos(1), "how long the first units stay");
    trial.expect_left(5_000).await
}

async fn most_segments(bench: Bench) -> CaseResult {
    for text in ["100/h precision 1s", "100/h precision 1s strict"] {
        let trial = Trial::new(&bench, limit(text)?);
        for step in 0..100 {
            trial.at(Duration::from_secs(36 * step)).admit(1).await?;
        }
        trial.at(Duration::from_secs(3_599)).refuse(1).await?;
        trial.at(Duration::from_secs(3_601)).expect_left(1).await?;
        trial.at(Duration::from_secs(3_601 + 36)).expect_left(2).await?;
        trial.at(Duration::from_secs(7_200)).expect_left(100).await?;
    }
    Ok(())
}

async fn shortest(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, Limit::fixed_window(2, Duration::from_micros(1)).build()?);
    for step in 0..10 {
        trial.at(Duration::from_micros(step)).admit(2).await?;
        trial.advance(Duration::from_nanos(999)).refuse(1).await?;
    }
    Ok(())
}

async fn never_above(bench: Bench) -> CaseResult {
    let mut random = bench.random();
    for kind in bench.kinds() {
        let trial = Trial::new(&bench, kind.limit(9, Duration::from_secs(9))?);
        for _ in 0..40 {
            trial.advance(Duration::from_millis(random.below(4_000)));
            let decision = trial.ask(random.between(1, 9)).await?;
            let (limit, left) = (decision.limit(), decision.remaining());
            ensure!(limit == 9 && left <= limit, "{left} of {limit} left, {kind:?}");
            if random.chance(30) {
                // A double refund is a mistake of the caller, but must not exceed the limit.
                trial.limiter.refund(&decision).await?;
                trial.limiter.refund(&decision).await?;
                ensure!(trial.left().await? <= 9, "more left than the limit after a refund, {kind:?}");
            }
        }
    }
    Ok(())
}
