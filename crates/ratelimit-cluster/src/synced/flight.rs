//! What is being told: whatever happens on the way, each usage is then told, to be told, or unsure.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::{
    Answer, Applied, Claim, Claims, CounterStore, ErrorKind, MAX_CLAIMS, Refund, StoreError, Timestamp,
};

use super::ask::{Ask, Return, asks};
use crate::ledger::{Ledger, Reading, Usage};

/// Usages that were taken from the ledger. Those that were not told go back when this lands, or is dropped.
pub(super) struct Flight<'l> {
    ledger: &'l Ledger,
    /// How many were told of which it is not known whether they were taken.
    unsure: &'l AtomicU64,
    usages: Vec<Usage>,
    /// How far each has come.
    stages: Vec<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not sent, or surely not taken.
    Kept,
    /// Sent, and not answered.
    Sent,
    Told,
}

/// What the store has said, and of which usage.
type Readings = Vec<(usize, Reading)>;

impl<'l> Flight<'l> {
    pub(super) fn new(ledger: &'l Ledger, unsure: &'l AtomicU64) -> Self {
        let usages = ledger.take();
        let stages = vec![Stage::Kept; usages.len()];
        Self { ledger, unsure, usages, stages }
    }

    /// Tells all, and settles what the store says.
    pub(super) async fn tell<S: CounterStore>(
        &mut self,
        shared: &S,
        batch: usize,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (mut claims, mut returns) = (Vec::new(), Vec::new());
        for (nth, usage) in self.usages.iter().enumerate() {
            asks(self.ledger, nth, usage, now, &mut claims, &mut returns);
        }
        let mut readings = Vec::with_capacity(claims.len());
        let mut done = self.give_back(shared, &returns, now).await;
        for some in claims.chunks(batch) {
            if done.as_ref().is_err_and(is_out_of_reach) {
                break; // the rest would only wait for the store as long
            }
            let claimed = self.claim(shared, some, &mut readings).await;
            done = if claimed.is_err() { claimed } else { done };
        }
        let told = self.land();
        for (nth, reading) in last_words(&told, readings) {
            self.ledger.settle(&told[nth], reading);
        }
        done
    }

    async fn give_back<S: CounterStore>(
        &mut self,
        shared: &S,
        returns: &[Return],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for some in returns.chunks(MAX_CLAIMS) {
            some.iter().for_each(|given| self.stages[given.usage] = Stage::Sent);
            let names: Vec<_> = some.iter().map(|given| self.usages[given.usage].name.id()).collect();
            let refunds = some.iter().zip(&names).map(|(given, id)| Refund {
                id: given.scope.id(id),
                cost: given.cost,
                meter: given.scope.meter,
                receipt: given.receipt,
            });
            let refunds: Vec<Refund<'_>> = refunds.collect();
            let done = shared.refund(now, &refunds).await;
            let stage = stage_after(&done);
            for given in some {
                self.stages[given.usage] = stage;
                if stage == Stage::Told {
                    self.ledger.untell(&self.usages[given.usage], given.receipt, given.cost);
                }
            }
            done?;
        }
        Ok(())
    }

    /// Puts some claims to the store. Gives the failure if there is one.
    async fn claim<S: CounterStore>(
        &mut self,
        shared: &S,
        asks: &[Ask],
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = asks.iter().map(|ask| self.usages[ask.usage].name.id()).collect();
        let claims = asks.iter().zip(&names).map(|(ask, id)| [ask.scope.claim(id, ask.cost)]);
        let claims: Vec<[Claim<'_>; 1]> = claims.collect();
        let slices =
            claims.iter().zip(asks).filter_map(|(claim, ask)| Claims::new(ask.at, ask.mode, claim).ok());
        let slices: Vec<Claims<'_>> = slices.collect(); // none is refused: each has one claim
        for ask in asks.iter().filter(|ask| ask.charges()) {
            self.stages[ask.usage] = Stage::Sent;
        }
        let mut answers = shared.claim_many(&slices).await.into_iter();
        let mut done = Ok(());
        for ask in asks {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered()));
            if ask.charges() {
                self.stages[ask.usage] = stage_after(&answer);
            }
            match answer.map(|answer: Answer| answer.verdicts.first().map(|verdict| ask.reading(verdict))) {
                Ok(reading) => readings.extend(reading.map(|reading| (ask.usage, reading))),
                Err(error) => done = Err(error),
            }
        }
        done
    }

    /// Leaves what was not told to be told, and what may have been told as unsure; gives all.
    fn land(&mut self) -> Vec<Usage> {
        let usages = std::mem::take(&mut self.usages);
        for (usage, stage) in usages.iter().zip(&self.stages) {
            match stage {
                Stage::Kept => self.ledger.put_back([usage.clone()]),
                Stage::Sent => {
                    self.unsure.fetch_add(1, Ordering::Relaxed);
                    self.ledger.unsure(usage);
                }
                Stage::Told => {}
            }
        }
        usages
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.land();
    }
}

/// Of what was said of one meter, or one segment of it, only the last: what came before does not contain what was told after
/// it, and whoever makes a claim in between would be decided on that.
fn last_words(usages: &[Usage], readings: Readings) -> Readings {
    let mut seen = HashSet::new();
    let mut last: Readings = readings
        .into_iter()
        .rev()
        .filter(|(nth, reading)| {
            let place = match reading {
                Reading::Told { .. } => return true, // each is a part of its own
                Reading::Window { segment, .. } => Some(*segment),
                Reading::Bucket { .. } | Reading::Log { .. } => None,
            };
            seen.insert((usages[*nth].name.id(), place))
        })
        .collect();
    last.reverse();
    last
}

fn stage_after<T>(answer: &Result<T, StoreError>) -> Stage {
    match answer {
        Ok(_) => Stage::Told,
        Err(error) if error.applied() == Applied::No => Stage::Kept,
        Err(_) => Stage::Sent,
    }
}

fn is_out_of_reach(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
}

#[cold]
fn unanswered() -> StoreError {
    let message = "the store gave fewer answers than it was asked for";
    StoreError::new("synced", ErrorKind::Server, message).maybe_applied()
}
