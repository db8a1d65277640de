//! A lost answer: the call takes effect once or not at all, and the error does not claim otherwise.

use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Mode, Receipt};

use super::mirrored::{Part, Slice, forget, give_back, put, put_many};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{START, pause};
use crate::failure::{CaseResult, ensure};
use crate::in_time::{self, in_time};
use crate::printed::shows;
use crate::subject::Handle;

/// The prefix of keys: no error may contain it.
const KEY: &str = "very-secret";

/// Calls with a lost answer, and the suffix of a case's name.
const CALLS: [(Call, &str); 7] = [
    (Call::Claim, "a-claim"),
    (Call::Forced, "a-forced-charge"),
    (Call::Batch, "a-batch"),
    (Call::LargeBatch, "a-large-batch"),
    (Call::Slice, "a-slice"),
    (Call::Refund, "a-refund"),
    (Call::Reset, "a-reset"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Claim,
    Forced,
    Batch,
    LargeBatch,
    Slice,
    Refund,
    Reset,
}

pub(super) fn cases() -> Vec<Case> {
    let case = |(call, name)| {
        Case::new(
            format!("lost-answers/{name}"),
            "The connection breaks before the answer: the call takes effect at most once, and not at all if the error says so.",
            move |bench| lost(bench, call),
        )
        .any_time()
    };
    let mut cases: Vec<Case> = CALLS.into_iter().map(case).collect();
    cases.push(
        Case::new(
            "lost-answers/too-late",
            "An answer that arrives after its caller has given up goes to no other call, and the call takes effect at most \
             once.",
            too_late,
        )
        .any_time(),
    );
    cases
}

async fn too_late(bench: Bench) -> CaseResult {
    let calls = CALLS.iter().filter(|(call, _)| is_in_time(&bench, *call));
    futures::future::try_join_all(calls.map(|(call, _)| one_too_late(&bench, *call))).await?;
    Ok(())
}

/// Whether this call can end in time: not a large batch that is sent slice by slice.
fn is_in_time(bench: &Bench, call: Call) -> bool {
    !matches!(call, Call::LargeBatch) || bench.space.sends_together()
}

async fn one_too_late(bench: &Bench, call: Call) -> CaseResult {
    let (proxy, handle) = bench.through_proxy().await?;
    let limit = limit("1000/3000d")?;
    let part = Part::new(&limit, format!("{KEY}{call:?}"), 0);
    let charged = put(&bench.store, START, Mode::Charge, &[part.of(100)]).await??;
    recovers(&handle, &part).await?;
    proxy.hold_answers();
    let asked = ask(&handle, call, &part, charged.verdicts[0].receipt);
    let ended = in_time(&format!("{call:?}"), asked).await?;
    ensure!(ended.is_err(), "{call:?} got an answer that had not come");
    proxy.let_answers_go();
    // The late answer, which reports another count, must not go to another call.
    for number in 0..5 {
        let fresh = Part::new(&limit, format!("{KEY}{call:?} {number}"), 0);
        recovers(&handle, &fresh).await?;
        for taken in 1..4 {
            let answer = put(&handle, START, Mode::Charge, &[fresh.of(1)]).await??;
            let left = answer.verdicts[0].remaining;
            ensure!(
                left == 1_000 - taken,
                "{left} of 1000 are left after {taken}, and a {call:?} without an answer"
            );
        }
    }
    judge(&bench.store, call, &part, &ended).await
}

/// Checks that the remaining units match the result of the call.
async fn judge(store: &Handle, call: Call, part: &Part, ended: &Result<(), StoreError>) -> CaseResult {
    let left = left_in_the_end(store, part).await?;
    let (before, after) = match call {
        Call::Refund => (900, 910),
        Call::Reset => (900, 1_000),
        _ => (900, 890),
    };
    let limit = &part.limit;
    let what = format!("{left} are left of {limit} after {call:?} got {ended:?}; {before} were before it");
    ensure!(left == before || left == after, "{what}");
    let unknown = matches!(ended, Err(error) if error.applied() == Applied::Unknown);
    ensure!(unknown || left == if ended.is_ok() { after } else { before }, "{what}");
    if let Err(error) = ended {
        let printed = format!("{error} {error:?}");
        ensure!(!shows(&printed, KEY.as_bytes()), "the error prints a key: {printed}");
    }
    Ok(())
}

async fn lost(bench: Bench, call: Call) -> CaseResult {
    if !is_in_time(&bench, call) {
        bench.sends_together()?;
    }
    let (proxy, mut handle) = bench.through_proxy().await?;
    for text in ["1000/3000d", "1000/3000d burst 1000", "1000/3000d log"] {
        let limit = limit(text)?;
        for once in [true, false] {
            let part = Part::new(&limit, format!("{KEY}{once}"), 0);
            recovers(&handle, &part.of(0)).await?;
            // A hundred units are charged before the call, so that it can refund or reset them.
            let charged = put(&bench.store, START, Mode::Charge, &[part.of(100)]).await??;
            let receipt = charged.verdicts[0].receipt;
            proxy.lose_answers(once);
            let ended = in_time(&format!("{call:?}"), ask(&handle, call, &part, receipt)).await;
            proxy.lose_no_answers();
            let ended = ended?;
            if !bench.reconnects {
                handle = bench.space.open_at(proxy.address()).await?;
            }
            recovers(&handle, &part.of(0)).await?;
            judge(&bench.store, call, &part, &ended).await?;
        }
    }
    Ok(())
}

/// Takes ten units in some way, refunds ten, or resets the meter.
async fn ask(
    handle: &Handle,
    call: Call,
    part: &Part,
    receipt: Receipt,
) -> CaseResult<Result<(), StoreError>> {
    let other = Part { key: [part.key.as_slice(), b" other"].concat(), ..part.of(1) };
    let slice = |part: Part| Slice { now: START, mode: Mode::Charge, parts: vec![part] };
    match call {
        Call::Claim => put(handle, START, Mode::Charge, &[part.of(10)]).await.map(|ended| ended.map(drop)),
        Call::Forced => put(handle, START, Mode::Force, &[part.of(10)]).await.map(|ended| ended.map(drop)),
        Call::Slice => {
            // Another limit of the same key, on the same server.
            let second = Part { limit: limit("1000/3000d name second")?, ..other };
            let parts = [Part { key: part.key.clone(), ..second }, part.of(10)];
            put(handle, START, Mode::Charge, &parts).await.map(|ended| ended.map(drop))
        }
        Call::Batch => {
            let mut answers = put_many(handle, &[slice(other), slice(part.of(10))]).await?;
            Ok(answers.remove(1).map(drop))
        }
        Call::LargeBatch => {
            let mut slices = vec![slice(other); 500];
            slices[300] = slice(part.of(10));
            Ok(put_many(handle, &slices).await?.remove(300).map(drop))
        }
        Call::Refund => give_back(handle, START, &[(part.of(10), receipt)]).await,
        Call::Reset => forget(handle, START, &[part.of(0)]).await,
    }
}

/// Checks that the handle recovers by itself.
async fn recovers(handle: &Handle, part: &Part) -> CaseResult {
    in_time::recovers(|| put(handle, START, Mode::Peek, std::slice::from_ref(part))).await?;
    Ok(())
}

/// The remaining units after all calls in flight have reached the server.
async fn left_in_the_end(store: &Handle, part: &Part) -> CaseResult<u64> {
    pause(Duration::from_millis(100)).await;
    let peeked = put(store, START, Mode::Peek, &[part.of(0)]).await??;
    Ok(peeked.verdicts[0].remaining)
}
