//! The effect of a call through one handle is visible through all handles at once, whatever they have seen before.

use ratelimit_core::store::Mode;

use super::mirrored::{Mirrored, Part, Slice, after};
use crate::bench::{Bench, limit};
use crate::case::{Case, Need};
use crate::clock::DAYS;
use crate::failure::CaseResult;
use crate::subject::Handle;
use crate::trial::Trial;

/// The call of the first handle, and the suffix of a case's name.
const DONE: [(Done, &str); 7] = [
    (Done::Claim, "a-claim"),
    (Done::Slice, "a-slice"),
    (Done::Batch, "a-batch"),
    (Done::Forced, "a-forced-charge"),
    (Done::Refund, "a-refund"),
    (Done::RefundOfTwo, "a-refund-of-two"),
    (Done::Reset, "a-reset"),
];

#[derive(Clone, Copy, Debug)]
enum Done {
    Claim,
    Slice,
    Batch,
    Forced,
    Refund,
    RefundOfTwo,
    Reset,
}

/// The operation with which the second handle observes the meter, before and after the call.
#[derive(Clone, Copy, Debug)]
enum Look {
    Claim,
    Peek,
    Batch,
}

pub(super) fn cases() -> Vec<Case> {
    let case = |(done, name)| {
        Case::new(
            format!("handles/see-{name}"),
            "After this change, no handle answers from a former refusal or a former number of remaining units.",
            move |bench| sees(bench, done),
        )
        .any_time()
    };
    let mut cases: Vec<Case> = DONE.into_iter().map(case).collect();
    cases.push(
        Case::new(
            "handles/see-changes-of-a-total",
            "A total that was used up is not, for any handle, after a refund or a reset.",
            total,
        )
        .any_time()
        .needs(Need::OneCount),
    );
    cases
}

/// Nobody can tell when a used-up total admits again, but it does after what others do.
async fn total(bench: Bench) -> CaseResult {
    let handles = bench.handles(2).await?;
    for (by, handle) in ["the same handle", "another handle"].into_iter().zip(handles) {
        let trial = Trial::new(&bench, limit("3 in total")?).key(by);
        let by = trial.on(handle);
        let taken = by.admit(3).await?;
        trial.refuse(1).await?;
        by.limiter.refund(&taken).await?;
        trial.admit(1).await?;
        by.admit(2).await?;
        trial.refuse(1).await?;
        by.limiter.reset(by.request(1)).await?;
        trial.admit(1).await?;
        by.limiter.charge(by.request(2)).await?;
        trial.refuse(1).await?;
        by.limiter.reset(by.request(1)).await?;
        trial.admit(2).await?;
        by.expect_left(1).await?;
    }
    Ok(())
}

async fn sees(bench: Bench, done: Done) -> CaseResult {
    let handles = bench.handles(2).await?;
    for kind in bench.kinds() {
        for look in [Look::Claim, Look::Peek, Look::Batch] {
            for (taken, second) in [(2, 0), (2, 1), (10, 0), (10, 1)] {
                let handles = [&handles[0], &handles[second]];
                let by = if second == 0 { "the same" } else { "another" };
                let what = format!("{done:?} of {kind:?}, {taken} of 10 taken, seen by {look:?} of {by}");
                let part = Part::new(&kind.limit(10, DAYS)?, &what, 0);
                let seen = one(&mut Mirrored::new(&bench), handles, done, look, (&part, taken)).await;
                seen.map_err(|failure| after(&what, failure))?;
            }
        }
    }
    Ok(())
}

async fn one(
    mirrored: &mut Mirrored,
    [first, second]: [&Handle; 2],
    done: Done,
    look: Look,
    (part, taken): (&Part, u64),
) -> CaseResult {
    let other = Part::new(&"100/3000d name other".parse()?, &part.key, 0);
    let both = mirrored.on(first).claim(Mode::Charge, &[other.of(5), part.of(taken)]).await?;
    let [of_other, of_part] = [0, 1].map(|place: usize| both.verdicts[place].receipt);
    mirrored.on(second);
    looks(mirrored, look, part).await?;
    mirrored.on(first);
    match done {
        Done::Claim => drop(mirrored.claim(Mode::Charge, &[part.of(3)]).await?),
        Done::Slice => drop(mirrored.claim(Mode::Charge, &[other.of(1), part.of(3)]).await?),
        Done::Batch => {
            let slice = |cost| Slice { now: mirrored.now(), mode: Mode::Charge, parts: vec![part.of(cost)] };
            mirrored.many(&[slice(2), slice(1)]).await?;
        }
        Done::Forced => drop(mirrored.claim(Mode::Force, &[part.of(9)]).await?),
        Done::Refund => drop(mirrored.refund(&[(part.of(1), of_part)]).await?),
        Done::RefundOfTwo => drop(mirrored.refund(&[(other.of(1), of_other), (part.of(1), of_part)]).await?),
        Done::Reset => mirrored.reset(&[other.of(0), part.of(0)]).await?,
    }
    mirrored.on(second);
    looks(mirrored, look, part).await?;
    mirrored.on(first).stands(&[part.clone(), other], "it was seen").await
}

/// Requests one unit, and all units.
async fn looks(mirrored: &mut Mirrored, look: Look, part: &Part) -> CaseResult {
    match look {
        Look::Claim => {
            mirrored.claim(Mode::Charge, &[part.of(10)]).await?;
            mirrored.claim(Mode::Charge, &[part.of(1)]).await?;
        }
        Look::Peek => mirrored.stands(std::slice::from_ref(part), "a look").await?,
        Look::Batch => {
            let slice = |cost| Slice { now: mirrored.now(), mode: Mode::Charge, parts: vec![part.of(cost)] };
            mirrored.many(&[slice(10), slice(1)]).await?;
        }
    }
    Ok(())
}
