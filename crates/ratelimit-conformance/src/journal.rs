//! The calls of a case and their answers, for the message of a failure.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::{
    Answer, Claims, CounterStore, Limits, MeterId, Mode, Promises, Refund, StoreError, Timestamp,
};

use crate::describe;
use crate::failure::with_sources;
use crate::subject::Handle;

/// The number of steps that are kept.
const REMEMBERED: usize = 2_000;

/// The number of steps in a message.
const TOLD: usize = 10;

/// The calls of a case.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Steps>);

#[derive(Debug, Default)]
struct Steps {
    taken: u64,
    last: VecDeque<Step>,
}

#[derive(Debug)]
struct Step {
    number: u64,
    at: Timestamp,
    verb: &'static str,
    parts: Vec<Part>,
    names: Names,
    result: Option<Result<Option<Answer>, String>>,
}

#[derive(Debug)]
struct Part {
    meter: Vec<u8>,
    scope: String,
    key: Vec<u8>,
    units: u64,
}

/// The scope and the text of each limit.
type Names = Arc<[(String, String)]>;

impl Journal {
    /// The steps on the meters of the last step, as text. Empty if there are none.
    pub(crate) fn told(&self) -> String {
        let steps = self.steps();
        let Some(last) = steps.last.back() else { return String::new() };
        let is_on = |part: &Part| last.parts.iter().any(|other| other.meter == part.meter);
        let mut lines: Vec<String> =
            steps.last.iter().filter(|step| step.parts.iter().any(is_on)).map(Step::told).collect();
        let lines = lines.split_off(lines.len().saturating_sub(TOLD));
        format!(
            "\n     the last recorded steps on this meter, without concurrent calls, instants since the start of the case:\n{}",
            lines.join("\n")
        )
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, at: Timestamp, verb: &'static str, parts: Vec<Part>, names: &Names) -> u64 {
        let mut steps = self.steps();
        steps.taken += 1;
        let number = steps.taken;
        if steps.last.len() == REMEMBERED {
            steps.last.pop_front();
        }
        steps.last.push_back(Step { number, at, verb, parts, names: names.clone(), result: None });
        number
    }

    fn end(&self, number: u64, result: Result<Option<Answer>, String>) {
        let mut steps = self.steps();
        if let Some(step) = steps.last.iter_mut().rev().find(|step| step.number == number) {
            step.result = Some(result);
        }
    }
}

impl Step {
    fn told(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(|part| part.told(&self.names)).collect();
        let result = match &self.result {
            None => "no answer".to_owned(),
            Some(Ok(None)) => "done".to_owned(),
            Some(Ok(Some(answer))) => describe::answer(answer),
            Some(Err(error)) => format!("failed: {error}"),
        };
        let at = describe::instant(self.at);
        format!("     {:5} {at} {} {} -> {result}", self.number, self.verb, parts.join(" and "))
    }
}

impl Part {
    fn new(id: MeterId<'_>, units: u64) -> Self {
        Self { meter: id.to_bytes(), scope: id.scope.to_owned(), key: id.key.to_owned(), units }
    }

    fn told(&self, names: &Names) -> String {
        let text = names.iter().find(|(scope, _)| *scope == self.scope).map_or(&self.scope, |(_, text)| text);
        format!("{} of `{text}` on key {}", self.units, describe::key(&self.key))
    }
}

/// A store that records calls in the journal.
pub(crate) struct Noted {
    store: Handle,
    journal: Arc<Journal>,
    names: Names,
}

impl Noted {
    /// Records the calls to `store` under these limits.
    pub(crate) fn new(store: Handle, journal: Arc<Journal>, limits: &Limits) -> Self {
        let names = limits.iter().map(|limit| (limit.scope().to_owned(), limit.to_string())).collect();
        Self { store, journal, names }
    }

    fn begin(&self, claims: &Claims<'_>, verb: Option<&'static str>) -> u64 {
        let verb = verb.unwrap_or(match claims.mode() {
            Mode::Charge => "take",
            Mode::Peek => "peek at",
            Mode::Force => "force",
        });
        let parts = claims.iter().map(|claim| Part::new(claim.id, claim.cost)).collect();
        self.journal.begin(claims.now(), verb, parts, &self.names)
    }

    fn end(&self, number: u64, answer: &Result<Answer, StoreError>) {
        let result = answer.as_ref().map(|answer| Some(answer.clone()));
        self.journal.end(number, result.map_err(|error| with_sources(error)));
    }

    fn end_done(&self, number: u64, done: &Result<(), StoreError>) {
        self.journal.end(number, done.as_ref().map(|()| None).map_err(|error| with_sources(error)));
    }
}

impl fmt::Debug for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl CounterStore for Noted {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let number = self.begin(&claims, None);
        let answer = self.store.claim(claims).await;
        self.end(number, &answer);
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let numbers: Vec<u64> = slices.iter().map(|claims| self.begin(claims, None)).collect();
        let answers = self.store.claim_many(slices).await;
        for (number, answer) in numbers.into_iter().zip(&answers) {
            self.end(number, answer);
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let parts = refunds.iter().map(|given| Part::new(given.id, given.cost)).collect();
        let number = self.journal.begin(now, "give back", parts, &self.names);
        let done = self.store.refund(now, refunds).await;
        self.end_done(number, &done);
        done
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let number = self.begin(&claims, Some("reset"));
        let done = self.store.reset(claims).await;
        self.end_done(number, &done);
        done
    }
}
