//! Bans: keys that are refused too often.

use std::time::Duration;

use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::{Acquire, AcquireError, Decision, Limits, RateLimiter, Request};

use crate::bench::{Bench, limit, limits, storm};
use crate::case::{Case, Need};
use crate::clock::{MINUTE, SECOND, START, TICK};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::trial::Trial;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::RENEWED,
        "bans/after-refusals",
        "The third of three refusals bans the key for exactly the time of the ban, even if the other limit has units again.",
        after_refusals,
    );
    cases.extend([
        Case::new(
            "bans/requests-that-pass",
            "Requests of any cost pass unchanged while the key is not banned, and nothing of a ban is charged, refunded or settled.",
            passing,
        ),
        Case::new("bans/old-refusals", "Refusals that are further apart than the period do not ban.", old),
        Case::new(
            "bans/growing",
            "Each further ban is longer by the factor, up to the longest, and a quiet key begins anew.",
            growing,
        ),
        Case::new(
            "bans/refused-while-banned",
            "Requests during a ban do not prolong it and do not count towards the next one.",
            while_banned,
        ),
        Case::new(
            "bans/two-bans",
            "Requests during a ban do not count towards another ban on the key. The refusal that begins one counts for both.",
            two_bans,
        ),
        Case::new(
            "bans/reset",
            "A reset lifts the ban, and forgets refusals and earlier bans, whichever handle makes it.",
            reset,
        ),
        Case::new(
            "bans/late-callers",
            "A ban holds for callers whose clocks are behind its beginning.",
            late_callers,
        )
        .needs(Need::OrderedTime),
        Case::new(
            "bans/only-the-key-that-was-refused",
            "Of a request with several keys, only those are banned whose own limits refused.",
            only_the_refused,
        ),
        Case::new(
            "bans/peeks-and-waiting",
            "Peeks, waits, and taking fewer units than requested do not count as refusals. A refusal after a peek can be counted.",
            peeks,
        ),
        Case::new("bans/batches", "Refusals count in batches as well, and the ban holds for the next batch.", batches),
        Case::new(
            "bans/refusals-of-one-batch",
            "Refusals that come after the one that bans, in the same batch, do not count towards the next ban.",
            of_one_batch,
        ),
        Case::new(
            "bans/refusals-of-another-part",
            "A refusal by a limit in another part of the request bans the key if it is the same one.",
            of_another_part,
        ),
        Case::new(
            "bans/periods-are-apart",
            "Refusals under a ban with a short period do not shorten the memory of one with a longer period.",
            periods,
        ),
        Case::new(
            "bans/one-ban-for-all-handles",
            "Many tasks on several handles that are all refused begin one ban together, not one each.",
            concurrent,
        )
        .needs(Need::ExactPerKey),
    ]);
    cases
}

/// Uses up the limit of 2, and is then refused this many times. Returns the last refusal.
async fn refused(trial: &Trial, times: usize) -> CaseResult<Decision<'static>> {
    trial.drain(2).await?;
    for _ in 1..times {
        trial.refuse(1).await?;
    }
    trial.refuse(1).await
}

/// Whether a key is banned, and for how long.
fn ban(decision: &Decision<'_>) -> Option<Duration> {
    let ban = decision.each().find(|status| status.rule().is_ban() && !status.allowed());
    ban.map(|status| status.retry_after().unwrap_or(Duration::MAX))
}

async fn after_refusals(bench: Bench, kind: Kind) -> CaseResult {
    let both = Limits::new([kind.limit(2, 10 * SECOND)?, limit("ban 1h after 3 in 1min")?])?;
    let trial = Trial::new(&bench, both);
    let second = refused(&trial, 2).await?;
    ensure_eq!(ban(&second), None, "a ban after two refusals");
    let third = trial.at(SECOND).refuse(1).await?;
    ensure_eq!(ban(&third), Some(60 * MINUTE), "how long the third refusal bans");
    let refused = trial.at(20 * MINUTE + SECOND).refuse(1).await?;
    ensure_eq!(ban(&refused), Some(40 * MINUTE), "how long the ban still lasts after a third of it");
    let status = refused.decided_by();
    ensure_eq!((status.remaining(), status.reset_after()), (0, 40 * MINUTE), "left, and reset, of the ban");
    ensure!(
        refused.each().next().is_some_and(|limit| limit.allowed()),
        "the limit refuses as well: {refused:?}"
    );
    trial.at(60 * MINUTE + SECOND - TICK).refuse(1).await?;
    trial.at(60 * MINUTE + SECOND).admit(2).await?;
    Ok(())
}

async fn of_one_batch(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["2/s fixed", "ban 10s after 3 in 1h"])?);
    let answers = trial.limiter.check_many((0..12).map(|_| trial.request(1))).await;
    for answer in answers {
        answer?;
    }
    trial.at(20 * SECOND).admit(2).await?;
    for nth in 1..=2 {
        ensure_eq!(ban(&trial.refuse(1).await?), None, "a ban after {nth} more refusals");
    }
    ensure_eq!(ban(&trial.refuse(1).await?), Some(10 * SECOND), "how long the third refusal bans");
    Ok(())
}

async fn of_another_part(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1000/h")?);
    let requests = limits(&["60/min name requests", "ban 1h after 2 in 1h"])?;
    let tokens = limits(&["100/min name tokens"])?;
    let request = |key: &'static str, tokens_of: &'static str| {
        let request = Request::new(key).limits(&requests);
        request.and(Request::new(tokens_of).cost(1_000).limits(&tokens))
    };
    for nth in 1..=3 {
        let refused = trial.limiter.check(request("one", "another")).await?;
        ensure_eq!(ban(&refused), None, "a ban after {nth} refusals of another key");
    }
    for expected in [None, Some(60 * MINUTE)] {
        let refused = trial.limiter.check(request("same", "same")).await?;
        ensure_eq!(ban(&refused), expected, "a ban after refusals by tokens");
    }
    Ok(())
}

async fn periods(bench: Bench) -> CaseResult {
    let long = Trial::new(&bench, limits(&["1/s fixed name a", "ban 1h after 3 in 1h"])?);
    let short = long.under(limits(&["1/s fixed name b", "ban 5min after 3 in 1min"])?);
    for step in 0..2_u32 {
        long.at(step * 5 * MINUTE).admit(1).await?;
        ensure_eq!(ban(&long.refuse(1).await?), None, "a ban after fewer than three refusals");
        short.at(step * 5 * MINUTE + 2 * MINUTE).admit(1).await?;
        ensure_eq!(ban(&short.refuse(1).await?), None, "a ban after one refusal in a minute");
    }
    long.at(30 * MINUTE).admit(1).await?;
    ensure_eq!(ban(&long.refuse(1).await?), Some(60 * MINUTE), "how long the third refusal in an hour bans");
    Ok(())
}

async fn passing(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["1000000/h", "ban 1h after 3 in 1min"])?);
    for _ in 0..20 {
        let passed = trial.admit(900).await?;
        ensure_eq!(passed.decided_by().index(), 0, "the limit that decided");
        let status = passed.each().nth(1);
        let unlimited = status.map(|status| (status.limit(), status.remaining(), status.reset_after()));
        ensure_eq!(
            unlimited,
            Some((MAX_UNITS, MAX_UNITS, Duration::ZERO)),
            "limit, left and reset of the ban"
        );
        trial.limiter.settle(&passed, 1_000).await?;
    }
    let last = trial.admit(500_000).await?;
    trial.limiter.refund(&last).await?;
    trial.limiter.charge(trial.request(80_000)).await?;
    trial.expect_left(900_000).await
}

async fn old(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["1/h", "ban 1h after 3 in 1min"])?);
    trial.admit(1).await?;
    for half_minutes in 0..12 {
        let refused = trial.at(half_minutes * (MINUTE / 2 + TICK)).refuse(1).await?;
        ensure_eq!(ban(&refused), None, "a ban by refusal {half_minutes}");
    }
    trial.refuse(1).await?;
    ensure_eq!(ban(&trial.refuse(1).await?), Some(60 * MINUTE), "a ban by three refusals in a minute");
    Ok(())
}

async fn growing(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["2/s log", "ban 1min after 2 in 1min growing 3 up to 10min"])?);
    for minutes in [1, 3, 9, 10, 10] {
        let begun = refused(&trial, 2).await?;
        ensure_eq!(ban(&begun), Some(minutes * MINUTE), "a further ban");
        trial.advance(minutes * MINUTE - TICK).refuse(1).await?;
        trial.advance(TICK);
    }
    // Four at most are remembered, and one is forgotten whenever twenty minutes have passed.
    trial.advance(40 * MINUTE);
    ensure_eq!(ban(&refused(&trial, 2).await?), Some(9 * MINUTE), "a ban after a quiet time");
    trial.advance(120 * MINUTE);
    ensure_eq!(ban(&refused(&trial, 2).await?), Some(MINUTE), "a ban when all are forgotten");
    Ok(())
}

async fn while_banned(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["2/s log", "ban 10s after 3 in 1h growing 2 up to 1h"])?);
    refused(&trial, 3).await?;
    for second in 1..10 {
        let refused = trial.advance(SECOND).refuse(1).await?;
        ensure_eq!(ban(&refused), Some((10 - second) * SECOND), "how long the ban still lasts");
    }
    trial.advance(SECOND);
    ensure_eq!(ban(&refused(&trial, 2).await?), None, "a ban by two refusals after a ban");
    ensure_eq!(ban(&trial.refuse(1).await?), Some(20 * SECOND), "the second ban");
    Ok(())
}

async fn two_bans(bench: Bench) -> CaseResult {
    let both = ["5/min fixed", "ban 30s after 3 in 1min name short", "ban 1d after 5 in 1h name long"];
    let trial = Trial::new(&bench, limits(&both)?);
    trial.drain(5).await?;
    for refusal in [None, None, Some(30 * SECOND)] {
        ensure_eq!(ban(&trial.refuse(1).await?), refusal, "the short ban, by the third refusal");
    }
    for second in 1..8 {
        let refused = trial.at(second * SECOND).refuse(1).await?;
        ensure_eq!(ban(&refused), Some((30 - second) * SECOND), "how long the short ban still lasts");
    }
    trial.at(30 * SECOND);
    ensure_eq!(ban(&trial.refuse(1).await?), None, "a ban by the fourth refusal that counts");
    ensure_eq!(ban(&trial.refuse(1).await?), Some(1_440 * MINUTE), "the long ban, by the fifth");
    Ok(())
}

async fn reset(bench: Bench) -> CaseResult {
    let banning = limits(&["2/s log", "ban 1min after 3 in 1h growing 2 up to 1h"])?;
    let handles = bench.handles(2).await?;
    for (by, handle) in ["the same handle", "another handle"].into_iter().zip(handles) {
        let trial = Trial::new(&bench, banning.clone()).key(by);
        let by = trial.on(handle);
        refused(&trial, 3).await?;
        trial.refuse(1).await?;
        by.limiter.reset(by.request(1)).await?;
        by.admit(1).await?;
        trial.admit(1).await?;
        by.limiter.reset(by.request(1)).await?;
        ensure_eq!(ban(&refused(&trial, 2).await?), None, "a ban by two refusals after a reset");
        ensure_eq!(ban(&trial.refuse(1).await?), Some(MINUTE), "the first ban after a reset");
        by.limiter.reset(by.request(1)).await?;
        refused(&trial, 2).await?;
        by.limiter.reset(by.request(1)).await?;
        ensure_eq!(
            ban(&refused(&trial, 2).await?),
            None,
            "a ban by two refusals after a reset of two refusals"
        );
        let other = trial.key("other");
        refused(&other, 3).await?;
        by.limiter.reset(by.request(1)).await?;
        ensure_eq!(ban(&other.refuse(1).await?), Some(MINUTE), "the ban of another key");
        other.limiter.reset(other.request(1)).await?;
    }
    Ok(())
}

async fn late_callers(bench: Bench) -> CaseResult {
    let refusing = Trial::new(&bench, limits(&["1/min log", "ban 1h after 1 in 1min"])?);
    let passing = refusing.under(limits(&["100/min fixed name other", "ban 1h after 1 in 1min"])?);
    refusing.at(10 * SECOND).admit(1).await?;
    ensure_eq!(ban(&refusing.refuse(1).await?), Some(60 * MINUTE), "how long the first refusal bans");
    for behind in [TICK, SECOND / 10, 9 * SECOND] {
        let refused = passing.at(10 * SECOND - behind).refuse(1).await?;
        ensure!(ban(&refused).is_some(), "refused {behind:?} late, but by no ban: {refused:?}");
    }
    passing.at(10 * SECOND).refuse(1).await?;
    Ok(())
}

async fn only_the_refused(bench: Bench) -> CaseResult {
    let (user, address) =
        (limits(&["2/h", "ban 1h after 2 in 1h"])?, limits(&["9/h", "ban 1h after 2 in 1h"])?);
    let trial = Trial::new(&bench, user.clone());
    let both = || Request::new("user").limits(&user).and(Request::new("address").limits(&address));
    for _ in 0..2 {
        ensure!(trial.limiter.check(both()).await?.allowed(), "refused within both limits");
    }
    for _ in 0..3 {
        ensure!(!trial.limiter.check(both()).await?.allowed(), "admitted beyond the limit of the user");
    }
    let banned = trial.limiter.would_allow("user").await?;
    ensure!(ban(&banned).is_some(), "the user is not banned: {banned:?}");
    let alone = trial.limiter.check(Request::new("address").limits(&address)).await?;
    ensure_eq!((alone.allowed(), alone.remaining()), (true, 6), "the address, admitted and left");
    Ok(())
}

async fn peeks(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["3/h", "ban 1h after 2 in 1h"])?);
    for _ in 0..4 {
        ensure!(
            !trial.limiter.would_allow(trial.request(4)).await?.allowed(),
            "four of three would be admitted"
        );
    }
    let taken = trial.limiter.take_up_to(trial.request(10)).await?;
    ensure_eq!(taken.granted(), 3, "taken of three");
    let within = Acquire::default().timeout(MINUTE);
    for _ in 0..3 {
        let ended = trial.limiter.acquire_with(trial.request(1), within).await;
        ensure!(
            matches!(ended, Err(AcquireError::Deadline(_))),
            "waited a minute for a unit of the next hour: {ended:?}"
        );
    }
    let request = trial.request(1);
    let mut decision = trial.limiter.would_allow(&request).await?;
    trial.limiter.count_refusal(&request, &mut decision).await?;
    ensure_eq!(ban(&decision), None, "a ban by the first refusal that was counted");
    let refused = trial.limiter.take_up_to(trial.request(10)).await?;
    ensure_eq!((refused.granted(), ban(&refused)), (0, Some(60 * MINUTE)), "taken of none, and the ban");
    Ok(())
}

async fn batches(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limits(&["1/s", "ban 1min after 2 in 1min"])?);
    let decisions = trial.limiter.check_many(["k", "k", "other", "k"]).await;
    let mut found = Vec::new();
    for decision in decisions {
        let decision = decision?;
        found.push((decision.allowed(), ban(&decision)));
    }
    let expected = [(true, None), (false, None), (true, None), (false, Some(MINUTE))];
    ensure_eq!(found, expected, "admitted, and bans");
    trial.at(2 * SECOND);
    let mut allowed = Vec::new();
    for decision in trial.limiter.check_many(["k", "other"]).await {
        allowed.push(decision?.allowed());
    }
    ensure_eq!(allowed, [false, true], "admitted after the limit has recovered");
    Ok(())
}

async fn concurrent(bench: Bench) -> CaseResult {
    let both = limits(&["1/s log", "ban 1min after 5 in 1h growing 2 up to 1day"])?;
    let trial = Trial::new(&bench, both.clone());
    trial.admit(1).await?;
    let clock = ratelimit_core::ManualClock::at(START);
    let handles = bench.handles(4).await?;
    let bans = storm(&handles, 40, |handle, _| {
        let limiter = RateLimiter::new(handle, both.clone()).with_clock(clock.clone());
        async move { Ok(ban(&limiter.check(b"k").await?.into_owned())) }
    })
    .await?;
    let (begun, before): (Vec<_>, Vec<_>) = bans.into_iter().partition(Option::is_some);
    ensure!(before.len() <= 39, "no refusal has led to a ban");
    ensure!(begun.iter().all(|wait| *wait == Some(MINUTE)), "bans that do not end together: {begun:?}");
    trial.advance(MINUTE).admit(1).await?;
    let mut next = None;
    for _ in 0..5 {
        next = ban(&trial.refuse(1).await?);
    }
    ensure_eq!(next, Some(2 * MINUTE), "the second ban: there was one before");
    Ok(())
}
