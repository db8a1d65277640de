//! Every call that can be dropped: it takes effect in full or not at all, nothing stays reserved, and every operation works
//! after it.

use std::time::Duration;

use ratelimit_core::store::{Decisions, Mode};
use ratelimit_core::{Limits, Request};

use super::cancelled::polled;
use super::contended::may_contend;
use super::mirrored::{Part, Slice, after, forget, give_back, put, put_many};
use crate::bench::{Bench, limit, limits};
use crate::case::{Case, Need};
use crate::clock::{DAYS, START, pause};
use crate::failure::{CaseResult, Failure, ensure};
use crate::in_time::{SETTLED, in_time, settled};
use crate::kind::Kind;
use crate::subject::Handle;
use crate::trial::Trial;

/// The time limit for releasing the reservation of a dropped call.
const FREED: Duration = Duration::from_secs(10);

/// The dropped calls, and the suffix of a case's name.
const CALLS: [(Call, &str); 6] = [
    (Call::Claim, "claims"),
    (Call::Forced, "forced-charges"),
    (Call::Peek, "peeks"),
    (Call::Batch, "batches"),
    (Call::Refund, "refunds"),
    (Call::Reset, "resets"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Claim,
    Forced,
    Peek,
    Batch,
    Refund,
    Reset,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Case::for_each(
        &Kind::ALL,
        "dropped/refusals-leave-nothing",
        "Dropped claims that would be refused leave nothing reserved: the remaining units can be taken.",
        refusals,
    );
    cases.push(Case::new(
        "dropped/refused-slices-leave-nothing",
        "Dropped slices that one limit or key would refuse leave the others unchanged.",
        refused_slices,
    ));
    cases.extend(CALLS.map(|(call, name)| {
        Case::new(
            format!("dropped/{name}-whole-or-not-at-all"),
            "A call dropped at any point takes effect in full or not at all, and every operation works after it.",
            move |bench| whole(bench, call),
        )
    }));
    cases.push(
        Case::new(
            "dropped/slices-whole-or-not-at-all",
            "A dropped slice of three limits, alone or in a batch, is charged in full or not at all, and every operation works after it.",
            slices,
        )
        .needs(Need::ExactPerKey),
    );
    cases.into_iter().map(Case::any_time).collect()
}

/// Polls a call at most this many times, or runs it for at most this time, then drops it.
pub(super) async fn cut<T>(call: impl Future<Output = T>, number: u64) {
    if number.is_multiple_of(2) {
        drop(polled(call, usize::try_from(number / 2).unwrap_or(0)).await);
    } else {
        let micros = Duration::from_micros(30 << (number / 2).min(10));
        drop(tokio::time::timeout(micros, call).await);
    }
}

/// Waits until this number of units is left, and fails after a while.
async fn comes_to(trial: &Trial, units: u64) -> CaseResult {
    let began = tokio::time::Instant::now();
    loop {
        let left = trial.left().await?;
        if left == units && began.elapsed() > SETTLED {
            return Ok(());
        }
        ensure!(
            began.elapsed() < FREED,
            "{left} units are left, not {units}, {FREED:?} after claims that would be refused were dropped"
        );
        pause(Duration::from_millis(20)).await;
    }
}

async fn refusals(bench: Bench, kind: Kind) -> CaseResult {
    let trial = Trial::new(&bench, kind.limit(10, DAYS)?);
    trial.admit(8).await?;
    for number in (0..14).cycle().take(70) {
        cut(trial.limiter.check(trial.request(3 + number % 5)), number).await;
    }
    comes_to(&trial, 2).await?;
    trial.admit(2).await?;
    trial.refuse(1).await?;
    Ok(())
}

async fn refused_slices(bench: Bench) -> CaseResult {
    for text in ["10/3000d fixed", "10/3000d", "10/3000d burst 10", "10/3000d log"] {
        let free = Trial::new(&bench, limit(text)?).key("free");
        let full = free.under(limit("1/3000d name full")?).key(format!("full {text}"));
        full.admit(1).await?;
        // Two limits on one key, and two keys under one limit. The refusing one comes first, then last.
        let both: Limits = limits(&[text, "1/3000d name full"])?;
        let turned: Limits = limits(&["1/3000d name full", text])?;
        let on_full: Vec<Trial> = [both, turned].map(|limits| full.under(limits)).into();
        let part = |key, cost| limit(text).map(|limit| Part::new(&limit, key, cost));
        free.key("taken").admit(10).await?;
        for number in (0..14).cycle().take(56) {
            for slice in &on_full {
                cut(slice.limiter.check(slice.request(1)), number).await;
            }
            let keys = [part("free", 10)?, part("taken", 1)?];
            cut(put(&bench.store, START, Mode::Charge, &keys), number).await;
            let keys = [part("taken", 1)?, part("free", 10)?];
            cut(put(&bench.store, START, Mode::Charge, &keys), number).await;
        }
        for trial in [&free, &full.under(limit(text)?)] {
            comes_to(trial, 10).await?;
            trial.admit(10).await?;
        }
    }
    Ok(())
}

/// The units that are left of each of these meters; `None` while a dropped call still uses it.
async fn left_of(store: &Handle, parts: &[Part]) -> CaseResult<Vec<Option<u64>>> {
    let peek = |part: &Part| Slice { now: START, mode: Mode::Peek, parts: vec![part.clone()] };
    let peeks: Vec<Slice> = parts.iter().map(peek).collect();
    let mut left = Vec::new();
    for answer in in_time("a batch", put_many(store, &peeks)).await? {
        left.push(match answer {
            Err(error) if may_contend(store.dyn_promises(), &error) => None,
            answer => Some(answer?.verdicts[0].remaining),
        });
    }
    Ok(left)
}

/// Units of each meter, of which some are taken before the dropped call: if it is made twice, that shows.
const UNITS: u64 = 50;
const BEFORE: u64 = 15;

impl Call {
    /// The units that may be left after the call was dropped.
    fn leaves(self) -> &'static [u64] {
        match self {
            Self::Claim | Self::Forced => &[35, 25],
            Self::Peek => &[35],
            Self::Batch => &[35, 25, 15],
            Self::Refund => &[35, 40],
            Self::Reset => &[35, 50],
        }
    }
}

/// Makes one call on the key. Refunds are made elsewhere, because they need a receipt.
async fn call(store: &Handle, call: Call, part: &Part) -> CaseResult {
    match call {
        Call::Claim => drop(put(store, START, Mode::Charge, &[part.of(10)]).await?),
        Call::Forced => drop(put(store, START, Mode::Force, &[part.of(10)]).await?),
        Call::Peek => drop(put(store, START, Mode::Peek, &[part.of(10)]).await?),
        Call::Batch => {
            let slices =
                [10, 10].map(|cost| Slice { now: START, mode: Mode::Charge, parts: vec![part.of(cost)] });
            drop(put_many(store, &slices).await?);
        }
        Call::Refund => unreachable!("a refund needs a receipt"),
        Call::Reset => drop(forget(store, START, &[part.of(0)]).await?),
    }
    Ok(())
}

async fn whole(bench: Bench, dropped: Call) -> CaseResult {
    if dropped == Call::Reset && bench.promises().decisions == Decisions::Eventual {
        return Err(Failure::not_applicable(
            "a node may learn later that others have not heard of its reset",
        ));
    }
    let mut meters = Vec::new();
    for kind in bench.kinds() {
        let limit = kind.limit(UNITS, DAYS)?;
        for number in 0..14 {
            let trial = Trial::new(&bench, limit.clone()).key(format!("{number}"));
            let part = Part::new(&limit, format!("{number}"), 0);
            let taken = [part.of(BEFORE)];
            let receipt = put(&bench.store, START, Mode::Charge, &taken).await??.verdicts[0].receipt;
            match dropped {
                Call::Refund => {
                    let refund = [(part.of(5), receipt)];
                    cut(give_back(&bench.store, START, &refund), number).await;
                }
                _ => cut(call(&bench.store, dropped, &part), number).await,
            }
            meters.push((trial, part, format!("a dropped {dropped:?} of {kind:?}")));
        }
    }
    let parts: Vec<Part> = meters.iter().map(|(_, part, _)| part.clone()).collect();
    settled(|| left_of(&bench.store, &parts)).await?;
    if bench.promises().decisions == Decisions::Eventual {
        // A node learns the result of the call with the next charge that it sends to the others.
        for part in &parts {
            let one = [part.of(1)];
            let answer = put(&bench.store, START, Mode::Charge, &one).await??;
            if answer.charged {
                give_back(&bench.store, START, &[(part.of(1), answer.verdicts[0].receipt)]).await??;
            }
        }
    }
    for (trial, part, what) in meters {
        let left = trial.left().await.map_err(|failure| after(&what, failure))?;
        ensure!(
            dropped.leaves().contains(&left),
            "{left} of {UNITS} are left after {BEFORE} were taken and {what}, and not one of {:?}",
            dropped.leaves()
        );
        works(&trial, &bench.store, &part, (UNITS, left)).await.map_err(|failure| after(&what, failure))?;
    }
    Ok(())
}

/// Checks that every operation works on a meter with so many units, of which some are left.
async fn works(trial: &Trial, store: &Handle, part: &Part, (all, left): (u64, u64)) -> CaseResult {
    if left > 0 {
        trial.admit(left).await?;
    }
    trial.refuse(1).await?;
    let forced = put(store, START, Mode::Force, &[part.of(1)]).await??;
    ensure!(forced.admitted, "a forced charge was refused: {forced:?}");
    give_back(store, START, &[(part.of(1), forced.verdicts[0].receipt)]).await??;
    forget(store, START, &[part.of(0)]).await??;
    ensure!(trial.left().await? == all, "a reset left {} of {all}", trial.left().await?);
    let charged = put(store, START, Mode::Charge, &[part.of(4)]).await??;
    give_back(store, START, &[(part.of(3), charged.verdicts[0].receipt)]).await??;
    let slice = |cost| Slice { now: START, mode: Mode::Charge, parts: vec![part.of(cost)] };
    for answer in in_time("a batch", put_many(store, &[slice(4)])).await? {
        ensure!(answer?.admitted, "4 were refused in a batch after a reset and one unit");
    }
    trial.expect_left(all - 5).await
}

async fn slices(bench: Bench) -> CaseResult {
    let texts = ["10/3000d", "10/3000d burst 10", "10/3000d log"];
    let trial = Trial::new(&bench, limits(&texts)?);
    let mut keys = Vec::new();
    for (number, one) in (0..28).zip((0..texts.len()).cycle()) {
        let [alone, first, second] = ["alone", "first", "second"].map(|key| format!("{key} {number}"));
        cut(trial.limiter.check(trial.key(&alone).request(10)), number % 14).await;
        let both = [&first, &second].map(|key| Request::new(key).cost(10));
        cut(trial.limiter.check_many(both), number % 14).await;
        keys.extend([(alone, &texts[..]), (first, &texts[one..=one]), (second, &texts[one..=one])]);
    }
    let limits = texts.iter().map(|text| limit(text)).collect::<CaseResult<Vec<_>>>()?;
    let parts = keys.iter().flat_map(|(key, _)| limits.iter().map(move |limit| Part::new(limit, key, 0)));
    let parts: Vec<Part> = parts.collect();
    settled(|| left_of(&bench.store, &parts)).await?;
    for (key, texts) in keys {
        let trial = trial.key(&key);
        let peeked = in_time("a peek", async { Ok(trial.limiter.peek(trial.request(0)).await?) }).await?;
        let left: Vec<u64> = peeked.each().map(|each| each.remaining()).collect();
        ensure!(left == [0; 3] || left == [10; 3], "{left:?} of 10 are left after a dropped slice of 10");
        for text in texts {
            let part = Part::new(&limit(text)?, &key, 0);
            works(&trial.under(limit(text)?), &bench.store, &part, (10, left[0])).await?;
        }
    }
    Ok(())
}
