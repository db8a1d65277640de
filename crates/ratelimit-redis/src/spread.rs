//! Slices over several slots of a cluster, which no script can decide at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratelimit_core::{Answer, ErrorKind, Mode, Verdict};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::keys::slot_of;
use crate::store::Inner;
use crate::wire::{GiveBack, Slice};

/// The claims of a slice that are in one slot.
#[derive(Clone)]
struct Part {
    places: Vec<usize>,
    slice: Slice,
}

/// Asks all parts, then charges them, and gives back if one of them has been taken in between.
///
/// This goes on to its end when the caller's future is dropped or its time is up.
pub(crate) async fn claim(inner: Arc<Inner>, slice: Slice, deadline: Instant) -> Result<Answer, Failure> {
    let address = inner.link.address().to_owned();
    let task = tokio::spawn(decide(inner, slice, deadline));
    match timeout_at(deadline, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Failure::new(ErrorKind::Server, "the runtime is shutting down").maybe_applied()),
        Err(_) => Err(Failure::new(ErrorKind::Timeout, "no answer within the time limit")
            .at(&address)
            .maybe_applied()),
    }
}

async fn decide(inner: Arc<Inner>, slice: Slice, deadline: Instant) -> Result<Answer, Failure> {
    let parts = split(&slice);
    let mut seen = Vec::new();
    if slice.mode != Mode::Force {
        seen = ask(&inner, &parts, Mode::Peek, deadline).await.into_iter().collect::<Result<_, _>>()?;
        let admitted = seen.iter().all(|answer| answer.admitted);
        if !admitted || slice.mode == Mode::Peek {
            return Ok(join(&parts, &seen, admitted, false));
        }
    }
    let results = ask(&inner, &parts, slice.mode, deadline).await;
    if results.iter().all(|result| result.as_ref().is_ok_and(|answer| answer.admitted)) {
        let answers: Vec<_> = results.into_iter().flatten().collect();
        return Ok(join(&parts, &answers, true, true));
    }
    if slice.mode == Mode::Force {
        // What was used has been used: the parts that took it keep it.
        return Err(first_failure(results).maybe_applied());
    }
    take_back(&inner, &parts, &results).await?;
    // What was given back stands as it did when it was asked.
    let mut answers = Vec::with_capacity(parts.len());
    for (result, before) in results.into_iter().zip(seen) {
        match result? {
            answer if answer.admitted => answers.push(before),
            answer => answers.push(answer),
        }
    }
    Ok(join(&parts, &answers, false, false))
}

fn split(slice: &Slice) -> Vec<Part> {
    let mut slots: BTreeMap<u16, Part> = BTreeMap::new();
    for (place, ask) in slice.asks.iter().enumerate() {
        let part = slots.entry(slot_of(&ask.key)).or_insert_with(|| Part {
            places: Vec::new(),
            slice: Slice { now: slice.now, mode: slice.mode, asks: Default::default() },
        });
        part.places.push(place);
        part.slice.asks.push(ask.clone());
    }
    slots.into_values().collect()
}

/// Puts all parts at once.
async fn ask(
    inner: &Arc<Inner>,
    parts: &[Part],
    mode: Mode,
    deadline: Instant,
) -> Vec<Result<Answer, Failure>> {
    let mut tasks = JoinSet::new();
    for (nth, part) in parts.iter().enumerate() {
        let (inner, slice) = (inner.clone(), Slice { mode, ..part.slice.clone() });
        tasks.spawn(async move { (nth, inner.decide(slice, deadline).await) });
    }
    let stopped = || Failure::new(ErrorKind::Server, "the runtime is shutting down").maybe_applied();
    let mut results: Vec<_> = parts.iter().map(|_| Err(stopped())).collect();
    while let Some(done) = tasks.join_next().await {
        if let Ok((nth, result)) = done {
            results[nth] = result;
        }
    }
    results
}

/// Gives back what the admitted parts have charged, in a time limit of its own.
async fn take_back(
    inner: &Arc<Inner>,
    parts: &[Part],
    results: &[Result<Answer, Failure>],
) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for (part, result) in parts.iter().zip(results) {
        let Ok(answer) = result else { continue };
        if !answer.charged {
            continue;
        }
        let give_back = |(ask, verdict): (&crate::wire::Ask, &Verdict)| GiveBack {
            ask: ask.clone(),
            receipt: verdict.receipt,
        };
        let asks = part.slice.asks.iter().zip(&answer.verdicts).filter(|(ask, _)| ask.cost > 0);
        let refunds: Vec<_> = asks.map(give_back).collect();
        if let Err(failure) = inner.give_back(answer.now, &refunds, inner.deadline()).await {
            outcome = Err(failure.maybe_applied());
        }
    }
    outcome
}

fn first_failure(results: Vec<Result<Answer, Failure>>) -> Failure {
    results.into_iter().find_map(Result::err).unwrap_or_else(Failure::strange_reply)
}

/// The answers of the parts as one, in the order of the claims.
fn join(parts: &[Part], answers: &[Answer], admitted: bool, charged: bool) -> Answer {
    let mut verdicts: Vec<(usize, Verdict)> = Vec::new();
    for (part, answer) in parts.iter().zip(answers) {
        verdicts.extend(part.places.iter().copied().zip(answer.verdicts.iter().copied()));
    }
    verdicts.sort_unstable_by_key(|(place, _)| *place);
    let now = answers.iter().map(|answer| answer.now).max().unwrap_or_default();
    Answer { admitted, charged, now, verdicts: verdicts.into_iter().map(|(_, verdict)| verdict).collect() }
}

/// Decides independent slices: those in one slot together, all slots at once. One over several slots waits for those
/// before it, and those after it wait for it.
pub(crate) async fn claim_many(
    inner: &Arc<Inner>,
    slices: Vec<Slice>,
    deadline: Instant,
) -> Vec<Result<Answer, Failure>> {
    let stopped = || Failure::new(ErrorKind::Server, "the runtime is shutting down").maybe_applied();
    let mut answers: Vec<_> = slices.iter().map(|_| Err(stopped())).collect();
    let mut waiting: BTreeMap<u16, (Vec<usize>, Vec<Slice>)> = BTreeMap::new();
    for (place, slice) in slices.into_iter().enumerate() {
        if let Some(slot) = slice.slot() {
            let (places, slices) = waiting.entry(slot).or_default();
            places.push(place);
            slices.push(slice);
        } else {
            flush(inner, std::mem::take(&mut waiting), deadline, &mut answers).await;
            answers[place] = claim(inner.clone(), slice, deadline).await;
        }
    }
    flush(inner, waiting, deadline, &mut answers).await;
    answers
}

async fn flush(
    inner: &Arc<Inner>,
    waiting: BTreeMap<u16, (Vec<usize>, Vec<Slice>)>,
    deadline: Instant,
    answers: &mut [Result<Answer, Failure>],
) {
    let mut tasks = JoinSet::new();
    for (places, slices) in waiting.into_values() {
        let inner = inner.clone();
        tasks.spawn(async move { (places, inner.decide_batches(&slices, deadline).await) });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok((places, decided)) = done {
            for (place, answer) in places.into_iter().zip(decided) {
                answers[place] = answer;
            }
        }
    }
}
