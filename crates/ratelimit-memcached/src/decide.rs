//! Decides slices: one trip that reads and reserves, a second that writes bucket and log meters, and what is taken back.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{Answer, Meter, Mode, State};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Failure;
use crate::optimistic::{Cells, Written, check_size, is_optimistic};
use crate::servers::{Answers, Batch};
use crate::slice::{Ask, GiveBack, Slice};
use crate::space::Space;
use crate::window::{Look, Takes};

/// How often a write is tried before the meter is said to be contended.
pub(crate) const ATTEMPTS: u32 = 16;

/// Units that are not reserved before a look has shown that they fit, so that sums stay far from 2^63.
const MANY: u64 = 1 << 40;

/// What came of a slice.
type Outcome = Result<Answer, Failure>;

/// A slice on its way through one round.
struct Step<'a> {
    slice: &'a Slice,
    /// Only looked at: it can reserve nothing, or it is not sure that it should.
    looking: bool,
    asks: SmallVec<[Part; 1]>,
    done: &'a mut Option<Outcome>,
}

/// A claim on its way through one round.
enum Part {
    Window(Look),
    Cell(usize),
}

/// What a round has to undo.
#[derive(Default)]
struct Undo {
    takes: Takes,
    refunds: Vec<GiveBack>,
}

/// Decides slices in their order, in as few trips as it can. It has to run to its end, for it takes back what it has reserved in vain.
pub(crate) async fn decide(space: &Arc<Space>, slices: &[Slice], deadline: Instant) -> Vec<Outcome> {
    let _turns = match space.turns_of(slices, deadline).await {
        Ok(turns) => turns,
        Err(failure) => return slices.iter().map(|_| Err(failure.clone())).collect(),
    };
    let mut outcomes: Vec<Option<Outcome>> =
        slices.iter().map(|slice| check(space, slice).err().map(Err)).collect();
    let mut cautious = slices.len() == 1 && is_cautious(space, &slices[0]);
    let mut attempt = 0;
    while attempt < ATTEMPTS {
        let open = slices.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none());
        // As long as it may become: a vector that grows is slow to allocate.
        let mut steps = Vec::with_capacity(slices.len());
        steps.extend(open.map(|(slice, outcome)| Step::new(slice, outcome, cautious)));
        if steps.is_empty() {
            break;
        }
        if attempt > 0 {
            sleep(pause(attempt)).await;
        }
        round(space, &mut steps, deadline).await;
        attempt += u32::from(!cautious);
        cautious = false;
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(Failure::contended()))).collect()
}

fn check(space: &Space, slice: &Slice) -> Result<(), Failure> {
    slice.asks.iter().try_for_each(|ask| check_size(&ask.meter, space.max_value))
}

/// Whether to look before reserving: where a claim is bound to be refused by what is known, so that refusals are one trip
/// and do not get into the way of others, and for huge costs.
fn is_cautious(space: &Space, slice: &Slice) -> bool {
    let mut reserving = slice.asks.iter().filter(|ask| ask.cost > 0 && !is_optimistic(ask)).peekable();
    if slice.mode != Mode::Charge || reserving.peek().is_none() {
        return false;
    }
    let is_full = |ask: &Ask| ask.cost > 0 && space.full.is_full(&ask.spot.name, ask.cost, slice.now);
    reserving.any(|ask| ask.cost > MANY) || slice.asks.iter().any(is_full)
}

/// One try at slices. Those whose outcome stays `None` have to be tried again.
async fn round(space: &Arc<Space>, steps: &mut [Step<'_>], deadline: Instant) {
    let (mut batch, mut cells) = (Batch::new(&space.servers), Cells::default());
    for step in &mut *steps {
        step.ask(space, &mut batch, &mut cells);
    }
    let mut answers = space.servers.send(&batch, deadline).await;
    cells.receive(&answers);
    // What few claims need is set apart, so that the others are spared the space for it.
    if steps.iter_mut().flat_map(Step::looks).any(|look| look.meets_reset(&answers)) {
        Box::pin(follow(space, steps, &mut answers, deadline)).await;
    }
    let mut undo = Undo::default();
    for step in &mut *steps {
        step.decide(space, &answers, &mut cells, &mut undo.takes);
    }
    if cells.are_changed() {
        Box::pin(write(space, &cells, steps, &answers, &mut undo, deadline)).await;
    }
    if !undo.is_empty() {
        Box::pin(take_back(space, undo, deadline)).await;
    }
}

/// Asks again where a reset has left its mark.
async fn follow(space: &Space, steps: &mut [Step<'_>], answers: &mut Answers, deadline: Instant) {
    let mut batch = Batch::after(answers);
    steps.iter_mut().flat_map(Step::looks).for_each(|look| look.follow(answers, &mut batch));
    answers.append(space.servers.send(&batch, deadline).await);
}

/// Writes the meters that were changed.
async fn write(
    space: &Space,
    cells: &Cells,
    steps: &mut [Step<'_>],
    answers: &Answers,
    undo: &mut Undo,
    deadline: Instant,
) {
    let mut batch = Batch::new(&space.servers);
    let places = cells.write(&mut batch, &space.lifetimes);
    let written = space.servers.send(&batch, deadline).await;
    let written: Vec<_> = places.into_iter().map(|place| Written::new(&written, place)).collect();
    for step in steps {
        step.conclude(&written, answers, undo);
    }
}

/// Undoes what has to be undone, in a task that outlives this one's time limit; waits for it as long as that allows.
async fn take_back(space: &Arc<Space>, undo: Undo, deadline: Instant) {
    let takes = undo.takes.into_list();
    let space = space.clone();
    let task = tokio::spawn(async move {
        let deadline = space.deadline();
        // A failure leaves too much counted; nothing is tried twice, for that could leave too little.
        let _ = crate::refund::take(&space, takes, deadline).await;
        let _ = crate::refund::refund(&space, undo.refunds, deadline).await;
    });
    let _ = timeout_at(deadline, task).await;
}

/// Longer from try to try, and at random, so that those who collide do not collide again.
pub(crate) fn pause(attempt: u32) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let most = 100_u64 << attempt.min(6);
    Duration::from_micros(RandomState::new().hash_one(attempt) % most)
}

impl Undo {
    fn is_empty(&self) -> bool {
        self.takes.is_empty() && self.refunds.is_empty()
    }
}

impl<'a> Step<'a> {
    fn new(slice: &'a Slice, done: &'a mut Option<Outcome>, cautious: bool) -> Self {
        let looking = cautious || slice.mode == Mode::Peek || slice.never_fits();
        Self { slice, looking, asks: SmallVec::new(), done }
    }

    /// Puts its commands into the batch.
    fn ask(&mut self, space: &Space, batch: &mut Batch, cells: &mut Cells) {
        let Slice { now, asks, .. } = self.slice;
        for ask in asks {
            self.asks.push(match &ask.meter {
                Meter::Window(window) => {
                    Part::Window(Look::push(batch, ask, window, *now, !self.looking, &space.lifetimes))
                }
                Meter::Bucket(_) | Meter::Log(_) => Part::Cell(cells.push(batch, &ask.spot)),
            });
        }
    }

    /// Decides it on what came back.
    fn decide(&mut self, space: &Space, answers: &Answers, cells: &mut Cells, takes: &mut Takes) {
        let mode = if self.looking { Mode::Peek } else { self.slice.mode };
        let decided = self.states(space, answers, cells, takes).and_then(|mut states| {
            let answer = self.slice.decide(mode, &mut states)?;
            Ok((answer, states))
        });
        let charged = match decided {
            Ok((answer, states)) => {
                let charged = answer.charged;
                if charged {
                    self.keep(states, cells);
                }
                self.note(space, &answer);
                // A look that shows room is followed by the claim itself.
                let again = self.looking && answer.admitted && self.slice.mode != Mode::Peek;
                *self.done = if again { None } else { Some(Ok(answer)) };
                charged
            }
            Err(failure) => {
                *self.done = Some(Err(self.with_ambiguity(failure, answers)));
                false
            }
        };
        for look in self.looks() {
            if charged {
                look.trim(answers, takes);
            } else {
                look.undo(answers, takes);
            }
        }
    }

    fn states(
        &self,
        space: &Space,
        answers: &Answers,
        cells: &Cells,
        takes: &Takes,
    ) -> Result<Vec<Option<State>>, Failure> {
        let state = |(part, ask): (&Part, &Ask)| match (part, &ask.meter) {
            (Part::Window(look), Meter::Window(window)) => {
                look.state(answers, window, self.slice.now, takes).map(Some)
            }
            (Part::Cell(nth), _) => cells.state(*nth),
            (Part::Window(_), _) => Ok(None),
        };
        let at = |pair: (&Part, &Ask)| {
            state(pair).map_err(|failure| failure.at(space.servers.address(pair.1.spot.server)))
        };
        self.asks.iter().zip(&self.slice.asks).map(at).collect()
    }

    fn keep(&self, states: Vec<Option<State>>, cells: &mut Cells) {
        for ((part, ask), state) in self.asks.iter().zip(&self.slice.asks).zip(states) {
            if let Part::Cell(nth) = part
                && ask.cost > 0
            {
                cells.change(*nth, state, &ask.meter, self.slice.now);
            }
        }
    }

    /// Remembers which of its meters are full.
    fn note(&self, space: &Space, answer: &Answer) {
        if self.slice.mode != Mode::Charge || self.slice.never_fits() {
            return;
        }
        for (ask, verdict) in self.slice.asks.iter().zip(&answer.verdicts) {
            if ask.cost > 0 {
                space.full.note(&ask.spot.name, ask.cost, verdict);
            }
        }
    }

    /// Looks at what became of its writes.
    fn conclude(&mut self, written: &[Written], answers: &Answers, undo: &mut Undo) {
        let outcomes: SmallVec<[&Written; 4]> = self.cells().map(|nth| &written[nth]).collect();
        let failed = outcomes.iter().find_map(|written| match written {
            Written::Failed(failure) => Some(failure.clone()),
            _ => None,
        });
        let lost = outcomes.iter().any(|written| matches!(written, Written::Lost));
        if failed.is_none() && !lost {
            return;
        }
        let charged = match &*self.done {
            Some(Ok(answer)) if answer.charged => answer.clone(),
            // Refused on a state that never was: it is asked again.
            Some(Ok(_)) if lost => {
                *self.done = None;
                return;
            }
            _ => return,
        };
        for look in self.looks() {
            look.undo(answers, &mut undo.takes);
        }
        for ((part, ask), verdict) in self.asks.iter().zip(&self.slice.asks).zip(&charged.verdicts) {
            if let Part::Cell(nth) = part
                && ask.cost > 0
                && matches!(written[*nth], Written::Stored)
            {
                undo.refunds.push(GiveBack {
                    ask: ask.clone(),
                    receipt: verdict.receipt,
                    now: self.slice.now,
                });
            }
        }
        *self.done = failed.map(Err);
    }

    fn with_ambiguity(&self, failure: Failure, answers: &Answers) -> Failure {
        let ambiguous =
            self.asks.iter().any(|part| matches!(part, Part::Window(look) if look.is_ambiguous(answers)));
        if ambiguous { failure.maybe_applied() } else { failure.not_applied() }
    }

    fn looks(&mut self) -> impl Iterator<Item = &mut Look> {
        self.asks.iter_mut().filter_map(|part| match part {
            Part::Window(look) => Some(look),
            Part::Cell(_) => None,
        })
    }

    fn cells(&self) -> impl Iterator<Item = usize> {
        self.asks.iter().filter_map(|part| match part {
            Part::Cell(nth) => Some(*nth),
            Part::Window(_) => None,
        })
    }
}
