//! Calls that are dropped while they wait for other calls of the same process: the others go on.

use std::pin::Pin;
use std::time::Duration;

use futures::future::BoxFuture;
use ratelimit_core::store::{Mode, Receipt};

use super::contended::may_contend;
use super::mirrored::{Part, Slice, after, forget, give_back, promises_with, put, put_many};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{DAYS, START, pause};
use crate::failure::{CaseResult, ensure};
use crate::in_time::{in_time, settled};
use crate::kind::Kind;
use crate::subject::Handle;

/// The waiting calls, and the suffix of a case's name.
const CALLS: [(Call, &str); 8] = [
    (Call::Claims, "claims"),
    (Call::Slices, "slices"),
    (Call::Batches, "batches"),
    (Call::Forced, "forced-slices"),
    (Call::Peeks, "peeks"),
    (Call::Refunds, "refunds"),
    (Call::Resets, "resets"),
    (Call::Mixed, "all-calls"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Claims,
    Slices,
    Batches,
    Forced,
    Peeks,
    Refunds,
    Resets,
    Mixed,
}

/// Calls that are begun at once on one handle.
const AT_ONCE: usize = 12;

/// How often each of them is polled before some are dropped.
const POLLS: [usize; 3] = [1, 2, 4];

/// Keys of a call with several. A store may handle many in another way than few.
const KEYS: [usize; 2] = [2, 20];

/// Units of each meter. More than are taken.
const UNITS: u64 = 10_000;

pub(super) fn cases() -> Vec<Case> {
    let case = |(call, name)| {
        Case::new(
            format!("cancelled/waiting-{name}"),
            "Of calls that wait for each other in one process some are dropped: the others end, each takes effect once, and later \
             calls of any kind go on.",
            move |bench| waiters(bench, call),
        )
        .any_time()
    };
    CALLS.into_iter().map(case).collect()
}

async fn waiters(bench: Bench, call: Call) -> CaseResult {
    let texts = [Kind::Sliding.limit(UNITS, DAYS)?, limit("10000/3000d burst 10000")?];
    for (place, limit) in texts.iter().enumerate() {
        for keys in if call == Call::Claims { &KEYS[..1] } else { &KEYS[..] } {
            for polls in POLLS {
                let group = format!("{place} {keys} {polls}");
                let parts: Vec<Part> =
                    (0..*keys).map(|key| Part::new(limit, format!("{group} {key}"), 0)).collect();
                let what =
                    format!("{call:?} on {keys} keys, of which every second was dropped after {polls} polls");
                let ended = one(&bench, call, &parts, polls).await;
                ended.map_err(|failure| after(&what, failure))?;
            }
        }
    }
    Ok(())
}

async fn one(bench: &Bench, call: Call, parts: &[Part], polls: usize) -> CaseResult {
    let handle = &bench.store;
    let begin: Vec<Part> = parts.iter().map(|part| part.of(100)).collect();
    let charged = put(handle, START, Mode::Force, &begin).await??;
    let receipts: Vec<Receipt> = charged.verdicts.iter().map(|verdict| verdict.receipt).collect();
    let begun = |number: usize| made(handle.clone(), call, number, parts.to_vec(), receipts.clone());
    let mut waiting: Vec<Option<BoxFuture<'static, CaseResult>>> =
        (0..AT_ONCE).map(|number| Some(begun(number))).collect();
    for _ in 0..polls {
        for call in &mut waiting {
            if let Some(future) = call
                && let std::task::Poll::Ready(ended) = futures::poll!(Pin::new(future))
            {
                ended?;
                *call = None;
            }
        }
        // Not at once, so that calls to a server come as far as they can.
        pause(Duration::from_micros(200)).await;
    }
    for (number, call) in waiting.iter_mut().enumerate() {
        if number % 2 == usize::from(polls.is_multiple_of(2)) {
            *call = None;
        }
    }
    in_time("calls beside others that were dropped while they waited", async {
        futures::future::try_join_all(waiting.into_iter().flatten()).await
    })
    .await?;
    let left = settled(|| left_of(handle, parts)).await?;
    for number in 0..4 {
        let later = made(handle.clone(), call, number, parts.to_vec(), receipts.clone());
        in_time("a call after others were dropped while they waited", later).await?;
    }
    if call == Call::Peeks {
        ensure!(left.iter().all(|left| *left == Some(UNITS - 100)), "{left:?} are left after peeks");
    }
    let units = UNITS - 100;
    let (least, most) = match call {
        // Each refunds five of a hundred, and each charge takes two.
        Call::Refunds => (units + 5, units + 5 * AT_ONCE as u64),
        Call::Mixed | Call::Resets => (0, UNITS),
        _ => (units - 2 * AT_ONCE as u64, units),
    };
    ensure!(
        left.iter().flatten().all(|left| (least..=most).contains(left)),
        "{left:?} are left of each key, not {least} to {most}"
    );
    forget(handle, START, parts).await??;
    let all: Vec<Part> = parts.iter().map(|part| part.of(UNITS)).collect();
    let taken = put(&bench.store, START, Mode::Charge, &all).await??;
    ensure!(taken.admitted, "not all is free after a reset: {taken:?}");
    Ok(())
}

/// What is left of each of these meters; `None` if the store may be contended.
async fn left_of(store: &Handle, parts: &[Part]) -> CaseResult<Vec<Option<u64>>> {
    let mut left = Vec::new();
    for part in parts {
        left.push(match put(store, START, Mode::Peek, std::slice::from_ref(part)).await? {
            Err(error) if may_contend(store.dyn_promises(), &error) => None,
            answer => Some(answer?.verdicts[0].remaining),
        });
    }
    Ok(left)
}

/// One call on all of these meters.
fn made(
    store: Handle,
    call: Call,
    number: usize,
    parts: Vec<Part>,
    receipts: Vec<Receipt>,
) -> BoxFuture<'static, CaseResult> {
    Box::pin(async move {
        let of = |cost| parts.iter().map(|part| part.of(cost)).collect::<Vec<_>>();
        let promises = promises_with(&store, &parts);
        let call = match call {
            Call::Mixed => CALLS[number % 7].0,
            call => call,
        };
        let answers = match call {
            Call::Claims => vec![put(&store, START, Mode::Charge, &of(2)[..1]).await?],
            Call::Slices => vec![put(&store, START, Mode::Charge, &of(2)).await?],
            Call::Forced => vec![put(&store, START, Mode::Force, &of(2)).await?],
            Call::Peeks | Call::Mixed => vec![put(&store, START, Mode::Peek, &of(2)).await?],
            Call::Batches => {
                let slice = |part| Slice { now: START, mode: Mode::Charge, parts: vec![part] };
                let slices: Vec<Slice> = of(2).into_iter().map(slice).collect();
                in_time("a batch", put_many(&store, &slices)).await?
            }
            Call::Refunds => {
                let refunds: Vec<_> = of(5).into_iter().zip(receipts).collect();
                give_back(&store, START, &refunds).await??;
                Vec::new()
            }
            Call::Resets => {
                forget(&store, START, &parts).await??;
                Vec::new()
            }
        };
        for answer in answers {
            match answer {
                Err(error) if may_contend(promises, &error) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    })
}
