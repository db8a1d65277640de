//! Decides slices: one round trip reads and reserves, a second writes bucket and log meters, and reservations are undone.

pub(crate) mod claims;
pub(crate) mod hints;
pub(crate) mod optimistic;
pub(crate) mod refund;
pub(crate) mod reset;
pub(crate) mod space;
pub(crate) mod window;

use std::sync::Arc;

use futures_util::future::{join, join_all};
use ratelimit_core::StoreError;
use ratelimit_core::kit::all_of;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Answer, Mode};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout_at};

use crate::decide::claims::{OwnedClaim, OwnedClaims, OwnedRefund};
use crate::decide::optimistic::{Entries, Written, check_size, check_state, is_optimistic, pause};
use crate::decide::refund::{RefundAt, by_server, refund, take};
use crate::decide::space::Space;
use crate::decide::window::{Deductions, WindowCommands};
use crate::error;
use crate::servers::{Answers, Batch};

/// How often a write is tried before the meter counts as contended.
const ATTEMPTS: u32 = 16;

/// In a call of one slice, a larger cost is reserved only after a read has shown that it fits. So the sum of concurrent
/// reservations stays far from 2^63.
const MANY: u64 = 1 << 40;

/// The outcome of a slice.
type Outcome = Result<Answer, StoreError>;

/// A slice during one round.
struct Step<'a> {
    slice: &'a OwnedClaims,
    /// Whether this round only reads: the slice peeks, or is likely or certain to be refused.
    looking: bool,
    parts: SmallVec<[ClaimInRound; 1]>,
    /// Whether some of what it reserved or charged is being undone.
    is_undone: bool,
    done: &'a mut Option<Outcome>,
}

/// A claim during one round.
enum ClaimInRound {
    Window(WindowCommands),
    Entry(usize),
}

/// What a round has to undo.
#[derive(Default)]
struct Rollback {
    deductions: Deductions,
    refunds: Vec<RefundAt>,
}

/// Decides slices in order, in as few round trips as possible. Must run to completion, because it undoes its reservations.
pub(crate) async fn decide(space: &Arc<Space>, slices: &[OwnedClaims], deadline: Instant) -> Vec<Outcome> {
    let _locks = match space.locks_of(slices, deadline).await {
        Ok(locks) => locks,
        Err(failure) => return slices.iter().map(|_| Err(failure.clone())).collect(),
    };
    let mut outcomes: Vec<Option<Outcome>> =
        slices.iter().map(|slice| check(space, slice).err().map(Err)).collect();
    let mut cautious = slices.len() == 1 && is_cautious(space, &slices[0]);
    let mut attempt = 0;
    while attempt < ATTEMPTS {
        let open = slices.iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none());
        // With the full capacity, because growing a vector is slow.
        let mut steps = Vec::with_capacity(slices.len());
        steps.extend(open.map(|(slice, outcome)| Step::new(slice, outcome, cautious)));
        if steps.is_empty() {
            break;
        }
        if attempt > 0 && timeout_at(deadline, sleep(pause(attempt))).await.is_err() {
            break;
        }
        round(space, &mut steps, deadline).await;
        attempt += u32::from(!cautious);
        cautious = false;
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(error::contended()))).collect()
}

/// What is charged by force may name a larger log than there will be: its state is checked. A peek stores nothing.
fn check(space: &Space, slice: &OwnedClaims) -> Result<(), StoreError> {
    if slice.mode != Mode::Charge {
        return Ok(());
    }
    slice.claims.iter().try_for_each(|claim| check_size(&claim.meter, space.max_value))
}

/// Whether to read before reserving. It does so for huge costs, and for claims that the hints expect to be refused, so that
/// refusals take one round trip and do not disturb other callers.
fn is_cautious(space: &Space, slice: &OwnedClaims) -> bool {
    let mut reserving =
        slice.claims.iter().filter(|claim| claim.cost > 0 && !is_optimistic(claim)).peekable();
    if slice.mode != Mode::Charge || reserving.peek().is_none() {
        return false;
    }
    let is_full =
        |claim: &OwnedClaim| claim.cost > 0 && space.full.is_full(&claim.key.name, claim.cost, slice.now);
    reserving.any(|claim| claim.cost > MANY) || slice.claims.iter().any(is_full)
}

/// Tries once to decide slices. The caller tries those again whose outcome stays `None`.
async fn round(space: &Arc<Space>, steps: &mut [Step<'_>], deadline: Instant) {
    let (mut batch, mut entries) = (Batch::new(&space.servers), Entries::new(space.lifetimes));
    for step in &mut *steps {
        step.push_commands(space, &mut batch, &mut entries);
    }
    let mut answers = batch.send(deadline).await;
    entries.receive(&answers);
    // Boxed, because few claims need it and its size would count for all of them.
    if steps.iter_mut().flat_map(Step::windows).any(|commands| commands.meets_reset(&answers)) {
        Box::pin(follow(space, steps, &mut answers, deadline)).await;
    }
    let mut undo = Rollback::default();
    for step in &mut *steps {
        step.decide(space, &answers, &mut entries, &mut undo.deductions);
    }
    if entries.are_changed() {
        Box::pin(write(space, &entries, steps, &answers, &mut undo, deadline)).await;
    }
    if !undo.is_empty() && !Box::pin(take_back(space, undo, deadline)).await {
        steps.iter_mut().for_each(Step::stays_charged);
    }
}

/// Sends the commands again where a reset has left its mark.
async fn follow(space: &Space, steps: &mut [Step<'_>], answers: &mut Answers, deadline: Instant) {
    let mut batch = Batch::after(&space.servers, answers);
    steps.iter_mut().flat_map(Step::windows).for_each(|commands| commands.follow(answers, &mut batch));
    answers.append(batch.send(deadline).await);
}

/// Writes the meters that were changed.
async fn write(
    space: &Space,
    entries: &Entries,
    steps: &mut [Step<'_>],
    answers: &Answers,
    undo: &mut Rollback,
    deadline: Instant,
) {
    let mut batch = Batch::new(&space.servers);
    let places = entries.write(&mut batch);
    let written = batch.send(deadline).await;
    let written: Vec<_> = places.into_iter().map(|place| Written::new(&written, place)).collect();
    for step in steps {
        step.conclude(&written, answers, undo);
    }
}

/// Undoes reservations and charges in a task that may outlive this deadline, and waits for it until the deadline. Returns
/// whether all of them are undone then.
async fn take_back(space: &Arc<Space>, undo: Rollback, deadline: Instant) -> bool {
    let deductions = undo.deductions.into_list();
    let space = space.clone();
    let task = tokio::spawn(async move {
        let deadline = space.deadline();
        // A failure leaves too much counted. Nothing is tried twice, because that could leave too little.
        let refunds =
            by_server(undo.refunds).into_iter().map(|of_server| refund(&space, of_server, deadline));
        let (taken, refunded) = join(take(&space, deductions, deadline), join_all(refunds)).await;
        taken.iter().chain(&refunded).all(Result::is_ok)
    });
    matches!(timeout_at(deadline, task).await, Ok(Ok(true)))
}

impl Rollback {
    fn is_empty(&self) -> bool {
        self.deductions.is_empty() && self.refunds.is_empty()
    }
}

impl<'a> Step<'a> {
    fn new(slice: &'a OwnedClaims, done: &'a mut Option<Outcome>, cautious: bool) -> Self {
        let looking = cautious || slice.mode == Mode::Peek || slice.never_fit();
        Self { slice, looking, parts: SmallVec::new(), is_undone: false, done }
    }

    /// Adds its commands to the batch.
    fn push_commands(&mut self, space: &Space, batch: &mut Batch<'_>, entries: &mut Entries) {
        let OwnedClaims { now, claims, .. } = self.slice;
        for claim in claims {
            self.parts.push(match &claim.meter {
                Meter::Window(window) => ClaimInRound::Window(WindowCommands::push(
                    batch,
                    claim,
                    window,
                    *now,
                    !self.looking,
                    &space.lifetimes,
                )),
                Meter::Bucket(_) | Meter::Log(_) => ClaimInRound::Entry(entries.push(batch, &claim.key)),
            });
        }
    }

    /// Decides it with the replies.
    fn decide(
        &mut self,
        space: &Space,
        answers: &Answers,
        entries: &mut Entries,
        deductions: &mut Deductions,
    ) {
        // If one was reset again meanwhile, what was read is not of one instant: tries again, unless units of another one may
        // have been added without a reply.
        if !self.is_ambiguous(answers) && self.windows().any(|commands| commands.meets_reset(answers)) {
            self.windows().for_each(|commands| commands.undo(answers, deductions));
            return;
        }
        let mode = if self.looking { Mode::Peek } else { self.slice.mode };
        let decided = self.states(space, answers, entries, deductions).and_then(|mut states| {
            let answer = self.slice.decide_as(mode, &mut states);
            if mode == Mode::Force {
                states.iter().flatten().try_for_each(|state| check_state(state, space.max_value))?;
            }
            Ok((answer, states))
        });
        let charged = match decided {
            Ok((answer, states)) => {
                let charged = answer.charged;
                if charged {
                    self.keep(states, entries);
                }
                self.note(space, &answer);
                // If a read shows room, the claim itself follows.
                let again = self.looking && answer.admitted && self.slice.mode != Mode::Peek;
                *self.done = if again { None } else { Some(Ok(answer)) };
                charged
            }
            Err(failure) => {
                *self.done = Some(Err(self.with_ambiguity(failure, answers)));
                false
            }
        };
        for commands in self.windows() {
            if charged {
                commands.trim(answers, deductions);
            } else {
                commands.undo(answers, deductions);
            }
        }
    }

    fn states(
        &self,
        space: &Space,
        answers: &Answers,
        entries: &Entries,
        deductions: &Deductions,
    ) -> Result<Vec<Option<State>>, StoreError> {
        let state = |(part, claim): (&ClaimInRound, &OwnedClaim)| {
            let state = match part {
                ClaimInRound::Window(commands) => {
                    commands.state(answers, self.slice.now, deductions).map(Some)
                }
                ClaimInRound::Entry(nth) => entries.state(*nth),
            };
            state.map_err(|failure| failure.at(space.servers.address(claim.key.server)))
        };
        self.parts.iter().zip(&self.slice.claims).map(state).collect()
    }

    fn keep(&self, states: Vec<Option<State>>, entries: &mut Entries) {
        for ((part, claim), state) in self.parts.iter().zip(&self.slice.claims).zip(states) {
            if let ClaimInRound::Entry(nth) = part
                && claim.cost > 0
            {
                entries.change(*nth, state, &claim.meter, self.slice.now);
            }
        }
    }

    /// Records which of its meters are full.
    fn note(&self, space: &Space, answer: &Answer) {
        if self.slice.mode != Mode::Charge || self.slice.never_fit() {
            return;
        }
        for (claim, verdict) in self.slice.claims.iter().zip(&answer.verdicts) {
            if claim.cost > 0 {
                space.full.note(&claim.key.name, claim.cost, verdict);
            }
        }
    }

    /// Checks the outcome of its writes.
    fn conclude(&mut self, written: &[Written], answers: &Answers, undo: &mut Rollback) {
        let outcomes = self.parts.iter().filter_map(|part| match part {
            ClaimInRound::Entry(nth) => Some(&written[*nth]),
            ClaimInRound::Window(_) => None,
        });
        let outcomes: SmallVec<[&Written; 4]> = outcomes.collect();
        let failures = outcomes.iter().filter_map(|written| match written {
            Written::Failed(failure) => Some(Err(failure.clone())),
            _ => None,
        });
        let failed = all_of(failures).err();
        let lost = outcomes.iter().any(|written| matches!(written, Written::Lost));
        if failed.is_none() && !lost {
            return;
        }
        let charged = match &*self.done {
            Some(Ok(answer)) if answer.charged => answer.clone(),
            // Refused on a state that was never stored: tries again.
            Some(Ok(_)) if lost => {
                *self.done = None;
                return;
            }
            _ => return,
        };
        for commands in self.windows() {
            commands.undo(answers, &mut undo.deductions);
        }
        for ((part, claim), verdict) in self.parts.iter().zip(&self.slice.claims).zip(&charged.verdicts) {
            if let ClaimInRound::Entry(nth) = part
                && claim.cost > 0
                && matches!(written[*nth], Written::Stored)
            {
                let refund = OwnedRefund { claim: claim.clone(), receipt: verdict.receipt };
                undo.refunds.push(RefundAt { refund, now: self.slice.now });
                self.is_undone = true;
            }
        }
        *self.done = failed.map(Err);
    }

    /// What was to be undone may stay charged: if some of it is of this slice, an error says so, and it is not tried again. An
    /// answer stays as it is.
    fn stays_charged(&mut self) {
        let is_undone = self.is_undone || self.windows().any(|commands| commands.is_undone());
        if is_undone && !matches!(self.done, Some(Ok(_))) {
            let failure = self.done.take().and_then(Result::err).unwrap_or_else(error::contended);
            *self.done = Some(Err(failure.maybe_applied()));
        }
    }

    fn with_ambiguity(&self, failure: StoreError, answers: &Answers) -> StoreError {
        if self.is_ambiguous(answers) { failure.maybe_applied() } else { failure.not_applied() }
    }

    /// Whether units may have been added without a reply.
    fn is_ambiguous(&self, answers: &Answers) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, ClaimInRound::Window(commands) if commands.is_ambiguous(answers)))
    }

    fn windows(&mut self) -> impl Iterator<Item = &mut WindowCommands> {
        self.parts.iter_mut().filter_map(|part| match part {
            ClaimInRound::Window(commands) => Some(commands),
            ClaimInRound::Entry(_) => None,
        })
    }
}
