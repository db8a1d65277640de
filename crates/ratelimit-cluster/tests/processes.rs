//! Three processes with leases on one Redis, spoken to in turn: one is killed, one paused, one added.
//!
//! `cargo test -p ratelimit-cluster --test processes -- --nocapture` prints what was admitted, and what Redis was asked.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ratelimit_cluster::{LeaseConfig, Leased};
use ratelimit_core::{Limit, ManualClock, RateLimiter, Timestamp};
use ratelimit_redis::{RedisConfig, RedisStore};
use ratelimit_testbed::Testbed;
use rustix::process::{Pid, Signal, kill_process};

/// Set for the other processes: the most units in a lease, the prefix of keys, and the server's address.
const ROLE: &str = "RATELIMIT_TEST_NODE";

const LIMIT: u64 = 3_000;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Tasks in each process.
const TASKS: u64 = 8;

type Limiter = RateLimiter<Leased<RedisStore>, ManualClock>;

async fn limiter(role: &str) -> Limiter {
    let (largest, rest) = role.split_once(' ').unwrap();
    let (prefix, url) = rest.split_once(' ').unwrap();
    let config = RedisConfig::from_url(url).unwrap().timeout(Duration::from_secs(60)).prefix(prefix);
    let store = RedisStore::connect_with(config).await.unwrap();
    let config = LeaseConfig::default().max_lease(largest.parse().unwrap());
    let limit: Limit = format!("{LIMIT}/h fixed").parse().unwrap();
    RateLimiter::new(Leased::with_config(store, config), limit).with_clock(ManualClock::at(START))
}

/// Not a test of its own: what the others run in further processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let limiter = Arc::new(limiter(&role).await);
    println!("\nready");
    for line in std::io::stdin().lines() {
        match line.unwrap().parse::<u64>() {
            Ok(claims) => println!("admitted {}", storm(&limiter, claims).await),
            Err(_) => {
                limiter.store().give_back_all(START).await.unwrap();
                println!("given back");
            }
        }
    }
}

/// How many of so many claims were admitted.
async fn storm(limiter: &Arc<Limiter>, claims: u64) -> u64 {
    let task = |_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..claims / TASKS {
                admitted += u64::from(limiter.check("k").await.unwrap().allowed());
            }
            admitted
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

/// Another process. Ends with its input.
struct Node {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Node {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut node = Self { input: child.stdin.take(), child, output };
        node.expect("ready");
        node
    }

    fn expect(&mut self, start: &str) -> String {
        let lines = self.output.by_ref().map(Result::unwrap);
        let mut found = lines.filter_map(|line| line.strip_prefix(start).map(str::to_owned));
        found.next().expect("the other process ended")
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn claim(&mut self, claims: u64) -> u64 {
        self.send_line(&claims.to_string());
        self.expect("admitted ").parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// How many commands the server has been given, and how many bytes it has received and sent.
async fn traffic(url: &str) -> [u64; 3] {
    let client = redis::Client::open(url).unwrap();
    // Not the client's half second: a machine may be busy.
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let told: String = redis::cmd("INFO").arg("stats").query_async(&mut connection).await.unwrap();
    ["total_commands_processed:", "total_net_input_bytes:", "total_net_output_bytes:"].map(|name| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    })
}

/// Gives how many were admitted, how many were left, and how many commands Redis was given for each claim.
async fn trial(largest: u64) -> (u64, u64, f64) {
    let server = Testbed::from_env().redis().await.unwrap();
    let url = server.url().to_owned();
    let role = format!("{largest} processes-{}-{largest}: {url}", std::process::id());
    let alone = limiter(&role).await;
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start(&role)).collect();
    let before = traffic(&url).await;
    let (mut admitted, mut claims) = (0, 0);
    let mut round = |nodes: &mut [Node], rounds: u64| {
        for _ in 0..rounds {
            for node in &mut *nodes {
                admitted += node.claim(80);
                claims += 80;
            }
        }
    };
    round(&mut nodes, 4);
    let mut killed = nodes.remove(0);
    killed.signal(Signal::KILL);
    killed.child.wait().unwrap();
    round(&mut nodes, 2);
    // Paused with what it holds, while another takes its part.
    let paused = nodes.remove(0);
    paused.signal(Signal::STOP);
    nodes.push(Node::start(&role));
    round(&mut nodes, 4);
    paused.signal(Signal::CONT);
    nodes.push(paused);
    round(&mut nodes, 12);
    let after = traffic(&url).await;
    for node in &mut nodes {
        node.send_line("give back");
        node.expect("given back");
    }
    let mut left = 0;
    while alone.check("k").await.unwrap().allowed() {
        left += 1;
    }
    #[allow(clippy::cast_precision_loss)]
    let [each, received, sent] = std::array::from_fn(|nth| (after[nth] - before[nth]) as f64 / claims as f64);
    println!(
        "leases of at most {largest}: {claims} claims, {admitted} admitted and {left} left of {LIMIT}, \
         {each:.2} commands, {received:.0} bytes to Redis and {sent:.0} back a claim"
    );
    (admitted, left, each)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_paused_and_added_never_exceed_the_limit() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let (admitted, left, straight) = trial(0).await;
    assert_eq!(admitted + left, LIMIT, "without leases");
    let (admitted, left, leased) = trial(100).await;
    assert!(admitted + left <= LIMIT, "{admitted} and {left} were admitted");
    assert!(
        admitted + left >= LIMIT - 100,
        "{admitted} and {left}: more is lost than the lease of the killed node"
    );
    assert!(
        leased < straight * 0.6,
        "leases have saved too little: {leased} commands a claim, not {straight}"
    );
}
