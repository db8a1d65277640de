//! One of three servers stops under load, and returns.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Limiter, Server, limiter};
use ratelimit_core::{CheckError, ErrorKind};
use ratelimit_memcached::{Distribution, MemcachedConfig, MemcachedStore};
use tokio::task::JoinSet;

/// The maximum duration of a call, even on a busy machine: much more than the time limit.
const NEVER_A_HANG: Duration = Duration::from_secs(40);
const TIMEOUT: Duration = Duration::from_secs(5);

const LIMIT: u64 = 1_000_000;
const KEYS: usize = 60;

/// The rounds of each key in each phase.
const ROUNDS: usize = 10;

async fn three() -> [Server; 3] {
    [Server::start(&[]).await, Server::start(&[]).await, Server::start(&[]).await]
}

fn config(servers: &[Server; 3], distribution: Distribution) -> MemcachedConfig {
    servers[0].config().servers(servers.each_ref().map(Server::address)).distribution(distribution)
}

async fn store(config: MemcachedConfig) -> MemcachedStore {
    MemcachedStore::connect_with(config).await.unwrap_or_else(|error| panic!("{error}"))
}

fn names() -> Vec<String> {
    (0..KEYS).map(|nth| format!("user:{nth}")).collect()
}

/// The keys that this server has counted.
fn counted(server: &Server) -> BTreeSet<String> {
    let key =
        |(name, _): (String, u64)| name.split('!').find(|part| part.starts_with("user:")).map(str::to_owned);
    server.keys().into_iter().filter_map(key).collect()
}

/// The progress of all keys: while all servers run, while one is stopped, and after it has returned.
#[derive(Default)]
struct Course {
    phase: AtomicUsize,
    /// How many keys have completed each phase.
    through: [AtomicUsize; 3],
}

impl Course {
    fn phase(&self) -> usize {
        self.phase.load(Ordering::SeqCst)
    }

    async fn wait_for_all_keys(&self) {
        while self.through[self.phase()].load(Ordering::SeqCst) < KEYS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Charges one key continually until all keys are done. Without a `mortal` server no call may fail, nor any charge be lost;
/// with one, calls fail while it is stopped, and it counts from zero when it returns.
async fn charge(limiter: Arc<Limiter>, key: String, mortal: Option<String>, course: Arc<Course>) {
    let (mut charged, mut failed, mut lost) = (1, false, false);
    let (mut phase, mut rounds) = (0, 0);
    while course.through[2].load(Ordering::SeqCst) < KEYS {
        if phase != course.phase() {
            (phase, rounds) = (course.phase(), 0);
        }
        let call = tokio::time::timeout(NEVER_A_HANG, limiter.check(&key)).await.expect("it hangs");
        let counts = match call {
            Ok(decision) => {
                // The server is restarted only when each of its keys has failed often enough.
                let away = mortal.is_some() && phase == 1 && failed && rounds < ROUNDS;
                assert!(!away, "{key} is answered while its server is away");
                if failed && !lost && decision.remaining() == LIMIT - 1 {
                    (charged, lost) = (0, true);
                }
                charged += 1;
                assert_eq!(decision.remaining(), LIMIT - charged, "{key}");
                mortal.is_none() || phase != 1
            }
            Err(CheckError::Store(error)) if mortal.is_some() && course.phase() > 0 => {
                assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{error}");
                assert_eq!(error.address(), mortal.as_deref(), "{error}");
                failed = true;
                phase == 1
            }
            Err(error) => panic!("{key} in phase {phase}: {error}"),
        };
        rounds += usize::from(counts);
        if rounds == ROUNDS && counts {
            course.through[phase].fetch_add(1, Ordering::SeqCst);
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(lost, mortal.is_some(), "{key}");
}

async fn stop_and_restart_one_server(distribution: Distribution) {
    let servers = three().await;
    let store = store(config(&servers, distribution).timeout(TIMEOUT)).await;
    let limiter = Arc::new(limiter(&store, "1000000/h burst 1000000"));
    for key in names() {
        limiter.check(&key).await.unwrap();
    }
    let places = servers.each_ref().map(counted);
    assert!(places.iter().all(|keys| keys.len() >= 5), "{places:?}");
    let (course, mut charges) = (Arc::new(Course::default()), JoinSet::new());
    for key in names() {
        let mortal = places[1].contains(&key).then(|| servers[1].address());
        charges.spawn(charge(limiter.clone(), key, mortal, course.clone()));
    }
    let fate = async {
        course.wait_for_all_keys().await;
        course.phase.store(1, Ordering::SeqCst);
        servers[1].kill().await;
        course.wait_for_all_keys().await;
        servers[1].restart().await;
        course.phase.store(2, Ordering::SeqCst);
    };
    let charged = async {
        while let Some(key) = charges.join_next().await {
            key.expect("see above");
        }
    };
    tokio::join!(fate, charged);
    // No key has ever been on another server.
    assert_eq!(servers.each_ref().map(counted), places);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_counts_from_zero_and_the_others_are_unaffected() {
    stop_and_restart_one_server(Distribution::Rendezvous).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_counts_from_zero_on_the_ketama_ring() {
    stop_and_restart_one_server(Distribution::Ketama).await;
}

/// A server that accepts connections and does not answer delays only its own keys.
#[tokio::test]
async fn calls_to_a_frozen_server_do_not_delay_other_servers() {
    let servers = three().await;
    let limiter =
        limiter(&store(config(&servers, Distribution::Rendezvous)).await, "1000000/h burst 1000000");
    for key in names() {
        limiter.check(&key).await.unwrap();
    }
    let places = servers.each_ref().map(counted);
    servers[2].freeze().await;
    let waiting = async {
        limiter.check_many(&places[2]).await.into_iter().map(|answer| answer.unwrap().remaining()).collect()
    };
    let mut waiting = std::pin::pin!(waiting);
    let others = async {
        for key in places[0].iter().chain(&places[1]) {
            for charged in 2..=5 {
                assert_eq!(limiter.check(key).await.unwrap().remaining(), LIMIT - charged);
            }
        }
    };
    tokio::select! {
        biased;
        answers = &mut waiting => panic!("a frozen server has answered: {answers:?}"),
        () = others => {}
    }
    servers[2].thaw().await;
    let answers: Vec<u64> = waiting.await;
    assert_eq!(answers, vec![LIMIT - 2; places[2].len()]);
}
