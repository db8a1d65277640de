//! A worker: a process that calls the store from several tasks, and records each call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use ratelimit_core::{CheckError, Clock as _, Request, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

use crate::clock::MovedClock;
use crate::history::{Call, Entry, Outcome};
use crate::load::{Class, KeyId, classes};
use crate::log::Log;
use crate::plan::Phase;
use crate::stack::{Broken, Limiter, Stack, limiters};

/// The arguments of a worker.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[arg(long)]
    pub(crate) index: usize,
    #[arg(long)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) stack: Stack,
    #[arg(long)]
    pub(crate) broken: Option<Broken>,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The file for the records.
    #[arg(long)]
    pub(crate) file: std::path::PathBuf,
}

/// How many tasks call the store at the same time.
const TASKS: u64 = 8;

/// A call that takes longer is given up, and recorded with this length.
const LONGEST: Duration = Duration::from_secs(10);

/// How many of a thousand calls on one of many keys take two of them.
const PAIRS: u32 = 200;

/// How long the tasks of earlier connections may take to end.
const SETTLE: Duration = Duration::from_secs(10);

/// An order of the coordinator, sent as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin a phase.
    Go(Phase),
    /// Set the offset of the limiters' clock from the machine's, in nanoseconds.
    Clock(i64),
    /// End the phase.
    Rest,
    /// Report what each key of a long limit has used.
    Count,
}

/// What a worker replies to each order, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Resting {
        tasks: usize,
        kibibytes: u64,
    },
    /// For each key its class, its number, and the units that it has used; `None` if the store did not answer.
    Counted(Vec<(u8, u16, Option<u64>)>),
}

/// Runs a worker until its input ends.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let clock = MovedClock { machine: SystemClock::new(), nanos: Arc::default() };
    let log = Arc::new(Log::create(&arguments.file)?);
    let store = arguments.stack.open(&arguments.url, arguments.broken).await?;
    Log::flush_always(Arc::clone(&log), clock.machine);
    let mut worker = Worker { arguments, clock, log, store, busy: JoinSet::new(), load: None, tasks: None };
    println!("{}", serde_json::to_string(&Reply::Done)?);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let reply = worker.obey(serde_json::from_str(&line)?).await?;
        println!("{}", serde_json::to_string(&reply)?);
    }
    Ok(())
}

struct Worker {
    arguments: Arguments,
    clock: MovedClock,
    log: Arc<Log>,
    store: ratelimit_stores::Store,
    busy: JoinSet<()>,
    load: Option<Arc<Load>>,
    /// How many tasks there were after the first phase.
    tasks: Option<usize>,
}

/// What the tasks of a phase share.
struct Load {
    phase: Phase,
    classes: Vec<(Class, Limiter)>,
    over: std::sync::atomic::AtomicBool,
}

impl Worker {
    async fn obey(&mut self, order: Order) -> Result<Reply> {
        match order {
            Order::Clock(nanos) => self.clock.nanos.store(nanos, Ordering::SeqCst),
            Order::Go(phase) => self.go(phase)?,
            Order::Rest => return self.rest().await,
            Order::Count => {
                let load = self.load.clone().context("no phase has begun")?;
                return Ok(Reply::Counted(load.count().await));
            }
        }
        Ok(Reply::Done)
    }

    fn go(&mut self, phase: Phase) -> Result<()> {
        let classes = limiters(&self.store, &self.clock, classes(phase.quota))?;
        let load = Arc::new(Load { phase, classes, over: false.into() });
        for task in 0..TASKS {
            let seed = [self.arguments.seed, self.arguments.index as u64, load.phase.number as u64, task];
            let seed = seed.iter().fold(0, |hash: u64, part| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part);
            let (random, load) = (ChaCha8Rng::seed_from_u64(seed), Arc::clone(&load));
            let (log, clock, worker) = (Arc::clone(&self.log), self.clock.machine, self.arguments.index);
            self.busy.spawn(async move { load.call(random, &log, clock, worker).await });
        }
        self.load = Some(load);
        Ok(())
    }

    async fn rest(&mut self) -> Result<Reply> {
        if let Some(load) = &self.load {
            load.over.store(true, Ordering::SeqCst);
        }
        while let Some(ended) = self.busy.join_next().await {
            ended?;
        }
        self.log.flush()?;
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let most = self.tasks.unwrap_or(usize::MAX);
        let settled = async {
            while alive() > most {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(SETTLE, settled).await;
        let tasks = alive();
        self.tasks.get_or_insert(tasks);
        Ok(Reply::Resting { tasks, kibibytes: resident()? })
    }
}

impl Load {
    async fn call(&self, mut random: ChaCha8Rng, log: &Log, clock: SystemClock, worker: usize) {
        let shares: u32 = self.classes.iter().map(|(class, _)| class.share).sum();
        while !self.over.load(Ordering::SeqCst) {
            let mut at = random.random_range(0..shares);
            let chosen = self.classes.iter().zip(0_u8..).find(|((class, _), _)| {
                let found = at < class.share;
                at = at.saturating_sub(class.share);
                found
            });
            let Some(((class, limiter), index)) = chosen else { return };
            let key = KeyId { class: index, number: random.random_range(0..class.keys) };
            let cost = if random.random_bool(0.8) { 1 } else { random.random_range(2..=4) };
            let text = key.text(self.phase.number);
            let mut request = Request::new(text.as_str());
            let other = (class.keys > 1 && random.random_range(0..1000) < PAIRS)
                .then(|| KeyId { number: (key.number + 1) % class.keys, ..key });
            let other_text = other.map(|other| other.text(self.phase.number));
            if let Some(text) = &other_text {
                request = request.and(text);
            }
            let start = clock.now().as_nanos();
            let check = limiter.check(request.cost(u64::from(cost)));
            let decided = if random.random_range(0..1000) < self.phase.dropped {
                impatient(check, &mut random).await
            } else {
                tokio::time::timeout(LONGEST, check).await.ok()
            };
            let end = clock.now().as_nanos();
            let (outcome, degraded) = match decided {
                None => (Outcome::Dropped, false),
                Some(Ok(decision)) if decision.allowed() => (Outcome::Admitted, decision.degraded()),
                Some(Ok(decision)) => (Outcome::Refused, decision.degraded()),
                Some(Err(error)) => (failure(&error), false),
            };
            for key in [Some(key), other].into_iter().flatten() {
                let paired = other.is_some();
                log.write(&Entry::Call(Call { worker, key, cost, start, end, outcome, degraded, paired }));
            }
            let pause = random.random_range(0..=2_000 * self.phase.pause);
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
    }

    /// What each key of a long limit has used, according to the store.
    async fn count(&self) -> Vec<(u8, u16, Option<u64>)> {
        let mut counted = Vec::new();
        let classes = self.classes.iter().zip(0_u8..).filter(|((class, _), _)| class.is_long);
        for ((class, limiter), index) in classes {
            let peek = async |number| {
                let text = KeyId { class: index, number }.text(self.phase.number);
                let peek = tokio::time::timeout(LONGEST, limiter.peek(text.as_str())).await;
                let peeked = peek.ok().and_then(Result::ok).filter(|status| !status.degraded());
                (index, number, peeked.map(|status| class.rule.quota().saturating_sub(status.remaining())))
            };
            counted.extend(futures::future::join_all((0..class.keys).map(peek)).await);
        }
        counted
    }
}

/// Waits for a call, and drops it after a random number of polls or of microseconds.
async fn impatient<T>(call: impl Future<Output = T>, random: &mut ChaCha8Rng) -> Option<T> {
    let (polls, micros) = (random.random_range(0..6), random.random_range(0..4_000));
    let by_polls = random.random_bool(0.5);
    let give_up = async {
        if by_polls {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
        } else {
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    };
    tokio::select! {
        biased;
        decided = call => Some(decided),
        () = give_up => None,
    }
}

fn failure(error: &CheckError) -> Outcome {
    use ratelimit_core::ErrorKind;
    use ratelimit_core::store::Applied;
    match error {
        CheckError::Store(error) => {
            Outcome::Failed { kind: error.kind(), maybe: error.applied() == Applied::Unknown }
        }
        _ => Outcome::Failed { kind: ErrorKind::Misconfigured, maybe: false },
    }
}

/// The resident memory of this process in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
