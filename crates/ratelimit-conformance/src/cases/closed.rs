//! Handles that are closed: what they have charged still counts, and is removed in its time by others.

use std::time::Duration;

use ratelimit_core::store::Mode;
use ratelimit_core::{Clock, SystemClock};

use super::lifetimes::{ALL, WAYS, meters, write};
use super::memory::gone_soon;
use super::mirrored::{Mirrored, Part, Slice, after};
use crate::bench::Bench;
use crate::case::Case;
use crate::clock::{DAYS, SECOND, pause};
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;

/// How long a case waits after a handle was closed: its connections and tasks end meanwhile.
const CLOSED: Duration = Duration::from_millis(300);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "handles/closed-ones-have-charged",
            "What a handle has charged in any way counts after the handle is closed, and another one can refund and reset it.",
            have_charged,
        )
        .any_time(),
        Case::new(
            "lifetimes/forgotten-after-their-writer",
            "In real time: meters are removed in their time although the handle that wrote them is closed.",
            forgotten,
        )
        .any_time(),
    ]
}

async fn have_charged(bench: Bench) -> CaseResult {
    let closing = bench.open().await?;
    let mut written = Vec::new();
    for kind in bench.kinds() {
        let limit = kind.limit(20, DAYS)?;
        let [part, second] = ["first", "second"].map(|key| Part::new(&limit, key, 0));
        let other = Part::new(&kind.builder(20, DAYS).name("other").build()?, "first", 0);
        let mut mirrored = Mirrored::new(&bench);
        // Both handles know the meters.
        mirrored.claim(Mode::Charge, &[part.of(1), other.of(1)]).await?;
        mirrored.on(&closing).claim(Mode::Charge, &[part.of(2)]).await?;
        mirrored.claim(Mode::Charge, &[other.of(2), part.of(1)]).await?;
        mirrored.claim(Mode::Force, &[part.of(3)]).await?;
        let slice = |part| Slice { now: mirrored.now(), mode: Mode::Charge, parts: vec![part] };
        mirrored.many(&[slice(part.of(2)), slice(second.of(4))]).await?;
        let last = mirrored.claim(Mode::Charge, &[second.of(5)]).await?;
        mirrored.on(&bench.store);
        written.push((mirrored, [part, second, other], last.verdicts[0].receipt, kind));
    }
    drop(closing);
    pause(CLOSED).await;
    for (mirrored, parts, receipt, kind) in &mut written {
        let what = format!("the handle that charged it was closed, {kind:?}");
        mirrored.stands(parts, &what).await?;
        let rest = mirrored.claim(Mode::Charge, &[parts[0].of(12)]).await?;
        ensure!(!rest.admitted, "12 of 11 were admitted after {what}: {rest:?}");
        mirrored.refund(&[(parts[1].of(3), *receipt)]).await?;
        mirrored.stands(parts, &format!("a refund of what a closed handle has charged, {kind:?}")).await?;
        mirrored.reset(parts).await?;
        mirrored.stands(parts, &format!("a reset of what a closed handle has charged, {kind:?}")).await?;
    }
    Ok(())
}

async fn forgotten(bench: Bench) -> CaseResult {
    ensure_eq!(bench.meters().await?, 0, "meters in a fresh space");
    let (clock, closing) = (SystemClock::new(), bench.open().await?);
    for (way, name) in WAYS {
        for kind in bench.renewed() {
            let limit = kind.builder(ALL, SECOND).name(name);
            let both = meters(limit, Kind::Fixed.builder(1_000, SECOND).name(kind.name()), name)?;
            let mut mirrored = Mirrored::new(&bench);
            let written = write(mirrored.on(&closing).set(clock.now()), way, &both).await;
            written.map_err(|failure| after(&format!("{way:?} of {kind:?}"), failure))?;
        }
    }
    drop(closing);
    gone_soon(&bench, SECOND).await
}
