//! A sequence that differs, made as short as can be found in a little time, and what is told of it.

use std::time::Duration;

use tokio::time::Instant;

use super::sequence::Shape;
use super::sequence_parts::Step;
use super::sequence_replay::{Difference, Ended, replay};
use crate::bench::Handle;
use crate::failure::CaseResult;

/// How often a shorter sequence is tried, and for how long.
const TRIES: u32 = 300;
const TIME: Duration = Duration::from_secs(5);

/// The most steps that are told.
const TOLD: usize = 12;

/// A sequence that differs, while it is made shorter.
pub(super) struct Shrink<'a> {
    pub(super) shape: Shape,
    pub(super) store: &'a Handle,
    /// What the keys of the tries begin with.
    pub(super) keys: String,
    /// A try that takes longer proves nothing.
    pub(super) short: Duration,
    pub(super) steps: Vec<Step>,
    pub(super) difference: Difference,
}

impl Shrink<'_> {
    /// Makes it shorter, and tells what is left of it.
    pub(super) async fn told(mut self) -> CaseResult<String> {
        let whole = self.steps.len();
        let mut search = Search { began: Instant::now(), tries: 0 };
        self.leave_out_steps(&mut search).await?;
        self.leave_out_claims(&mut search).await?;
        let (left, what) = (self.steps.len(), &self.difference.what);
        let number = self.difference.step + 1;
        let from =
            if left < whole { format!(", shortened from {whole} steps to {left}") } else { String::new() };
        Ok(format!(
            "step {number}{from}\n     {what}\n     the steps, instants since the start of the case:\n{}",
            self.history()
        ))
    }

    /// Each step of a short sequence, of a long one those on the meters that differ.
    fn history(&self) -> String {
        let Difference { history, meters, .. } = &self.difference;
        let is_short = history.len() <= TOLD;
        let touching =
            history.iter().filter(|told| is_short || told.meters.iter().any(|meter| meters.contains(meter)));
        let lines: Vec<String> =
            touching.map(|told| format!("       {:3} {}", told.place + 1, told.text)).collect();
        lines[lines.len().saturating_sub(TOLD)..].join("\n")
    }

    /// Leaves out longer, then shorter pieces.
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

    /// Leaves out claims of slices that have several.
    async fn leave_out_claims(&mut self, search: &mut Search) -> CaseResult {
        let (mut step, mut part) = (0, 0);
        while step < self.steps.len() && search.goes_on() {
            let mut shorter = self.steps.clone();
            match &mut shorter[step] {
                Step::Claim(slice) if slice.parts.len() > 1 && part < slice.parts.len() => {
                    slice.parts.remove(part);
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

    /// Whether the store differs on these steps, too; then they are kept.
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

/// How much has been tried.
struct Search {
    began: Instant,
    tries: u32,
}

impl Search {
    fn goes_on(&self) -> bool {
        self.tries < TRIES && self.began.elapsed() < TIME
    }
}
