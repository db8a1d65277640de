//! Limits per period of the calendar.

use std::time::Duration;

use ratelimit_core::{Limits, Timestamp};

use super::atomic::exactly;
use crate::bench::{Bench, limit, limits};
use crate::case::Case;
use crate::clock::{HOUR, SECOND};
use crate::failure::{CaseResult, ensure_eq};
use crate::trial::Trial;

/// Midnight in Berlin before the 29th of March 2026, when the clocks are set forward.
const SPRING: Timestamp = Timestamp::from_secs(1_774_738_800);
/// Midnight in Berlin before the 25th of October 2026, when they are set back.
const AUTUMN: Timestamp = Timestamp::from_secs(1_792_879_200);
/// Midnight in Berlin before the first of April 2026.
const APRIL: Timestamp = Timestamp::from_secs(1_774_994_400);
/// Midnight in Berlin before the first of May 2026.
const MAY: Timestamp = Timestamp::from_secs(1_777_586_400);
/// Midnight of UTC before the 29th of February 2028.
const LEAP_DAY: Timestamp = Timestamp::from_secs(1_835_395_200);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "calendar/a-month-ends-at-midnight-of-its-zone",
            "The quota of a month is available again at midnight of the zone, and not a nanosecond earlier.",
            month,
        ),
        Case::new(
            "calendar/days-of-23-and-25-hours",
            "A day on which clocks change is an hour shorter or longer.",
            short_and_long_days,
        ),
        Case::new(
            "calendar/billing-months",
            "A billing month from the 31st begins on the last day of a shorter month.",
            billing_month,
        ),
        Case::new(
            "calendar/refunds-return-to-their-window",
            "A refund in a later window changes neither that window nor an earlier one.",
            refunds,
        ),
        Case::new(
            "calendar/late-callers-count-in-their-window",
            "A caller whose clock is a second behind at the turn of a month counts in the month of its clock.",
            late,
        ),
        Case::new("calendar/a-reset-is-of-this-window", "A reset clears the current window.", reset),
        Case::new(
            "calendar/all-or-nothing-with-others",
            "A month and a minute are charged together or not at all.",
            with_others,
        ),
        Case::new(
            "calendar/the-quota-may-change",
            "A month keeps its count if the quota changes; zones, first days and periods count apart.",
            changes,
        ),
        Case::new(
            "calendar/concurrent-at-the-turn-of-a-month",
            "Many tasks in the last and in the first instant of a month are admitted exactly.",
            concurrent,
        ),
    ]
}

/// The instant this long before `instant`.
fn before(instant: Timestamp, by: Duration) -> Timestamp {
    Timestamp::EPOCH + (instant.since(Timestamp::EPOCH).saturating_sub(by))
}

async fn month(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("3/month in Europe/Berlin")?);
    // April has 30 days, of which the whole quota is used on the second.
    trial.set(APRIL + HOUR * 24).admit(3).await?;
    let refused = trial.set(before(MAY, HOUR)).refuse(1).await?;
    ensure_eq!(refused.retry_after(), Some(HOUR), "retry-after an hour before the end of the month");
    ensure_eq!(refused.reset_after(), HOUR, "reset-after an hour before the end of the month");
    trial.set(before(MAY, Duration::from_nanos(1))).refuse(1).await?;
    trial.set(MAY).expect_left(3).await?;
    let decision = trial.admit(3).await?;
    ensure_eq!(decision.reset_after(), HOUR * 24 * 31, "reset-after at the beginning of May");
    trial.refuse(1).await?;
    Ok(())
}

async fn short_and_long_days(bench: Bench) -> CaseResult {
    for (midnight, hours) in [(SPRING, 23), (AUTUMN, 25)] {
        let trial = Trial::new(&bench, limit(&format!("2/day in Europe/Berlin name h{hours}"))?);
        let decision = trial.set(midnight).admit(2).await?;
        ensure_eq!(decision.reset_after(), HOUR * hours, "reset-after at midnight");
        trial.set(before(midnight + HOUR * hours, SECOND)).refuse(1).await?;
        let decision = trial.set(midnight + HOUR * hours).admit(2).await?;
        ensure_eq!(decision.reset_after(), HOUR * 24, "reset-after on the day after");
    }
    Ok(())
}

async fn billing_month(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/month from day 31")?);
    trial.set(before(LEAP_DAY, SECOND)).admit(5).await?;
    trial.refuse(1).await?;
    let decision = trial.set(LEAP_DAY).admit(5).await?;
    ensure_eq!(decision.reset_after(), HOUR * 24 * 31, "reset-after of a month from the 29th of February");
    trial.set(before(LEAP_DAY + HOUR * 24 * 31, SECOND)).refuse(1).await?;
    trial.set(LEAP_DAY + HOUR * 24 * 31).admit(5).await?;
    Ok(())
}

async fn refunds(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("10/month in Europe/Berlin")?);
    let old = trial.set(APRIL + HOUR).admit(10).await?;
    let part = trial.key("settled").admit(4).await?;
    trial.limiter.settle(&part, 1).await?;
    trial.key("settled").expect_left(9).await?;
    trial.set(MAY).admit(7).await?;
    trial.limiter.refund(&old).await?;
    trial.expect_left(3).await
}

async fn late(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/month in Europe/Berlin")?);
    let late = before(MAY, SECOND);
    trial.set(late).admit(4).await?;
    trial.set(MAY).admit(2).await?;
    trial.set(late).expect_left(1).await?;
    trial.admit(1).await?;
    trial.refuse(1).await?;
    trial.set(MAY).expect_left(3).await
}

async fn reset(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("2/month")?);
    trial.set(MAY).admit(2).await?;
    trial.refuse(1).await?;
    trial.limiter.reset(trial.request(1)).await?;
    trial.expect_left(2).await
}

async fn with_others(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["5/month in Europe/Berlin", "3/min fixed"])?);
    trial.set(MAY).admit(3).await?;
    trial.refuse(1).await?;
    trial.advance(HOUR).refuse(3).await?;
    trial.admit(2).await?;
    let refused = trial.advance(HOUR).refuse(1).await?;
    ensure_eq!(refused.decided_by().index(), 0, "the limit that decided");
    let left: Vec<u64> = refused.each().map(|limit| limit.remaining()).collect();
    ensure_eq!(left, [0, 3], "left under each limit");
    Ok(())
}

async fn changes(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("5/month")?);
    trial.set(MAY).admit(4).await?;
    trial.under(limit("7/month")?).expect_left(3).await?;
    trial.under(limit("3/month")?).refuse(1).await?;
    for other in
        ["5/month in Europe/Berlin", "5/month from day 2", "5/year", "5/month name other", "5/31d fixed"]
    {
        trial.under(limit(other)?).expect_left(5).await?;
    }
    Ok(())
}

async fn concurrent(bench: Bench) -> CaseResult {
    let limits: Limits = limit("60/month in Europe/Berlin")?.into();
    let last = before(MAY, Duration::from_nanos(1));
    exactly(&bench, &limits, last, 60).await?;
    exactly(&bench, &limits, MAY, 60).await
}
