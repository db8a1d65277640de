//! The calls of a case and their answers, for the message of a failure.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claims, MeterId, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, Limits, StoreError, Timestamp};

use crate::describe;
use crate::failure::with_sources;
use crate::subject::Handle;

/// The number of steps that are kept.
const REMEMBERED: usize = 2_000;

/// The number of steps in a message.
const TOLD: usize = 10;

/// The number of parts of a step in a message.
const PARTS: usize = 4;

/// The number of calls without an answer in a message.
const UNANSWERED: usize = 3;

/// The calls of a case.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Steps>);

#[derive(Debug, Default)]
struct Steps {
    taken: u64,
    last: VecDeque<Step>,
    handles: usize,
    /// The texts of limits, by their scope and meter.
    limits: Vec<(String, Meter, String)>,
}

#[derive(Debug)]
struct Step {
    number: u64,
    at: Timestamp,
    handle: usize,
    verb: &'static str,
    parts: Vec<Part>,
    ended: Ended,
}

#[derive(Debug)]
enum Ended {
    /// The call has no answer yet.
    Not,
    Dropped,
    Answered(Box<Answer>),
    Done,
    Failed(String),
}

#[derive(Debug)]
struct Part {
    name: Vec<u8>,
    scope: String,
    key: Vec<u8>,
    units: u64,
    meter: Meter,
}

impl Journal {
    /// The steps on the meters of the last step, as text. Empty if there are none.
    pub(crate) fn reported(&self) -> String {
        let steps = self.steps();
        let Some(last) = steps.last.back() else { return String::new() };
        let is_on = |part: &Part| last.parts.iter().any(|other| other.name == part.name);
        let on_it = steps.last.iter().filter(|step| step.parts.iter().any(is_on));
        let lines: Vec<String> = on_it.map(|step| steps.line(step)).collect();
        let earlier = lines.len().saturating_sub(TOLD);
        let head = "the last recorded steps on this meter, instants since the start of the case";
        let before =
            if earlier == 0 { String::new() } else { format!(" ({earlier} earlier ones are left out)") };
        format!("\n     {head}{before}:\n{}", lines[earlier..].join("\n"))
    }

    /// The calls that have no answer.
    pub(crate) fn unanswered(&self) -> String {
        let steps = self.steps();
        let waiting: Vec<&Step> = steps.last.iter().filter(|step| matches!(step.ended, Ended::Not)).collect();
        if waiting.is_empty() {
            return "no call is without an answer: the case repeats calls, or waits for something else"
                .to_owned();
        }
        let shown: Vec<String> = waiting.iter().take(UNANSWERED).map(|step| steps.call(step)).collect();
        let more = match waiting.len().saturating_sub(UNANSWERED) {
            0 => String::new(),
            more => format!(", and {more} more calls"),
        };
        format!("no answer to {}{more}", shown.join(", "))
    }

    /// Removes all steps: the case lists them itself.
    pub(crate) fn clear(&self) {
        self.steps().last.clear();
    }

    /// Remembers the texts of these limits.
    pub(crate) fn learn(&self, limits: &Limits) {
        let mut steps = self.steps();
        for limit in limits.iter() {
            let (scope, meter) = (limit.scope(), limit.meter_for(b""));
            if steps.text(scope, &meter).is_none() {
                steps.limits.push((scope.to_owned(), meter, limit.to_string()));
            }
        }
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Steps {
    /// The text of the limit with this scope and meter, if a case has told it.
    fn text(&self, scope: &str, meter: &Meter) -> Option<&str> {
        let known = self.limits.iter().find(|(other, of, _)| other == scope && of == meter);
        known.map(|(_, _, text)| text.as_str())
    }

    fn call(&self, step: &Step) -> String {
        let mut parts: Vec<String> = step.parts.iter().take(PARTS).map(|part| self.part(part)).collect();
        if step.parts.len() > PARTS {
            parts.push(format!("{} more", step.parts.len() - PARTS));
        }
        let through =
            if self.handles > 1 { format!(" through handle {}", step.handle) } else { String::new() };
        format!("{} {}{through}", step.verb, parts.join(" and "))
    }

    fn part(&self, part: &Part) -> String {
        let key = describe::key(&part.key);
        match self.text(&part.scope, &part.meter) {
            Some(text) => format!("{} of `{text}` on key {key}", part.units),
            None => format!("{} of {} of `{}` on key {key}", part.units, part.meter.limit(), part.scope),
        }
    }

    fn line(&self, step: &Step) -> String {
        let result = match &step.ended {
            Ended::Not => "no answer".to_owned(),
            Ended::Dropped => "dropped by the caller".to_owned(),
            Ended::Done => "done".to_owned(),
            Ended::Answered(answer) => describe::answer(answer),
            Ended::Failed(error) => format!("failed: {error}"),
        };
        let at = describe::instant(step.at);
        format!("     {:5} {at} {} -> {result}", step.number, self.call(step))
    }
}

/// A call that is in the journal. If it is dropped before its end, the journal says so.
struct Begun<'a> {
    journal: &'a Journal,
    number: u64,
}

impl Begun<'_> {
    fn end(self, ended: Ended) {
        self.set(ended);
    }

    fn set(&self, ended: Ended) {
        let mut steps = self.journal.steps();
        let first = steps.last.front().map_or(0, |step| step.number);
        let place = self.number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(step) = place.and_then(|place| steps.last.get_mut(place))
            && matches!(step.ended, Ended::Not)
        {
            step.ended = ended;
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // A call that panics has no answer.
        if !std::thread::panicking() {
            self.set(Ended::Dropped);
        }
    }
}

impl Part {
    fn new(id: MeterId<'_>, units: u64, meter: Meter) -> Self {
        Self { name: id.to_bytes(), scope: id.scope.to_owned(), key: id.key.to_owned(), units, meter }
    }
}

/// A handle that records its calls in the journal.
pub(crate) struct Noted {
    store: Handle,
    journal: Arc<Journal>,
    number: usize,
}

impl Noted {
    /// Records the calls to `store`, another handle of the case.
    pub(crate) fn handle(store: Handle, journal: &Arc<Journal>) -> Handle {
        let number = {
            let mut steps = journal.steps();
            steps.handles += 1;
            steps.handles
        };
        Arc::new(Self { store, journal: journal.clone(), number })
    }

    fn begin(&self, at: Timestamp, verb: &'static str, parts: Vec<Part>) -> Begun<'_> {
        let mut steps = self.journal.steps();
        steps.taken += 1;
        let number = steps.taken;
        if steps.last.len() == REMEMBERED {
            steps.last.pop_front();
        }
        steps.last.push_back(Step { number, at, handle: self.number, verb, parts, ended: Ended::Not });
        Begun { journal: &self.journal, number }
    }

    fn begin_claims(&self, claims: &Claims<'_>, verb: &'static str) -> Begun<'_> {
        let parts = claims.iter().map(|claim| Part::new(claim.id, claim.cost, claim.meter)).collect();
        self.begin(claims.now(), verb, parts)
    }
}

fn verb(mode: Mode, in_batch: bool) -> &'static str {
    match (mode, in_batch) {
        (Mode::Charge, false) => "take",
        (Mode::Peek, false) => "peek at",
        (Mode::Force, false) => "force",
        (Mode::Charge, true) => "in a batch: take",
        (Mode::Peek, true) => "in a batch: peek at",
        (Mode::Force, true) => "in a batch: force",
    }
}

fn answered(answer: &Result<Answer, StoreError>) -> Ended {
    match answer {
        Ok(answer) => Ended::Answered(Box::new(answer.clone())),
        Err(error) => Ended::Failed(with_sources(error)),
    }
}

fn done(done: &Result<(), StoreError>) -> Ended {
    match done {
        Ok(()) => Ended::Done,
        Err(error) => Ended::Failed(with_sources(error)),
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
        let begun = self.begin_claims(&claims, verb(claims.mode(), false));
        let answer = self.store.claim(claims).await;
        begun.end(answered(&answer));
        answer
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let begun: Vec<Begun<'_>> =
            slices.iter().map(|claims| self.begin_claims(claims, verb(claims.mode(), true))).collect();
        let answers = self.store.claim_many(slices).await;
        for (begun, answer) in begun.into_iter().zip(&answers) {
            begun.end(answered(answer));
        }
        answers
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        let parts = refunds.iter().map(|refund| Part::new(refund.id, refund.cost, refund.meter)).collect();
        let begun = self.begin(now, "give back", parts);
        let ended = self.store.refund(now, refunds).await;
        begun.end(done(&ended));
        ended
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let begun = self.begin_claims(&claims, "reset");
        let ended = self.store.reset(claims).await;
        begun.end(done(&ended));
        ended
    }
}
