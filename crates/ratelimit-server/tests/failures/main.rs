//! Two servers on one Redis, behind Envoy: never more is admitted than the limit, or than the bound of what is promised
//! while Redis or a server is away, and answers stay quick.

#[path = "../surroundings/mod.rs"]
mod surroundings;

use std::sync::Arc;
use std::time::Duration;

use ratelimit_testbed::{Server, at_some_scale};
use surroundings::envoy::Asking;
use surroundings::{Browser, DEADLINE, PATIENT, RateLimitServer, Service, Tally, testbed};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

const LIMIT: u64 = 300;

/// Two servers that share a Redis, and an Envoy in front of a service that asks them in turn.
struct Fleet {
    service: Service,
    redis: Server,
    servers: Vec<RateLimitServer>,
    envoy: Server,
}

impl Fleet {
    /// Servers with this time limit for the store and these further options. Envoy waits patiently for their answer.
    async fn start(store: &str, options: &[&str]) -> Self {
        Self::start_with(store, options, false).await
    }

    /// The same; Envoy checks the health of the servers if asked to.
    async fn start_with(store: &str, options: &[&str], health: bool) -> Self {
        let (service, redis) = (Service::start().await, testbed().redis().await);
        let redis = redis.unwrap_or_else(|error| panic!("{error}"));
        let configuration = format!(
            "[[policies]]\nname = \"all\"\nkey = \"api-key:x-api-key\"\nlimit = \"{LIMIT}/day log\"\n"
        );
        // Longer than the server's own limit, which is the one that is tested.
        let url = redis.patient_url();
        let mut all = vec!["--store", &url, "--timeout", store, "--instances", "2"];
        all.extend(options);
        let servers = vec![
            RateLimitServer::start(&configuration, &all).await,
            RateLimitServer::start(&configuration, &all).await,
        ];
        let addresses = [servers[0].grpc(), servers[1].grpc()];
        let asking =
            Asking { service: service.address, servers: &addresses, timeout: PATIENT, deny: true, health };
        let envoy = asking.start().await;
        Self { service, redis, servers, envoy }
    }

    /// How many of this many requests of a key are admitted; all others are refused.
    async fn flood(&self, browser: &Browser, key: &str, requests: u64) -> u64 {
        self.tally(browser, key, requests).await.of(200)
    }

    /// The answers to this many requests of a new key.
    async fn tally(&self, browser: &Browser, key: &str, requests: u64) -> Tally {
        let tally = browser.flood(self.envoy.address(), "/", key, requests).await;
        assert_eq!(tally.of(200) + tally.of(429), requests, "{:?}", tally.all());
        assert_eq!(tally.of(200), self.service.served(key), "each admitted request is served");
        tally
    }

    /// How many checks one of the servers has made.
    async fn checks(&self, browser: &Browser, server: usize) -> u64 {
        let metrics = browser.get(self.servers[server].http(), "/metrics", "").await.body;
        let number =
            metrics.lines().find_map(|line| line.strip_prefix("ratelimit_checks_total ")?.parse().ok());
        number.unwrap_or_else(|| panic!("{metrics}"))
    }

    /// How many counters Redis has.
    async fn counters(&self) -> u64 {
        let mut stream = BufReader::new(TcpStream::connect(self.redis.address()).await.expect("Redis"));
        stream.write_all(b"DBSIZE\r\n").await.expect("a request");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("an answer");
        let number = line.trim_end().strip_prefix(':').and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{line:?}"))
    }

    /// Waits until both servers count in Redis again: together they admit the limit of a new key, not a part of it each. The
    /// load is light, so that a busy machine does not take Redis for dead again.
    async fn counts_together_again(&self, browser: &Browser, within: Duration) -> Result<(), String> {
        let begun = Instant::now();
        for number in 0.. {
            let (before, key) = (self.counters().await, format!("again-{number}"));
            let tally = browser.flood_from(2, self.envoy.address(), "/", &key, LIMIT + 50).await;
            let admitted = tally.of(200);
            if admitted == LIMIT && self.counters().await > before {
                break;
            }
            if begun.elapsed() > within {
                return Err(format!("{admitted} of {LIMIT} {:?} after Redis is back", begun.elapsed()));
            }
        }
        println!("back after {:?}", begun.elapsed());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_gets_exactly_the_limit() {
    let fleet = Fleet::start(PATIENT, &[]).await;
    let browser = Browser::new();
    assert_eq!(fleet.flood(&browser, "alice", 3 * LIMIT).await, LIMIT);
    assert_eq!(fleet.flood(&browser, "bob", LIMIT).await, LIMIT);
    // Envoy has asked both.
    let [one, other] = [fleet.checks(&browser, 0).await, fleet.checks(&browser, 1).await];
    assert!(one > LIMIT && other > LIMIT && one + other == 4 * LIMIT, "{one} and {other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_lease_never_admit_more_than_the_limit() {
    let fleet = Fleet::start(PATIENT, &["--counting", "leased", "--interval", "100ms"]).await;
    let admitted = fleet.flood(&Browser::new(), "alice", 3 * LIMIT).await;
    // What one of them has leased, the other one cannot spend.
    assert!((LIMIT / 2..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_frozen_and_then_dead_answers_are_quick_and_within_the_fallbacks_bound() {
    at_some_scale(async |scale| {
        let fleet = Fleet::start(&format!("{}ms", 15 * scale), &[]).await;
        let browser = Browser::new();
        let before = fleet.tally(&browser, "before", 3 * LIMIT).await.p99();
        let under_load = async |key: &str| fleet.service.has_served(key, LIMIT / 10).await;
        let (frozen, ()) = tokio::join!(fleet.tally(&browser, "frozen", 6 * LIMIT), async {
            under_load("frozen").await;
            fleet.redis.freeze().await.expect("freeze");
        });
        let (dead, ()) = tokio::join!(fleet.tally(&browser, "dead", 6 * LIMIT), async {
            under_load("dead").await;
            fleet.redis.kill().await.expect("kill");
        });
        // Without Redis, each of the two admits half of the limit; one part of the first flood was counted by Redis.
        for (what, tally, most) in [("frozen", &frozen, 2 * LIMIT), ("dead", &dead, LIMIT)] {
            println!("{what}: p99 {:?}, before {before:?}; {:?}", tally.p99(), tally.all());
            let admitted = tally.of(200);
            assert!((LIMIT / 2..=most).contains(&admitted), "{what}: {admitted} of {most}");
        }
        fleet.redis.start().await.unwrap_or_else(|error| panic!("{error}"));
        fleet.counts_together_again(&browser, Duration::from_secs(10) * scale).await?;
        // Beside what the machine takes for an answer: Envoy waits 20 ms by default, longer than a server waits for its store.
        let bound = before * 3 + Duration::from_millis(20) * scale;
        match frozen.p99().max(dead.p99()) {
            slow if slow > bound => Err(format!("a p99 of {slow:?}, before {before:?}")),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_lets_nothing_pass_uncounted() {
    let fleet = Arc::new(Fleet::start(PATIENT, &[]).await);
    let browser = Browser::new();
    let envoy = fleet.envoy.address();
    let load = tokio::spawn({
        let browser = browser.clone();
        async move { browser.flood(envoy, "/", "alice", LIMIT).await }
    });
    fleet.service.has_served("alice", LIMIT / 10).await;
    fleet.servers[0].process.kill().await.expect("kill");
    let tally = load.await.expect("no panic");
    println!("one killed: {:?}", tally.all());
    assert_eq!(tally.of(200) + tally.of(500), LIMIT, "{:?}", tally.all());
    assert_eq!(fleet.service.served("alice"), tally.of(200));
    fleet.servers[1].process.kill().await.expect("kill");
    let nobody = browser.flood(envoy, "/", "alice", 50).await;
    assert_eq!(nobody.of(500), 50, "nobody counts, so nothing passes: {:?}", nobody.all());
    for server in &fleet.servers {
        server.process.start().await.unwrap_or_else(|error| panic!("{error}"));
    }
    // Until Envoy has connected to both again, it answers 500.
    let begun = Instant::now();
    loop {
        let tally = browser.flood(envoy, "/", "alice", LIMIT).await;
        if tally.of(429) == LIMIT {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "{:?}", tally.all());
    }
    // Those that a server had charged when it was killed were not served: no more than are on their way at once.
    let served = fleet.service.served("alice");
    assert!((LIMIT - 16..=LIMIT).contains(&served), "{served} of {LIMIT}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_to_end_loses_no_answer() {
    // Long enough for Envoy to learn of it, on any machine.
    let mut fleet = Fleet::start_with(PATIENT, &["--linger", "5s"], true).await;
    let (browser, envoy) = (Browser::new(), fleet.envoy.address());
    let (gone, begun) = (fleet.servers.remove(0), Instant::now());
    let before = browser.flood(envoy, "/", "before", LIMIT).await;
    assert_eq!(before.of(200), LIMIT, "{:?}", before.all());
    let mut ending = tokio::task::spawn_blocking(move || drop(gone));
    let mut floods = 0;
    while !ending.is_finished() || floods < 2 {
        assert!(begun.elapsed() < DEADLINE, "it does not end");
        let key = format!("while-it-ends-{floods}");
        let tally = browser.flood(envoy, "/", &key, LIMIT + 50).await;
        assert_eq!((tally.of(200), tally.of(429)), (LIMIT, 50), "{:?}", tally.all());
        floods += 1;
    }
    (&mut ending).await.expect("it has ended");
}
