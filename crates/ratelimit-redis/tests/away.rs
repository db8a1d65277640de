//! A server that is killed and started again, or frozen and thawed, under load behind the layers of `Resilience`.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::Server;
use ratelimit_core::layers::{BreakerConfig, Resilience};
use ratelimit_core::{Clock as _, DynCounterStore, Limit, RateLimiter, SystemClock};
use ratelimit_memory::MemoryStore;
use ratelimit_redis::{RedisConfig, RedisStore};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

const LIMIT: u64 = 40;
const INSTANCES: u32 = 4;
/// Charged before the trouble.
const BEFORE: u64 = 20;
const TASKS: usize = 8;
const CONNECTIONS: usize = 2;
/// Far below the store's own time limit, and far above what a call takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
const OWN_LIMIT: Duration = Duration::from_secs(120);
/// The time limit around the store: longer than an answer takes on a busy machine.
const LIMIT_AROUND: Duration = Duration::from_secs(2);
/// How long to wait for what has to happen.
const PATIENCE: Duration = Duration::from_secs(240);

type Limiter = RateLimiter<Arc<dyn DynCounterStore>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Open,
    Closed,
    Fallback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Killed,
    Frozen,
}

/// What the answers were.
#[derive(Debug, Default)]
struct Seen {
    by_store: AtomicU64,
    refused_by_store: AtomicU64,
    without_store: AtomicU64,
    refused_without_store: AtomicU64,
    errors: AtomicU64,
    slowest_nanos: AtomicU64,
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::SeqCst)
}

async fn check(limiter: &Limiter, seen: &Seen) {
    let begun = limiter.clock().now();
    let count = match limiter.check("k").await {
        Ok(decision) => match (decision.allowed(), decision.degraded()) {
            (true, false) => &seen.by_store,
            (false, false) => &seen.refused_by_store,
            (true, true) => &seen.without_store,
            (false, true) => &seen.refused_without_store,
        },
        Err(_) => &seen.errors,
    };
    count.fetch_add(1, Ordering::SeqCst);
    let took = u64::try_from(limiter.clock().now().since(begun).as_nanos()).unwrap();
    seen.slowest_nanos.fetch_max(took, Ordering::SeqCst);
}

/// Checks in several tasks until `over`.
fn load(limiter: &Arc<Limiter>, seen: &Arc<Seen>, over: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let task = |_| {
        let (limiter, seen, over) = (limiter.clone(), seen.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                check(&limiter, &seen).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    (0..TASKS).map(task).collect()
}

/// Waits until this holds; returns how long it took.
async fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let clock = SystemClock::new();
    let begun = clock.now();
    while !holds() {
        assert!(clock.now().since(begun) < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clock.now().since(begun)
}

async fn store(server: &Server) -> RedisStore {
    let config = RedisConfig::from_url(&server.url()).unwrap().timeout(OWN_LIMIT).connections(CONNECTIONS);
    RedisStore::connect_with(config).await.unwrap()
}

async fn limiter(server: &Server, choice: Choice) -> Arc<Limiter> {
    // The longest pause bounds the recovery.
    let breaker = BreakerConfig::default().longest_pause(Duration::from_millis(500));
    let stack = Resilience::new(store(server).await).timeout(LIMIT_AROUND).breaker(breaker);
    let stack: Arc<dyn DynCounterStore> = match choice {
        Choice::Open => Arc::new(stack.open()),
        Choice::Closed => Arc::new(stack.closed()),
        Choice::Fallback => Arc::new(stack.fallback(MemoryStore::new(), INSTANCES)),
    };
    // A log has no boundary at which a test could lose its counts.
    Arc::new(RateLimiter::new(stack, format!("{LIMIT}/h log").parse::<Limit>().unwrap()))
}

fn connections(server: &Server) -> usize {
    // One of them asks.
    server.say("CLIENT LIST").lines().filter(|line| line.contains("id=")).count() - 1
}

async fn under_load(choice: Choice, trouble: Trouble) {
    let server = Server::start(&[]).await;
    let limiter = limiter(&server, choice).await;
    let (seen, over) = (Arc::<Seen>::default(), Arc::<AtomicBool>::default());
    for _ in 0..BEFORE {
        check(&limiter, &seen).await;
    }
    assert_eq!(get(&seen.by_store), BEFORE);
    let tasks_before = Handle::current().metrics().num_alive_tasks();

    match trouble {
        Trouble::Killed => server.kill().await,
        Trouble::Frozen => server.freeze().await,
    }
    let tasks = load(&limiter, &seen, &over);
    let without_store = || get(&seen.without_store) + get(&seen.refused_without_store) + get(&seen.errors);
    until("answers without the store", || without_store() > 500).await;
    assert_eq!((get(&seen.by_store), get(&seen.refused_by_store)), (BEFORE, 0), "{seen:?}");

    match trouble {
        Trouble::Killed => server.restart().await,
        Trouble::Frozen => server.thaw().await,
    }
    let recovered = until("a refusal of the store", || get(&seen.refused_by_store) > 0).await;
    // A call that began before may still fail; after that, none may.
    let before = without_store();
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(without_store() <= before + TASKS as u64, "{seen:?}");

    // A server that was killed has lost its counts, and what was sent to a frozen one may have been charged.
    let by_store = get(&seen.by_store) - BEFORE;
    let most = if trouble == Trouble::Killed { LIMIT } else { LIMIT - BEFORE };
    assert!(by_store <= most, "{by_store} of {most}: {seen:?}");
    let (admitted, refused) = (get(&seen.without_store), get(&seen.refused_without_store));
    match choice {
        Choice::Fallback => {
            assert_eq!((admitted, get(&seen.errors)), (LIMIT / u64::from(INSTANCES), 0), "{seen:?}");
        }
        Choice::Open => assert_eq!((refused, get(&seen.errors)), (0, 0), "{seen:?}"),
        Choice::Closed => assert_eq!((admitted, refused), (0, 0), "{seen:?}"),
    }
    let slowest = Duration::from_nanos(get(&seen.slowest_nanos));
    assert!(slowest < DEADLINE, "a call took {slowest:?}");
    println!("{choice:?}, {trouble:?}: recovered after {recovered:?}, slowest call {slowest:?}, {seen:?}");

    until("the connections of before", || connections(&server) <= CONNECTIONS).await;
    let alive = || Handle::current().metrics().num_alive_tasks();
    until("the tasks of before", || alive() <= tasks_before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_admits_everything_while_the_server_is_dead() {
    under_load(Choice::Open, Trouble::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_admits_everything_while_the_server_is_frozen() {
    under_load(Choice::Open, Trouble::Frozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_fails_in_time_while_the_server_is_dead() {
    under_load(Choice::Closed, Trouble::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_fails_in_time_while_the_server_is_frozen() {
    under_load(Choice::Closed, Trouble::Frozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_admits_its_part_while_the_server_is_dead() {
    under_load(Choice::Fallback, Trouble::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_admits_its_part_while_the_server_is_frozen() {
    under_load(Choice::Fallback, Trouble::Frozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_outlives_the_server_and_moves_to_its_successor() {
    let server = Server::start(&[]).await;
    let breaker = BreakerConfig::default().failures(1).longest_pause(Duration::from_millis(100));
    let stack = Resilience::new(store(&server).await).timeout(LIMIT_AROUND).breaker(breaker);
    let stack = stack.fallback(MemoryStore::new(), 2);
    let limiter = Arc::new(RateLimiter::new(stack, "4 at once lease 2s".parse::<Limit>().unwrap()));
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    server.kill().await;
    let clock = SystemClock::new();
    let killed = clock.now();
    // Longer than the lease, so that it has been renewed without the server.
    while clock.now().since(killed) < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let peek = limiter.peek("k").await.unwrap();
    assert_eq!((peek.degraded(), peek.remaining(), permit.is_lost()), (true, 1, false));
    server.restart().await;
    // Its next renewal is on the server, which knows nothing of before.
    let begun = clock.now();
    loop {
        let peek = limiter.peek("k").await.unwrap();
        if !peek.degraded() && peek.remaining() == 3 {
            break;
        }
        assert!(clock.now().since(begun) < PATIENCE, "{peek:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    permit.release().await.unwrap();
    assert_eq!(limiter.peek("k").await.unwrap().remaining(), 4);
}
