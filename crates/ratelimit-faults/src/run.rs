//! Runs the phases of a target, and checks each.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use ratelimit_testbed::Testbed;

use crate::bed::{self, Bed, Harm, now};
use crate::crew::Crew;
use crate::fault::Fault;
use crate::history::{Call, Entry, Evidence, check};
use crate::load::classes;
use crate::plan::{Phase, Plan};
use crate::report::Row;
use crate::stack::{Broken, INSTANCES, Stack, TIMEOUT};
use crate::target::Target;
use crate::worker::{Order, Reply};

/// How much longer than its time limit a call may take, on a machine that is busy with other things.
const SLACK: Duration = Duration::from_secs(1);

/// How far the clocks of clients are moved.
const SKEW: Duration = Duration::from_secs(3);

/// How long the load continues at most until all calls succeed again.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long no call may fail before the phase counts as recovered.
const CALM: Duration = Duration::from_millis(800);

/// How long connections that are no longer used may take to end.
const SETTLE: Duration = Duration::from_secs(10);

/// A target under load.
struct Scene {
    target: Target,
    bed: Box<dyn Bed>,
    crew: Crew,
    /// The connections of each server before the workers started.
    others: Vec<u64>,
    /// The tasks and the KiB of each worker after the first phase.
    at_first: Vec<(usize, u64)>,
}

/// Runs a plan; shows each row as soon as it is known, and adds it to `rows`.
pub(crate) async fn run(
    plan: &Plan,
    testbed: &Testbed,
    seed: u64,
    broken: Option<Broken>,
    rows: &mut Vec<Row>,
    show: fn(&Row),
) -> Result<()> {
    let target = plan.target;
    let bed = bed::start(target, testbed).await?;
    let others = bed.connections().await?;
    let stack = if target == Target::RedisFallback { Stack::Fallback } else { Stack::Plain };
    let urls: Vec<String> = (0..target.workers()).map(|worker| bed.url(worker)).collect();
    let crew = Crew::start(&urls, stack, broken, seed).await?;
    let mut scene = Scene { target, bed, crew, others, at_first: Vec::new() };
    for phase in &plan.phases {
        let row = scene.phase(phase).await.with_context(|| format!("{}: {}", target.name(), phase.fault))?;
        show(&row);
        rows.push(row);
    }
    Ok(())
}

impl Scene {
    async fn phase(&mut self, phase: &Phase) -> Result<Row> {
        let evicted = self.bed.evicted().await?;
        let (mut calls, mut stalls) = (Vec::new(), Vec::new());
        self.read(&mut calls, &mut stalls)?;
        calls.clear();
        self.crew.tell(&Order::Go(phase.clone())).await?;
        tokio::time::sleep(Duration::from_millis(phase.before)).await;
        let harm = self.inflict(phase).await?;
        self.await_calm(harm.to, &mut calls, &mut stalls).await?;
        let resting = self.crew.tell(&Order::Rest).await?;
        self.read(&mut calls, &mut stalls)?;
        let (mut used, mut unread) = self.crew.count().await?;
        if !unread.is_empty() {
            // Tries once more: the keys are read all at once, and the machine may be busy.
            (used, unread) = self.crew.count().await?;
        }
        let skew = if phase.fault == Fault::Clocks { nanos(SKEW) } else { 0 };
        let checked = check(&Evidence {
            classes: &classes(phase.quota),
            calls: &calls,
            stalls: &stalls,
            losses: &harm.losses,
            evicted: self.bed.evicted().await?.saturating_sub(evicted + harm.evictions),
            clocks: (skew, skew),
            deadline: nanos(TIMEOUT + SLACK),
            timeout: nanos(TIMEOUT),
            is_exact: self.target.is_exact(),
            is_spread: self.target.is_spread(),
            instances: u64::from(INSTANCES),
            used: &used,
            healed: harm.to,
        });
        let (tasks, kibibytes) = self.growth(&resting);
        let connections = self.settled().await?;
        let lasted = harm.to.saturating_sub(harm.from);
        let (phase, losses) = (phase.clone(), harm.losses.len());
        let unread = unread.len();
        Ok(Row { target: self.target, phase, lasted, losses, checked, unread, tasks, kibibytes, connections })
    }

    async fn inflict(&self, phase: &Phase) -> Result<Harm> {
        let from = now();
        match phase.fault {
            Fault::Nothing | Fault::Dropped => {
                tokio::time::sleep(Duration::from_millis(phase.lasts)).await;
                Ok(Harm::without_loss(from))
            }
            Fault::Clocks => {
                self.move_clocks(phase).await?;
                Ok(Harm::without_loss(from))
            }
            _ => self.bed.inflict(phase, &self.crew).await,
        }
    }

    /// Moves the clock of each worker to several places in turn, and back.
    async fn move_clocks(&self, phase: &Phase) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(phase.choice);
        let most = i64::try_from(nanos(SKEW))?;
        for _ in 0..4 {
            for worker in 0..self.crew.len() {
                self.crew.tell_one(worker, &Order::Clock(random.random_range(-most..=most))).await?;
            }
            tokio::time::sleep(Duration::from_millis(phase.lasts / 4)).await;
        }
        self.crew.tell(&Order::Clock(0)).await?;
        Ok(())
    }

    /// Returns when every worker has been served since the fault was over and no call has failed for [`CALM`], or after
    /// [`PATIENCE`].
    async fn await_calm(
        &self,
        healed: u64,
        calls: &mut Vec<Call>,
        stalls: &mut Vec<(usize, u64, u64)>,
    ) -> Result<()> {
        while now() < healed + nanos(PATIENCE) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.read(calls, stalls)?;
            let calm = now().saturating_sub(nanos(CALM));
            let served = |worker| {
                let mut calls = calls.iter().rev().take_while(|call| call.end + nanos(CALM) > calm);
                calls.any(|call| call.worker == worker && call.is_success() && call.start >= healed.max(calm))
            };
            let troubled = calls.iter().any(|call| call.is_trouble() && call.end >= calm);
            if calm > healed && !troubled && (0..self.crew.len()).all(served) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, calls: &mut Vec<Call>, stalls: &mut Vec<(usize, u64, u64)>) -> Result<()> {
        for (worker, entry) in self.crew.records()? {
            match entry {
                Entry::Call(call) => calls.push(call),
                Entry::Stall { start, end } => stalls.push((worker, start, end)),
            }
        }
        Ok(())
    }

    /// By how many tasks and how many KiB a worker has grown since the first phase, at most.
    fn growth(&mut self, resting: &[Reply]) -> (i64, i64) {
        let now: Vec<(usize, u64)> = resting
            .iter()
            .filter_map(|reply| match reply {
                Reply::Resting { tasks, kibibytes } => Some((*tasks, *kibibytes)),
                _ => None,
            })
            .collect();
        if self.at_first.is_empty() {
            self.at_first.clone_from(&now);
        }
        let grown = |part: fn(&(usize, u64)) -> i64| {
            let pairs = now.iter().zip(&self.at_first);
            pairs.map(|(now, first)| part(now) - part(first)).max().unwrap_or(0)
        };
        let tasks = grown(|(tasks, _)| i64::try_from(*tasks).unwrap_or(i64::MAX));
        (tasks, grown(|(_, kibibytes)| i64::try_from(*kibibytes).unwrap_or(i64::MAX)))
    }

    /// How many connections a server has beyond those that the workers may have. Waits up to [`SETTLE`] for them to end.
    async fn settled(&self) -> Result<u64> {
        let most = (self.crew.len() * self.target.connections()) as u64;
        let end = now() + nanos(SETTLE);
        loop {
            let connections = self.bed.connections().await?;
            let beyond =
                connections.iter().zip(&self.others).map(|(now, others)| now.saturating_sub(others + most));
            let beyond = beyond.max().unwrap_or(0);
            if beyond == 0 || now() > end {
                return Ok(beyond);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
