//! Stores that decide batches wrongly.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ratelimit_core::meter::{Meter, decide};
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};

use super::broken_store::{Around, BrokenStore};
use super::features::{without_immediate, without_steps};
use ratelimit_conformance::ReferenceStore;
use tokio::task::yield_now;

type Answers = Vec<Result<Answer, StoreError>>;

/// How a store decides a batch.
trait Batching: fmt::Debug + Send + Sync + 'static {
    fn decide(meters: &ReferenceStore, slices: &[Claims<'_>]) -> impl Future<Output = Answers> + Send;
}

#[derive(Debug)]
struct Batches<B> {
    meters: Arc<ReferenceStore>,
    batching: std::marker::PhantomData<B>,
}

impl<B: Batching> Around for Batches<B> {
    type Shared = ();

    fn around(meters: Arc<ReferenceStore>, _: Arc<()>) -> Self {
        Self { meters, batching: std::marker::PhantomData }
    }
}

impl<B: Batching> CounterStore for Batches<B> {
    fn promises(&self) -> Promises {
        self.meters.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.meters.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Answers {
        B::decide(&self.meters, slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.meters.reset(claims).await
    }
}

async fn peeked(meters: &ReferenceStore, claims: &Claims<'_>) -> Result<Answer, StoreError> {
    meters.claim(claims.with_mode(Mode::Peek)).await
}

/// Decides the slices on other meters.
async fn changed(meters: &ReferenceStore, slices: &[Claims<'_>], meter: fn(Meter) -> Meter) -> Answers {
    let mut answers = Answers::new();
    for claims in slices {
        let mut others = claims.to_vec();
        others.iter_mut().for_each(|claim| claim.meter = meter(claim.meter));
        answers
            .push(meters.claim(Claims::new(claims.now(), claims.mode(), &others).unwrap_or(*claims)).await);
    }
    answers
}

/// Decides slices in this mode on their first sixteen meters, and shows the others as new.
async fn few(meters: &ReferenceStore, slices: &[Claims<'_>], mode: Mode) -> Answers {
    let mut answers = Answers::new();
    for claims in slices {
        let some = Claims::new(claims.now(), mode, &claims[..claims.len().min(16)]);
        let Some(some) = some.ok().filter(|_| claims.mode() == mode) else {
            answers.push(meters.claim(*claims).await);
            continue;
        };
        let mut states = vec![None; claims.len()];
        let shown = decide(&claims.with_mode(Mode::Peek), &mut states);
        answers.push(meters.claim(some).await.map(|mut answer| {
            answer.verdicts.extend(shown.verdicts.into_iter().skip(some.len()));
            answer
        }));
    }
    answers
}

macro_rules! batchings {
    ($($batching:ident $name:literal: $deviation:literal, $caught_by:literal |$meters:ident, $slices:ident| $body:block)*) => {
        pub(super) fn all() -> Vec<BrokenStore> {
            vec![$(BrokenStore::around::<Batches<$batching>>($name, $deviation, $caught_by)),*]
        }
        $(
            #[derive(Debug)]
            struct $batching;
            impl Batching for $batching {
                async fn decide($meters: &ReferenceStore, $slices: &[Claims<'_>]) -> Answers $body
            }
        )*
    };
}

batchings! {
    Backwards "batches-backwards": "the last slice of a batch is decided first", "batches/in-order" |meters, slices| {
        let turned: Vec<_> = slices.iter().rev().copied().collect();
        let mut answers = meters.claim_many(&turned).await;
        answers.reverse();
        answers
    }
    Turned "answers-turned": "the answers to a batch come in the opposite order", "batches/a-thousand-keys"
    |meters, slices| {
        let mut answers = meters.claim_many(slices).await;
        answers.reverse();
        answers
    }
    StopsAtRefusal "batch-stops-at-refusal": "after the first refusal all others are refused", "batches/independent"
    |meters, slices| {
        let mut answers = Answers::new();
        let mut stopped = false;
        for claims in slices {
            let answer = if stopped { peeked(meters, claims).await } else { meters.claim(*claims).await };
            let answer = answer.map(|answer| Answer { admitted: answer.admitted && !stopped, ..answer });
            stopped |= answer.as_ref().is_ok_and(|answer| !answer.admitted);
            answers.push(answer);
        }
        answers
    }
    OnFirstState "batch-on-the-first-state": "all slices are decided on the state before the batch",
    "batches/do-not-over-consume-fixed" |meters, slices| {
        let mut answers = Answers::new();
        for claims in slices {
            answers.push(peeked(meters, claims).await);
        }
        for (claims, answer) in slices.iter().zip(&mut answers) {
            if let Ok(answer) = answer
                && answer.admitted
            {
                answer.charged = claims.mode() != Mode::Peek;
                let mode = if answer.charged { Mode::Force } else { Mode::Peek };
                let _ = meters.claim(claims.with_mode(mode)).await;
            }
        }
        answers
    }
    Truncated "batch-truncated": "of a batch of more than 256 slices the rest is not answered",
    "batches/hundreds-on-one-key-fixed" |meters, slices| {
        meters.claim_many(&slices[..slices.len().min(256)]).await
    }
    TooManyParameters "parameters-in-16-bits": "a batch is one statement with six parameters for each meter, of which it can have 65,535",
    "batches/twelve-thousand-meters" |meters, slices| {
        match slices.iter().map(|claims| claims.len()).sum::<usize>() > 65_535 / 6 {
            true => slices.iter().map(|_| Err(StoreError::new("model", ErrorKind::Server, "too many parameters"))).collect(),
            false => meters.claim_many(slices).await,
        }
    }
    Rejected "batch-too-large": "slices beyond the 4,096th are errors", "batches/thousands-on-one-key"
    |meters, slices| {
        let (first, rest) = slices.split_at(slices.len().min(4_096));
        let mut answers = meters.claim_many(first).await;
        answers.extend(rest.iter().map(|_| Err(StoreError::new("model", ErrorKind::Unsupported, "too many"))));
        answers
    }
    OneMode "batch-of-one-mode": "all slices are decided in the mode of the first", "batches/modes-of-their-own"
    |meters, slices| {
        let mode = slices.first().map_or(Mode::Peek, Claims::mode);
        let alike: Vec<_> = slices.iter().map(|claims| claims.with_mode(mode)).collect();
        meters.claim_many(&alike).await
    }
    OneInstant "batch-of-one-instant": "all slices are decided at the instant of the first",
    "batches/instants-of-their-own" |meters, slices| {
        let now = slices.first().map_or(Timestamp::EPOCH, Claims::now);
        let alike: Vec<_> = slices.iter().map(|claims| claims.at(now)).collect();
        meters.claim_many(&alike).await
    }
    Deduplicated "batch-deduplicated": "slices that are alike are decided once", "batches/do-not-over-consume-log"
    |meters, slices| {
        let mut known: HashMap<String, Answer> = HashMap::new();
        let mut answers = Answers::new();
        for claims in slices {
            let names: Vec<_> = claims.iter().map(|claim| (claim.id.to_bytes(), claim.cost)).collect();
            let name = format!("{:?} {:?} {names:?}", claims.now(), claims.mode());
            let answer = match known.get(&name) {
                Some(answer) => Ok(answer.clone()),
                None => meters.claim(*claims).await,
            };
            if let Ok(answer) = &answer {
                known.insert(name, answer.clone());
            }
            answers.push(answer);
        }
        answers
    }
    RefusesForced "batch-refuses-forced": "forced charges of a batch that do not fit are refused",
    "batches/hundreds-on-one-key-sliding" |meters, slices| {
        let mut unforced = slices.to_vec();
        for claims in unforced.iter_mut().filter(|claims| claims.mode() == Mode::Force) {
            *claims = claims.with_mode(Mode::Charge);
        }
        meters.claim_many(&unforced).await
    }
    ShiftsAfterError "batch-shifts": "after a slice that is refused the answers are those of the next slice",
    "batches/refused-among-hundreds" |meters, slices| {
        let mut answers = meters.claim_many(slices).await;
        if let Some(refused) = answers.iter().position(|answer| matches!(answer, Ok(answer) if !answer.admitted)) {
            answers[refused..].rotate_left(1);
        }
        answers
    }
    PeeksThenForces "batch-peeks-then-forces": "slices of several claims in a batch are peeked at, then charged",
    "atomic/batches" |meters, slices| {
        let mut answers = Answers::new();
        for claims in slices {
            let mut answer = if claims.len() == 1 { meters.claim(*claims).await } else { peeked(meters, claims).await };
            if claims.len() > 1 && claims.mode() != Mode::Peek && answer.as_ref().is_ok_and(|answer| answer.admitted) {
                yield_now().await;
                answer = meters.claim(claims.with_mode(Mode::Force)).await;
            }
            answers.push(answer);
        }
        answers
    }
    OneByOne "batch-claim-by-claim": "the claims of a slice in a batch are charged one after another",
    "dropped/slices-whole-or-not-at-all" |meters, slices| {
        let mut answers = Answers::new();
        for claims in slices {
            let answer = peeked(meters, claims).await;
            if answer.as_ref().is_ok_and(|answer| answer.admitted) {
                for claim in claims.iter() {
                    if let Ok(only) = Claims::new(claims.now(), Mode::Force, std::slice::from_ref(claim)) {
                        let _ = meters.claim(only).await;
                        yield_now().await;
                    }
                }
            }
            answers.push(answer);
        }
        answers
    }
    IgnoresSteps "batch-ignores-steps": "in a batch, units drain continuously from a bucket in steps", "steps/batches"
    |meters, slices| {
        changed(meters, slices, without_steps).await
    }
    WithoutImmediate "batch-without-immediate": "in a batch, all units of a queue wait", "turns/immediate-units"
    |meters, slices| {
        changed(meters, slices, without_immediate).await
    }
    SlicesOfOne "batch-of-single-claims": "of a slice in a batch the first two claims are decided",
    "batches/hundreds-of-slices" |meters, slices| {
        let mut answers = Answers::new();
        for claims in slices {
            match Claims::new(claims.now(), claims.mode(), &claims[..claims.len().min(2)]) {
                Ok(first) => {
                    let answer = meters.claim(first).await;
                    let rest = peeked(meters, claims).await;
                    answers.push(answer.and_then(|answer| {
                        let mut verdicts = answer.verdicts;
                        verdicts.extend(rest?.verdicts.into_iter().skip(2));
                        Ok(Answer { verdicts, ..answer })
                    }));
                }
                Err(_) => answers.push(meters.claim(*claims).await),
            }
        }
        answers
    }
    PeeksFew "batch-peeks-few": "a peek in a batch reads the first sixteen meters only", "batches/largest-slices"
    |meters, slices| {
        few(meters, slices, Mode::Peek).await
    }
    ForcesFew "batch-forces-few": "a forced slice in a batch charges the first sixteen meters only",
    "batches/largest-slices" |meters, slices| {
        few(meters, slices, Mode::Force).await
    }
}
