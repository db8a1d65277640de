//! Resets and refunds of several meters in one call: each meter is handled, whatever the others are.

use ratelimit_core::store::{Mode, Receipt};

use super::mirrored::{Mirrored, Part, after};
use crate::bench::Bench;
use crate::case::Case;
use crate::clock::{DAYS, HOUR, START};
use crate::failure::CaseResult;
use crate::kind::Kind;

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(
            "resets/several-keys",
            "A reset of several keys removes each, even if the first, the second or the last is unknown.",
            |bench| each(bench, true),
        ),
        Case::new(
            "refunds/several-keys",
            "A refund to several keys reaches each, even if the first, the second or the last is unknown.",
            |bench| each(bench, false),
        ),
        Case::new(
            "refunds/several-of-one-meter",
            "Several refunds to one meter in one call all take effect.",
            several_of_one,
        ),
        Case::new(
            "refunds/zero-among-others",
            "A refund of zero units does not stop the refunds after it.",
            zero,
        ),
        Case::new("resets/sixty-four-keys", "A reset of sixty-four keys removes all of them.", |bench| {
            sixty_four(bench, true)
        }),
        Case::new(
            "refunds/sixty-four-keys",
            "A later refund to sixty-four keys reaches all of them.",
            |bench| sixty_four(bench, false),
        ),
    ];
    cases.into_iter().map(Case::any_time).collect()
}

async fn each(bench: Bench, resets: bool) -> CaseResult {
    for kind in bench.kinds() {
        for unknown in [&[0][..], &[1], &[3], &[0, 1], &[0, 3], &[]] {
            let what = format!("unknown {unknown:?}, {kind:?}");
            let limit = kind.limit(10, DAYS)?;
            let parts: Vec<Part> =
                (0..4).map(|place| Part::new(&limit, format!("{what} {place}"), 4)).collect();
            let bystander = Part::new(&limit, format!("{what} bystander"), 4);
            let mut mirrored = Mirrored::new(&bench);
            let mut charged = Vec::new();
            for (place, part) in parts.iter().enumerate() {
                let receipt = if unknown.contains(&place) {
                    Receipt::at(mirrored.now())
                } else {
                    mirrored.claim(Mode::Charge, std::slice::from_ref(part)).await?.verdicts[0].receipt
                };
                charged.push((part.of(3), receipt));
            }
            mirrored.claim(Mode::Charge, std::slice::from_ref(&bystander)).await?;
            mirrored.at(HOUR);
            let done =
                if resets { mirrored.reset(&parts).await } else { mirrored.refund(&charged).await.map(drop) };
            done.map_err(|failure| after(&what, failure))?;
            mirrored.stands(&parts, &what).await?;
            mirrored.stands(&[bystander], &what).await?;
        }
    }
    Ok(())
}

async fn several_of_one(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let part = Part::new(&kind.limit(10, DAYS)?, "k", 0);
        let other = Part::new(&kind.limit(10, DAYS)?, "other", 0);
        let mut mirrored = Mirrored::new(&bench);
        let mut charged: Vec<(Part, Receipt)> = Vec::new();
        for part in [part.of(3), part.of(2), other.of(4), part.of(4)] {
            let answer = mirrored.claim(Mode::Charge, std::slice::from_ref(&part)).await?;
            charged.push((part, answer.verdicts[0].receipt));
        }
        charged.reverse();
        mirrored.refund(&charged[..3]).await?;
        mirrored.stands(&[part, other], &format!("three refunds in one call, {kind:?}")).await?;
    }
    Ok(())
}

async fn zero(bench: Bench) -> CaseResult {
    for kind in bench.kinds() {
        let limit = kind.limit(10, DAYS)?;
        let [first, second] = ["first", "second"].map(|key| Part::new(&limit, key, 5));
        let mut mirrored = Mirrored::new(&bench);
        let charged = mirrored.claim(Mode::Charge, &[first.clone(), second.clone()]).await;
        let receipt = charged?.verdicts.last().map_or(Receipt::at(START), |verdict| verdict.receipt);
        mirrored.refund(&[(first.of(0), receipt), (second.of(5), receipt)]).await?;
        mirrored.stands(&[first, second], &format!("a refund of nothing and of 5, {kind:?}")).await?;
    }
    Ok(())
}

async fn sixty_four(bench: Bench, resets: bool) -> CaseResult {
    for kind in Kind::METERS {
        let limit = kind.limit(10, DAYS)?;
        let parts: Vec<Part> = (0..64).map(|key| Part::new(&limit, format!("{key}"), 10)).collect();
        let mut mirrored = Mirrored::new(&bench);
        let mut charged = Vec::new();
        for part in &parts {
            let answer = mirrored.claim(Mode::Charge, std::slice::from_ref(part)).await?;
            charged.push((part.of(7), answer.verdicts[0].receipt));
        }
        mirrored.at(HOUR);
        if resets {
            mirrored.reset(&parts).await?;
        } else {
            mirrored.refund(&charged).await?;
        }
        mirrored.stands(&parts, &format!("64 keys in one call, {kind:?}")).await?;
    }
    Ok(())
}
