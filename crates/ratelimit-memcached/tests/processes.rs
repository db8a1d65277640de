//! 64 tasks in two processes on one key: never more than the limit is admitted, and how much less.
//!
//! `RATELIMIT_ROUNDS=200 cargo test --release -p ratelimit-memcached --test processes -- --nocapture` is the long form, and
//! prints the figures in the crate's documentation on refusals under contention. The default is three rounds.

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{START, limits};
use ratelimit_core::{CheckError, ErrorKind, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_memcached::MemcachedStore;
use tokio::sync::Barrier;

/// Set to the server's address in the other processes.
const ROLE: &str = "RATELIMIT_TEST_WORKER";

/// Tasks in each of the two processes.
const TASKS: usize = 32;

/// A workload: limits, seconds after [`START`], key, claims of each task, and their highest cost.
struct Task<'a> {
    texts: &'a [&'a str],
    at: u64,
    key: &'a str,
    each: u64,
    most: u64,
}

impl Task<'_> {
    fn line(&self) -> String {
        format!("{}|{}|{}|{}|{}\n", self.texts.join(";"), self.at, self.key, self.each, self.most)
    }

    /// Costs from one to the highest, mixed as well as possible.
    fn cost(&self, task: u64, nth: u64) -> u64 {
        1 + (task * 5 + nth * 7) % self.most
    }
}

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Not a test on its own: the others run it in further processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(address) = std::env::var(ROLE) else { return };
    let store = MemcachedStore::connect_with(common::config(&address)).await.unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let [texts, seconds, key, each, most] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let texts: Vec<_> = texts.split(';').collect();
        let number = |text: &str| text.parse().unwrap();
        let task = Task { texts: &texts, at: number(seconds), key, each: number(each), most: number(most) };
        let [admitted, refused, contended] = storm(&store, &task).await;
        println!("counts {admitted} {refused} {contended}");
    }
}

/// How many units were admitted, refused and contended.
async fn storm(store: &MemcachedStore, task: &Task<'_>) -> [u64; 3] {
    let barrier = Arc::new(Barrier::new(TASKS));
    let tasks: Vec<_> = (0..TASKS as u64)
        .map(|number| {
            let clock = ManualClock::at(at(task.at));
            let limiter = RateLimiter::new(store.clone(), limits(task.texts)).with_clock(clock);
            let costs: Vec<u64> = (0..task.each).map(|nth| task.cost(number, nth)).collect();
            let (barrier, key) = (barrier.clone(), task.key.to_owned());
            tokio::spawn(async move {
                barrier.wait().await;
                let mut counts = [0; 3];
                for cost in costs {
                    match limiter.check(Request::new(&key).cost(cost)).await {
                        Ok(decision) => counts[usize::from(!decision.allowed())] += cost,
                        Err(CheckError::Store(error)) if error.kind() == ErrorKind::Contended => {
                            counts[2] += cost;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                counts
            })
        })
        .collect();
    let mut sum = [0; 3];
    for task in tasks {
        let counts = task.await.unwrap();
        sum = std::array::from_fn(|nth| sum[nth] + counts[nth]);
    }
    sum
}

/// Another process. It exits at the end of its input.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture"])
            .env(ROLE, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut worker = Self { input: child.stdin.take(), child, output };
        worker.expect("ready");
        worker
    }

    fn expect(&mut self, start: &str) -> String {
        let lines = self.output.by_ref().map(Result::unwrap);
        let mut found = lines.filter_map(|line| line.strip_prefix(start).map(str::to_owned));
        found.next().expect("the other process ended")
    }

    fn send(&mut self, task: &Task<'_>) {
        self.input.as_mut().unwrap().write_all(task.line().as_bytes()).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Two processes on one server, and a store of this process.
struct Stage {
    workers: [Worker; 2],
    store: MemcachedStore,
    server: common::Server,
}

impl Stage {
    async fn new() -> Self {
        let server = common::Server::start(&[]).await;
        let address = server.address();
        let workers = [Worker::start(&address), Worker::start(&address)];
        Self { workers, store: server.store().await, server }
    }

    /// The outcomes in both processes together, and how much is left for a single caller after that.
    async fn run(&mut self, task: &Task<'_>) -> ([u64; 3], u64) {
        self.workers.iter_mut().for_each(|worker| worker.send(task));
        let mut sum = [0; 3];
        for worker in &mut self.workers {
            let counts = worker.expect("counts ");
            sum.iter_mut()
                .zip(counts.split(' '))
                .for_each(|(sum, count)| *sum += count.parse::<u64>().unwrap());
        }
        let limiter = self.limiter(task.texts, task.at);
        let mut later = 0;
        while limiter.check(task.key).await.unwrap().allowed() {
            later += 1;
        }
        (sum, later)
    }

    fn limiter(&self, texts: &[&str], seconds: u64) -> common::Limiter {
        RateLimiter::new(self.store.clone(), limits(texts)).with_clock(ManualClock::at(at(seconds)))
    }
}

fn rounds() -> u64 {
    std::env::var("RATELIMIT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_exceed_the_limit() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let mut stage = Stage::new().await;
    let kinds = [
        ["200/h fixed"].as_slice(),
        &["200/h"],
        &["200/h precision 15min"],
        &["200/h burst 200"],
        &["200/h log"],
        &["300/min", "200/h fixed", "250/h precision 15min"],
        &["300/min", "200/h burst 200", "250/h log"],
    ];
    for (nth, texts) in kinds.into_iter().enumerate() {
        for (each, most) in [(5, 1), (30, 1), (5, 9), (30, 9)] {
            let mut reported = Vec::new();
            for round in 0..rounds() {
                let key = format!("{nth} {each} {most} {round}");
                let (counts, later) = stage.run(&Task { texts, at: 0, key: &key, each, most }).await;
                assert!(counts[0] <= 200, "{texts:?}: {counts:?}");
                // All reservations of refused claims have been given back, and nothing else.
                assert_eq!(counts[0] + later, 200, "{texts:?}: {counts:?}");
                reported.push(counts);
            }
            report(texts, each, most, &reported);
        }
    }
    assert_eq!(stage.server.stat("evictions"), 0);
}

fn report(texts: &[&str], each: u64, most: u64, reported: &[[u64; 3]]) {
    let fewer = |counts: &[u64; 3]| 200 - counts[0];
    let (sum, worst) =
        (reported.iter().map(fewer).sum::<u64>(), reported.iter().map(fewer).max().unwrap_or(0));
    let rounds = reported.len() as u64;
    let contended: u64 = reported.iter().map(|counts| counts[2]).sum();
    println!(
        "{texts:?}, {} claims of 1 to {most}: {}.{:02} units fewer than 200, at worst {worst}; {contended} contended",
        64 * each,
        sum / rounds,
        sum * 100 / rounds % 100,
    );
}

/// The previous window has to be weighted with the count in the reply, not with the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_previous_window_counts_for_both_processes() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let mut stage = Stage::new().await;
    // 60 of 100 are used at second 10; three quarters of that still count 15 s into the next minute, and so do they, by
    // segments, 5 s into it.
    for (text, seconds) in [("100/min", 75), ("100/min precision 20s", 65)] {
        for round in 0..rounds() {
            let key = format!("{round}");
            let early = stage.limiter(&[text], 10);
            assert!(early.check(Request::new(&key).cost(60)).await.unwrap().allowed());
            let task = Task { texts: &[text], at: seconds, key: &key, each: 6, most: 2 };
            let ([admitted, ..], later) = stage.run(&task).await;
            assert!(admitted <= 55, "{text}: {admitted} of 55");
            assert_eq!(admitted + later, 55, "{text}");
        }
    }
}
