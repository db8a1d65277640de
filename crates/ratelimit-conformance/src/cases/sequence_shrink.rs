//! Shortens a sequence with a difference, and describes it.

use std::time::Duration;

use tokio::time::Instant;

use super::sequence_parts::{Shape, Step};
use super::sequence_replay::{Difference, Ended, replay};
use crate::failure::CaseResult;
use crate::subject::Handle;

/// The maximum number and duration of tries.
const TRIES: u32 = 300;
const TIME: Duration = Duration::from_secs(5);

/// The maximum number of described steps.
const TOLD: usize = 12;

/// A sequence with a difference.
pub(super) struct Shrink<'a> {
    pub(super) shape: Shape,
    pub(super) store: &'a Handle,
    /// The prefix of the keys.
    pub(super) keys: String,
    /// The time limit of a try. A longer one proves nothing.
    pub(super) short: Duration,
    pub(super) steps: Vec<Step>,
    pub(super) difference: Difference,
}

impl Shrink<'_> {
    /// Shortens the sequence, and describes the result.
    pub(super) async fn reported(mut self) -> CaseResult<String> {
        let whole = self.steps.len();
        let mut search = Search { began: Instant::now(), tries: 0 };
        self.leave_out_steps(&mut search).await?;
        self.leave_out_parts(&mut search).await?;
        let (left, what) = (self.steps.len(), &self.difference.what);
        let number = self.difference.step + 1;
        let from =
            if left < whole { format!(", shortened from {whole} steps to {left}") } else { String::new() };
        Ok(format!(
            "step {number}{from}\n     {what}\n     the steps, instants since the start of the case:\n{}",
            self.history()
        ))
    }

    /// All steps of a short sequence, or else the steps on the differing meters.
    fn history(&self) -> String {
        let Difference { history, meters, .. } = &self.difference;
        let is_short = history.len() <= TOLD;
        let touching = history
            .iter()
            .filter(|reported| is_short || reported.meters.iter().any(|meter| meters.contains(meter)));
        let lines: Vec<String> =
            touching.map(|reported| format!("       {:3} {}", reported.place + 1, reported.text)).collect();
        lines[lines.len().saturating_sub(TOLD)..].join("\n")
    }

    /// Removes long pieces, then shorter ones.
    async fn leave_out_steps(&mut self, search: &mut Search) -> CaseResult {
        self.steps.truncate(self.difference.step + 1);
        let mut length = self.steps.len().div_ceil(2);
        loop {
            let mut start = 0;
            while start < self.steps.len() && search.goes_on() {
                let mut shorter = self.steps.clone();
                shorter.drain(start..(start + length).min(shorter.len()));
                if !self.differs(shorter, search).await? {
                    start += length;
                }
            }
            if length <= 1 {
                return Ok(());
            }
            length /= 2;
        }
    }

    /// Removes parts of slices and refunds that have several.
    async fn leave_out_parts(&mut self, search: &mut Search) -> CaseResult {
        let (mut step, mut part) = (0, 0);
        while step < self.steps.len() && search.goes_on() {
            let mut shorter = self.steps.clone();
            match &mut shorter[step] {
                Step::Claim(slice) if slice.parts.len() > 1 && part < slice.parts.len() => {
                    slice.parts.remove(part);
                }
                Step::Refund { of, .. } if of.len() > 1 && part < of.len() => {
                    of.remove(part);
                }
                _ => {
                    (step, part) = (step + 1, 0);
                    continue;
                }
            }
            if !self.differs(shorter, search).await? {
                part += 1;
            }
        }
        Ok(())
    }

    /// Whether the store also differs on these steps. Keeps them if it does.
    async fn differs(&mut self, mut steps: Vec<Step>, search: &mut Search) -> CaseResult<bool> {
        search.tries += 1;
        let began = Instant::now();
        let keys = format!("{}.{}", self.keys, search.tries);
        let Ended::Differs(difference) = replay(self.shape, self.store, &steps, &keys).await? else {
            return Ok(false);
        };
        if began.elapsed() > self.short {
            return Ok(false);
        }
        steps.truncate(difference.step + 1);
        (self.steps, self.difference) = (steps, difference);
        Ok(true)
    }
}

/// The number and the duration of tries.
struct Search {
    began: Instant,
    tries: u32,
}

impl Search {
    fn goes_on(&self) -> bool {
        self.tries < TRIES && self.began.elapsed() < TIME
    }
}
