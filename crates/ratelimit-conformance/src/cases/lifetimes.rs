//! A meter lives as long as it counts, whichever operation wrote it last: a claim, a slice, a forced charge, a batch, a
//! refund.

use std::time::Duration;

use ratelimit_core::store::{Mode, Receipt};
use ratelimit_core::{Clock, LimitBuilder, SystemClock, Timestamp};

use super::memory::gone_soon;
use super::mirrored::{Mirrored, Part, Slice, after, earlier, forget, put};
use crate::bench::Bench;
use crate::case::Case;
use crate::clock::{DAY, HOUR, START, pause};
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::kind::Kind;

/// Units of each meter.
pub(super) const ALL: u64 = 4;

/// In the past of every server's clock, and in 2106, after the last second of 32 bits.
const STARTS: [Timestamp; 2] = [START, Timestamp::from_secs(4_320_000_000)];

/// The last operation on a meter, and the suffix of a case's name.
pub(super) const WAYS: [(Way, &str); 11] = [
    (Way::Claim, "a-claim"),
    (Way::First, "the-first-of-a-slice"),
    (Way::Second, "the-second-of-a-slice"),
    (Way::Batch, "a-batch"),
    (Way::Forced, "a-forced-charge"),
    (Way::NewForced, "a-new-forced-charge"),
    (Way::Zero, "a-charge-of-nothing"),
    (Way::Refund, "a-refund"),
    (Way::RefundOfTwo, "a-refund-of-two"),
    (Way::Refused, "refusals-and-peeks"),
    (Way::Reset, "a-reset"),
];

#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Claim,
    First,
    Second,
    Batch,
    Forced,
    NewForced,
    Zero,
    Refund,
    RefundOfTwo,
    RefundOfAll,
    RefundOfUnknown,
    Refused,
    Reset,
}

/// Operations that one case waits for together, because removal may take long.
const FORGOTTEN: [(&str, &[Way]); 4] = [
    ("charges", &[Way::Claim, Way::First, Way::Second, Way::Batch]),
    ("forced-charges", &[Way::Forced, Way::NewForced, Way::Zero]),
    ("refunds-and-refusals", &[Way::Refund, Way::RefundOfTwo, Way::Refused, Way::Reset]),
    ("whole-refunds", &[Way::RefundOfAll, Way::RefundOfUnknown, Way::Claim]),
];

pub(super) fn cases() -> Vec<Case> {
    let counts = |(way, name)| {
        Case::new(
            format!("lifetimes/counts-after-{name}"),
            "A meter last written in this way counts until its announced instant, and not longer.",
            move |bench| counts(bench, way),
        )
    };
    let mut cases: Vec<Case> = WAYS.into_iter().map(counts).collect();
    cases.extend(FORGOTTEN.map(|(name, ways)| {
        Case::new(
            format!("lifetimes/forgotten-after-{name}"),
            "In real time: meters last written in these ways are removed without further calls on them, while another is in use.",
            move |bench| forgotten(bench, ways),
        )
        .any_time()
    }));
    cases.push(Case::new(
        "lifetimes/counts-for-late-callers",
        "A meter that has expired for the newest callers still counts for callers less than a second behind.",
        for_late_callers,
    ));
    cases.push(
        Case::new(
            "lifetimes/counts-in-real-time",
            "In real time: meters still count right before their announced instant, whichever operation wrote them last.",
            in_real_time,
        )
        .any_time(),
    );
    cases
}

/// The meter of a kind, and another one of the same key for slices.
pub(super) fn meters(limit: LimitBuilder, other: LimitBuilder, key: &str) -> CaseResult<[Part; 2]> {
    Ok([Part::new(&limit.build()?, key, 0), Part::new(&other.build()?, key, 0)])
}

/// The meter of a kind, and another one that lives for a tenth of the time.
fn tenth(kind: Kind, way: &str, period: Duration) -> CaseResult<[Part; 2]> {
    meters(kind.builder(ALL, period), Kind::Fixed.builder(1_000, period / 10).name(kind.name()), way)
}

pub(super) async fn write(mirrored: &mut Mirrored, way: Way, [part, other]: &[Part; 2]) -> CaseResult {
    let all = &[part.of(ALL)];
    match way {
        Way::Claim => {
            mirrored.claim(Mode::Charge, &[part.of(1)]).await?;
            mirrored.claim(Mode::Charge, &[part.of(3)]).await?;
        }
        Way::First => {
            mirrored.claim(Mode::Charge, &[part.of(ALL), other.of(1)]).await?;
        }
        Way::Second => {
            mirrored.claim(Mode::Charge, &[other.of(1), part.of(ALL)]).await?;
        }
        Way::Batch => {
            let slice = |part| Slice { now: mirrored.now(), mode: Mode::Charge, parts: vec![part] };
            let slices = [other.of(1), part.of(2), part.of(2), other.of(1)].map(slice);
            mirrored.many(&slices).await?;
        }
        Way::Forced => {
            mirrored.claim(Mode::Charge, &[part.of(1)]).await?;
            mirrored.claim(Mode::Force, &[part.of(ALL + 1)]).await?;
        }
        Way::NewForced => {
            mirrored.claim(Mode::Force, all).await?;
        }
        Way::Zero => {
            mirrored.claim(Mode::Charge, all).await?;
            mirrored.claim(Mode::Charge, &[part.of(0)]).await?;
            mirrored.claim(Mode::Charge, &[other.of(1), part.of(0)]).await?;
        }
        Way::Refund => {
            let charged = mirrored.claim(Mode::Charge, all).await?;
            mirrored.refund(&[(part.of(1), charged.verdicts[0].receipt)]).await?;
        }
        Way::RefundOfTwo => {
            let charged = mirrored.claim(Mode::Charge, &[other.of(2), part.of(ALL)]).await?;
            let [first, second] = [0, 1].map(|place: usize| charged.verdicts[place].receipt);
            mirrored.refund(&[(other.of(1), first), (part.of(1), second)]).await?;
        }
        Way::RefundOfAll => {
            let charged = mirrored.claim(Mode::Charge, all).await?;
            let later = mirrored.now() + Duration::from_millis(50);
            mirrored.set(later).refund(&[(part.of(ALL), charged.verdicts[0].receipt)]).await?;
        }
        Way::RefundOfUnknown => {
            let now = mirrored.now();
            mirrored.refund(&[(part.of(1), Receipt::at(now))]).await?;
        }
        Way::Refused => {
            mirrored.claim(Mode::Charge, all).await?;
            mirrored.claim(Mode::Charge, all).await?;
            mirrored.claim(Mode::Charge, &[other.of(1), part.of(1)]).await?;
            mirrored.claim(Mode::Peek, all).await?;
        }
        Way::Reset => {
            // The meter that is reset first may have lived shortly.
            mirrored.reset(all).await?;
            mirrored.claim(Mode::Charge, all).await?;
            mirrored.reset(all).await?;
            mirrored.claim(Mode::Charge, &[part.of(ALL - 1)]).await?;
        }
    }
    Ok(())
}

/// The instant at which all units fit again.
async fn reported(mirrored: &mut Mirrored, part: &Part) -> CaseResult<Timestamp> {
    let peeked = mirrored.claim(Mode::Peek, &[part.of(ALL)]).await?;
    ensure!(!peeked.admitted, "all of {ALL} units are free right after a charge: {peeked:?}");
    peeked.verdicts[0].fits_at.ok_or_else(|| Failure::new(format!("told never: {peeked:?}")))
}

async fn counts(bench: Bench, way: Way) -> CaseResult {
    for start in STARTS {
        for kind in bench.kinds() {
            counts_from(&bench, way, kind, start).await?;
        }
    }
    Ok(())
}

async fn counts_from(bench: &Bench, way: Way, kind: Kind, start: Timestamp) -> CaseResult {
    let mut mirrored = Mirrored::new(bench);
    let meters = tenth(kind, &format!("{start:?}"), HOUR)?;
    // Inside a window, like most claims.
    mirrored.set(start + Duration::from_secs(700));
    write(&mut mirrored, way, &meters).await?;
    if !kind.is_renewed() {
        mirrored.set(start + DAY * 3_660);
        return mirrored.stands(&meters, &format!("{way:?} of {kind:?}, and ten years")).await;
    }
    let fits_at = reported(&mut mirrored, &meters[0]).await?;
    for (now, when) in [
        (earlier(fits_at, Duration::from_nanos(1)), "to a nanosecond before all fits"),
        (fits_at, "until all fits"),
    ] {
        mirrored.set(now);
        for part in &meters {
            mirrored.stands(&[part.of(ALL)], &format!("{way:?} of {kind:?}, {when}")).await?;
        }
        let asked = mirrored.claim(Mode::Charge, &[meters[0].of(ALL)]).await;
        let asked = asked.map_err(|failure| after(&format!("{way:?} of {kind:?}, {when}"), failure))?;
        ensure_eq!(asked.admitted, now == fits_at, "whether all were admitted {when}, {kind:?}");
    }
    Ok(())
}

async fn for_late_callers(bench: Bench) -> CaseResult {
    let (late, newest) = (Duration::from_millis(400), Duration::from_millis(550));
    for (way, _) in WAYS {
        for kind in bench.renewed() {
            let mut mirrored = Mirrored::new(&bench);
            let meters = tenth(kind, &format!("{way:?}"), HOUR)?;
            write(mirrored.at(Duration::from_secs(700)), way, &meters).await?;
            let fits_at = reported(&mut mirrored, &meters[0]).await?;
            // Other calls make the store clean up meanwhile.
            let traffic = Part::new(&Kind::Fixed.builder(1_000, HOUR).name("traffic").build()?, "k", 1);
            let traffic = [traffic];
            let calls = (0..40).map(|_| put(&bench.store, fits_at + newest, Mode::Charge, &traffic));
            futures::future::try_join_all(calls).await?; // a store may refuse some of them under contention
            forget(&bench.store, fits_at + newest, &traffic).await??;
            let what = format!("{way:?} of {kind:?}, {late:?} before all fits");
            mirrored.set(earlier(fits_at, late)).stands(&[meters[0].of(ALL)], &what).await?;
        }
    }
    Ok(())
}

async fn in_real_time(bench: Bench) -> CaseResult {
    let clock = SystemClock::new();
    let mut waiting = Vec::new();
    for (way, name) in WAYS {
        for kind in bench.renewed() {
            let mut mirrored = Mirrored::new(&bench);
            let meters = tenth(kind, name, Duration::from_millis(2_400))?;
            write(mirrored.set(clock.now()), way, &meters).await?;
            let fits_at = match reported(mirrored.set(clock.now()), &meters[0]).await {
                Ok(fits_at) => fits_at,
                // A window may have ended meanwhile. The model takes that into account.
                Err(_) => clock.now(),
            };
            waiting.push((mirrored, meters, fits_at, format!("{way:?} of {kind:?}")));
        }
    }
    let mut checks = Vec::new();
    for (mut mirrored, meters, fits_at, what) in waiting {
        checks.push(async move {
            // From 200 ms before it to a little after it.
            let now = if mirrored.has_server_time() { mirrored.now() } else { clock.now() };
            let wait = fits_at.since(now);
            pause(wait.saturating_sub(Duration::from_millis(200))).await;
            for _ in 0..3 {
                mirrored.stands_now(&[meters[0].clone()], &what).await?;
                pause(Duration::from_millis(120)).await;
            }
            CaseResult::Ok(())
        });
    }
    futures::future::try_join_all(checks).await?;
    Ok(())
}

async fn forgotten(bench: Bench, ways: &[Way]) -> CaseResult {
    ensure_eq!(bench.meters().await?, 0, "meters in a fresh space");
    let clock = SystemClock::new();
    let period = Duration::from_millis(400);
    let mut written = Vec::new();
    for way in ways {
        for kind in bench.renewed() {
            let mut mirrored = Mirrored::new(&bench);
            let meters = tenth(kind, &format!("{way:?}"), period)?;
            write(mirrored.set(clock.now()), *way, &meters).await?;
            written.push((format!("{way:?} of {kind:?}"), meters));
        }
    }
    ensure!(bench.meters().await? > 0, "no meter is stored after charges");
    let Err(kept) = gone_soon(&bench, period).await else { return Ok(()) };
    let mut which = Vec::new();
    for (what, meters) in written {
        let before = bench.meters().await?;
        forget(&bench.store, clock.now(), &meters).await??;
        if bench.meters().await? < before {
            which.push(what);
        }
    }
    Err(after(&which.join(", "), kept))
}
