//! Two processes, 64 tasks, one key: exactly the limit is admitted.
//!
//! The test starts itself twice. `RATELIMIT_PROCESS_ROUNDS` is the number of rounds for each kind of limit (default 1).

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use common::{Schema, url};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, Timestamp};
use ratelimit_postgres::{PostgresConfig, PostgresStore};

/// Set to the schema in a process that the test has started.
const SCHEMA: &str = "RATELIMIT_TEST_SCHEMA";
const TASKS: usize = 32;
const CALLS: usize = 8;

const LIMITS: [&[&str]; 6] = [
    &["300/10s fixed"],
    &["300/10s"],
    &["300/10000s burst 300"],
    &["300/10s log"],
    &["300/10s precision 1s strict"],
    &["300/10s name a", "400/10s name b", "301/10000s burst 301"],
];

/// Not a test on its own: the other test runs it in further processes. Each line of its input is a round.
#[tokio::test(flavor = "multi_thread")]
async fn worker() {
    let Ok(schema) = std::env::var(SCHEMA) else { return };
    let config = PostgresConfig::from_url(&url())
        .unwrap()
        .schema(schema)
        .prune_every(None)
        .timeout(std::time::Duration::from_secs(20));
    let store = PostgresStore::connect_with(config).await.unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let texts = LIMITS[line.parse::<usize>().unwrap() % LIMITS.len()];
        let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (store, limits, line) = (store.clone(), limits.clone(), line.clone());
                tokio::spawn(async move { admitted(&store, &limits, line.as_bytes()).await })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        println!("\nadmitted {sum}");
    }
}

async fn admitted(store: &PostgresStore, limits: &[Limit], key: &[u8]) -> u64 {
    let claim = |limit: &Limit| limit.meter_for(key);
    let meters: Vec<_> = limits.iter().map(claim).collect();
    let claims: Vec<_> = limits
        .iter()
        .zip(meters)
        .map(|(limit, meter)| Claim {
            id: MeterId { namespace: "", scope: limit.scope(), key },
            cost: 1,
            meter,
        })
        .collect();
    let claims = Claims::new(Timestamp::from_secs(1_000_000), Mode::Charge, &claims).unwrap();
    let mut sum = 0;
    for _ in 0..CALLS {
        sum += u64::from(store.claim(claims).await.unwrap().admitted);
    }
    sum
}

struct Worker {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(schema: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture"])
            .env(SCHEMA, schema)
            .env("RATELIMIT_POSTGRES_URL", url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn read_line(&mut self, begin: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find_map(|line| Some(line.strip_prefix(begin)?.to_owned())).expect("the worker has ended")
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.stdin.take()); // it exits at the end of its input
        let _ = self.process.wait();
    }
}

#[test]
fn two_processes_admit_exactly_the_limit() {
    let schema = Schema::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    drop(runtime.block_on(schema.store()));
    let mut workers = [Worker::start(&schema.name), Worker::start(&schema.name)];
    for worker in &mut workers {
        worker.read_line("ready");
    }
    let rounds = std::env::var("RATELIMIT_PROCESS_ROUNDS").map_or(1, |text| text.parse().unwrap());
    for number in 0..LIMITS.len() * rounds {
        for worker in &mut workers {
            worker.send_line(&number.to_string());
        }
        let admitted = workers.each_mut().map(|worker| worker.read_line("admitted ").parse::<u64>().unwrap());
        assert_eq!(admitted.iter().sum::<u64>(), 300, "{admitted:?} of {:?}", LIMITS[number % LIMITS.len()]);
    }
}
