//! Many concurrent claims on meters in every state: busy, exhausted, at a window's end, nearly expired, expired, reset,
//! refunded.

use std::collections::HashMap;
use std::time::Duration;

use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Decisions, Mode, Receipt};
use ratelimit_core::{Clock, Limits, SystemClock, Timestamp};

use super::atomic::exactly;
use super::contended::may_contend;
use super::mirrored::{Part, earlier, give_back, put};
use crate::bench::{Bench, storm};
use crate::case::{Case, Need};
use crate::clock::{HOUR, START, TICK};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::subject::Handle;
use crate::trial::Trial;

/// Units of each meter.
const ALL: u64 = 40;

/// The name of the limits, so that a bucket is the same under another rate.
const NAME: &str = "storm";

/// The state of a meter before the storm, the suffix of a case's name, and what the case tests.
const STATES: [(Before, &str, &str); 11] = [
    (
        Before::Busy,
        "busy",
        "Concurrent claims are admitted exactly as often as they fit, on a meter of which a part is taken.",
    ),
    (Before::HalfDrained, "half-drained", "The same half a period after all was taken."),
    (
        Before::AtATurn,
        "at-a-turn",
        "The same in the first instant of a window, after most of the one before was taken.",
    ),
    (
        Before::NearlyExpired,
        "nearly-expired",
        "The same a nanosecond before a used-up meter is as good as new.",
    ),
    (Before::Expired, "expired", "The same in the instant at which a used-up meter is as good as new."),
    (Before::Reset, "reset", "The same on a used-up meter that was just reset."),
    (Before::GivenBack, "given-back", "The same on a used-up meter to which a part was just refunded."),
    (Before::Refused, "refused-before", "The same on a half-full meter that has just refused larger costs."),
    (Before::TwoRates, "two-rates", "The same on a bucket that limits of two rates have charged."),
    (Before::ThreeRates, "three-rates", "The same on a bucket that limits of three rates have charged."),
    (Before::OtherQuota, "other-quota", "The same on a meter that a limit with a larger quota has charged."),
];

#[derive(Clone, Copy, Debug)]
enum Before {
    Busy,
    HalfDrained,
    AtATurn,
    NearlyExpired,
    Expired,
    Reset,
    GivenBack,
    Refused,
    /// Limits of two rates have charged it. Only buckets have one meter for several rates.
    TwoRates,
    ThreeRates,
    /// A limit with a larger quota has charged it.
    OtherQuota,
}

impl Before {
    /// Whether units come back before the storm.
    fn needs_time(self) -> bool {
        matches!(self, Self::HalfDrained | Self::AtATurn | Self::NearlyExpired | Self::Expired)
    }

    /// Whether limits of several rates have charged a bucket.
    fn has_rates(self) -> bool {
        matches!(self, Self::TwoRates | Self::ThreeRates)
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = STATES
        .into_iter()
        .map(|(state, name, about)| {
            let case = Case::new(format!("storms/{name}"), about, move |bench| in_state(bench, state));
            // A node that counts for itself learns from others how much a bucket holds, and not at which rates. So it may
            // count units for longer.
            let has_rates = state.has_rates() || matches!(state, Before::OtherQuota);
            if has_rates { case.needs(Need::OneCount) } else { case }
        })
        .map(Case::heavy)
        .collect();
    cases.extend(
        Case::for_each(
            &Kind::PLAIN,
            "storms/across-a-turn",
            "Concurrent claims on both sides of a window's end, or of a meter's end, get consistent answers.",
            across_a_turn,
        )
        .into_iter()
        .map(|case| case.needs(Need::OrderedTime).needs(Need::ExactPerKey).heavy()),
    );
    cases.push(
        Case::new(
            "storms/while-meters-expire",
            "In real time: bursts that start while the store may expire the meter admit no more than the limit.",
            while_meters_expire,
        )
        .any_time()
        .heavy(),
    );
    cases
}

/// Brings the key `k` into the state, and returns the instant of the storm.
async fn prepare(trial: &Trial, state: Before, kind: Kind) -> CaseResult<Timestamp> {
    trial.at(Duration::from_secs(7));
    match state {
        Before::Busy => {
            trial.admit(15).await?;
            Ok(trial.now())
        }
        Before::HalfDrained => {
            trial.admit(ALL).await?;
            Ok(trial.now() + HOUR / 2)
        }
        Before::AtATurn => {
            trial.at(HOUR - Duration::from_secs(1)).admit(ALL - 10).await?;
            Ok(START + HOUR)
        }
        Before::NearlyExpired => {
            let reset = trial.admit(ALL).await?.reset_after();
            Ok(earlier(trial.now() + reset, TICK))
        }
        Before::Expired => {
            let reset = trial.admit(ALL).await?.reset_after();
            Ok(trial.now() + reset)
        }
        Before::Reset => {
            trial.admit(ALL).await?;
            trial.refuse(1).await?;
            trial.limiter.reset("k").await?;
            Ok(trial.now())
        }
        Before::GivenBack => {
            let part = Part::new(&trial.limiter.limits()[0], "k", ALL);
            let store = trial.limiter.store();
            let charged = put(store, trial.now(), Mode::Charge, std::slice::from_ref(&part)).await??;
            trial.refuse(1).await?;
            give_back(store, trial.now(), &[(part.of(23), charged.verdicts[0].receipt)]).await??;
            Ok(trial.now())
        }
        Before::Refused => {
            trial.admit(20).await?;
            for cost in [ALL, 21, ALL] {
                trial.refuse(cost).await?;
            }
            Ok(trial.now())
        }
        Before::TwoRates | Before::ThreeRates => {
            trial.under(kind.builder(ALL, HOUR * 3).name(NAME).build()?).admit(9).await?;
            if matches!(state, Before::ThreeRates) {
                trial.under(kind.builder(ALL, HOUR * 2).name(NAME).build()?).admit(5).await?;
            }
            trial.admit(6).await?;
            Ok(trial.now())
        }
        Before::OtherQuota => {
            trial.under(kind.builder(ALL * 5, HOUR).name(NAME).build()?).admit(10).await?;
            Ok(trial.now())
        }
    }
}

async fn in_state(bench: Bench, state: Before) -> CaseResult {
    for kind in bench.kinds() {
        if (state.has_rates() && !kind.has_burst()) || (state.needs_time() && !kind.is_renewed()) {
            continue;
        }
        let limits: Limits = kind.builder(ALL, HOUR).name(NAME).build()?.into();
        let trial = Trial::new(&bench, limits.clone());
        let now = prepare(&trial, state, kind).await?;
        let left = trial.set(now).left().await?;
        let ended = exactly(&bench, &limits, now, left).await;
        ended.map_err(|failure| super::mirrored::after(&format!("{state:?}, {kind:?}"), failure))?;
    }
    Ok(())
}

/// The answer to a claim of one unit.
struct Reported {
    asked_at: Timestamp,
    admitted: bool,
    receipt: Receipt,
}

impl Reported {
    fn new(answer: &Answer) -> Self {
        Self { asked_at: answer.now, admitted: answer.admitted, receipt: answer.verdicts[0].receipt }
    }
}

async fn across_a_turn(bench: Bench, kind: Kind) -> CaseResult {
    let limit = kind.limit(ALL, HOUR)?;
    for round in 0..6_u64 {
        let part = Part::new(&limit, format!("{round}"), 1);
        // Early in an hour, take half, or all in every other round.
        let (began, taken) = (START + Duration::from_secs(5), ALL / (2 - round % 2));
        let first = put(&bench.store, began, Mode::Charge, &[part.of(taken)]).await??;
        // Either when all units have drained or expired, or at the end of their window, after which they may count in part.
        let whole = kind.has_burst() || round < 3;
        let turn = if whole { first.verdicts[0].reset_at } else { START + HOUR };
        let mut state = limit.meter_for(&part.key).fresh();
        limit.meter_for(&part.key).charge(&mut state, taken, began);
        one_turn(&bench, &part, turn, state, kind).await?;
    }
    Ok(())
}

/// Claims on both sides of an instant on a meter with this history.
async fn one_turn(bench: &Bench, part: &Part, turn: Timestamp, mut state: State, kind: Kind) -> CaseResult {
    let last = turn + TICK;
    let instants = [earlier(turn, Duration::from_millis(900)), earlier(turn, TICK), turn, last];
    let reported = storm(&bench.handles(4).await?, 160, |handle, number| {
        let (part, now) = (part.clone(), instants[number % instants.len()]);
        async move { Ok(Reported::new(&put(&handle, now, Mode::Charge, &[part]).await??)) }
    })
    .await?;
    let peeked = put(&bench.store, last, Mode::Peek, &[part.of(0)]).await??;
    let left = peeked.verdicts[0].remaining;
    if kind.has_burst() {
        let taken = reported.iter().filter(|reported| reported.admitted).count() as u64;
        ensure!(taken <= ALL, "{taken} of {ALL} were admitted within a second, {kind:?}");
        ensure!(taken + left >= ALL - 1, "{taken} were admitted, and {left} of {ALL} are left, {kind:?}");
    } else {
        let meter = part.limit.meter_for(&part.key);
        holds_together(&meter, &mut state, &reported, kind)?;
        let expected = meter.verdict(&state, 0, last, None).remaining;
        ensure_eq!(left, expected, "left of {ALL} after the storm, {kind:?}");
    }
    let refused = reported.iter().any(|reported| !reported.admitted && reported.asked_at == last);
    ensure!(!refused || left == 0, "one was refused at the last instant although {left} are left, {kind:?}");
    Ok(())
}

/// Checks that the admitted units fit one after another, in the order of their receipts.
fn holds_together(meter: &Meter, state: &mut State, reported: &[Reported], kind: Kind) -> CaseResult {
    let mut receipts: Vec<Receipt> =
        reported.iter().filter(|reported| reported.admitted).map(|reported| reported.receipt).collect();
    receipts.sort_unstable();
    for receipt in receipts {
        ensure!(
            meter.fits(state, 1, receipt.instant()),
            "a unit with the receipt {receipt:?} does not fit after those before it, {kind:?}"
        );
        meter.charge(state, 1, receipt.instant());
    }
    Ok(())
}

/// The limit for claims in real time: the quota and the period.
const QUOTA: u64 = 3;
const SHORT: Duration = Duration::from_millis(300);

/// Their kinds.
const SHORT_KINDS: [Kind; 4] = [Kind::Fixed, Kind::Sliding, Kind::Log, Kind::Bucket];

/// The number of keys of each task.
const KEYS: usize = 6;

/// An admitted unit, and the instant of its answer.
struct Answered {
    reported: Reported,
    at: Timestamp,
}

async fn while_meters_expire(bench: Bench) -> CaseResult {
    let handles = bench.handles(3).await?;
    let begin = tokio::time::Instant::now() + Duration::from_millis(20);
    let found = storm(&handles, 96, |handle, number| bursts(handle, number, begin)).await?;
    let mut of_key: HashMap<(Kind, usize), Vec<Answered>> = HashMap::new();
    found.into_iter().flatten().for_each(|(key, answered)| of_key.entry(key).or_default().push(answered));
    let least = if bench.promises().decisions == Decisions::Conservative { 0 } else { QUOTA };
    for (kind, key) in SHORT_KINDS.into_iter().flat_map(|kind| (0..KEYS).map(move |key| (kind, key))) {
        let mut answered = of_key.remove(&(kind, key)).unwrap_or_default();
        let admitted = answered.len() as u64;
        ensure!(admitted >= least, "{admitted} were admitted on a key, at least {least} fit, {kind:?}");
        // On a busy machine a claim may come so late that the store has removed what it was made on.
        answered.retain(|answered| answered.at <= answered.reported.asked_at + CLOCK_SLACK);
        let meter = kind.limit(QUOTA, SHORT)?.meter_for(b"k");
        match (bench.promises().decisions, meter) {
            (_, Meter::Bucket(bucket)) => {
                rate_holds(&answered, |nanos| QUOTA + nanos / bucket.interval() + 1, kind)?;
            }
            (Decisions::Conservative, Meter::Log(log)) => {
                rate_holds(&answered, |nanos| QUOTA * (nanos / log.window() + 1), kind)?;
            }
            (Decisions::Conservative, Meter::Window(window)) => {
                let mut counts: HashMap<u64, u64> = HashMap::new();
                for Answered { reported, .. } in &answered {
                    *counts.entry(window.place(reported.receipt.instant()).0).or_default() += 1;
                }
                let most = counts.values().max().copied().unwrap_or_default();
                ensure!(most <= QUOTA, "{most} were admitted in one window of {QUOTA}, {kind:?}");
            }
            _ => {
                let reported: Vec<Reported> =
                    answered.into_iter().map(|answered| answered.reported).collect();
                holds_together(&meter, &mut meter.fresh(), &reported, kind)?;
            }
        }
    }
    Ok(())
}

/// Three bursts of claims on some keys. Returns the admitted units.
async fn bursts(
    handle: Handle,
    number: usize,
    begin: tokio::time::Instant,
) -> CaseResult<Vec<((Kind, usize), Answered)>> {
    let (clock, kind) = (SystemClock::new(), SHORT_KINDS[number / 3 % SHORT_KINDS.len()]);
    let promises = handle.dyn_promises();
    let limit = kind.limit(QUOTA, SHORT)?;
    let mut reported = Vec::new();
    for round in 0..3 {
        // Most claims come when the store may just have removed the meter, some a little earlier.
        let early = if number.is_multiple_of(4) { Duration::from_millis(15) } else { Duration::ZERO };
        tokio::time::sleep_until(begin + (SHORT * 2 + CLOCK_SLACK) * round - early).await;
        for key in (0..KEYS).cycle().take(KEYS * 2) {
            let part = Part::new(&limit, format!("{key}"), 1);
            match put(&handle, clock.now(), Mode::Charge, &[part]).await? {
                Ok(answer) if answer.admitted => {
                    reported
                        .push(((kind, key), Answered { reported: Reported::new(&answer), at: clock.now() }));
                }
                Ok(_) => {}
                Err(error) if may_contend(promises, &error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(reported)
}

/// Checks that no span admits more units than may be in so many nanoseconds. A store may decide a late claim as of its
/// arrival, so the claim counts for no span that ends before its answer.
fn rate_holds(answered: &[Answered], most: impl Fn(u64) -> u64, kind: Kind) -> CaseResult {
    let mut ends: Vec<Timestamp> = answered.iter().map(|answered| answered.at).collect();
    ends.sort_unstable();
    for from in answered.iter().map(|answered| answered.reported.asked_at) {
        for to in ends.iter().copied().filter(|to| *to > from) {
            let is_within = |answered: &&Answered| answered.reported.asked_at >= from && answered.at <= to;
            let units = answered.iter().filter(is_within).count() as u64;
            let nanos = to.as_nanos() - from.as_nanos();
            let most = most(nanos);
            ensure!(units <= most, "{units} were admitted in {nanos} ns, {most} may be, {kind:?}");
        }
    }
    Ok(())
}
