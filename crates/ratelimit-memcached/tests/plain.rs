//! The plain protocol through a pool: the same counts as with meta commands, its races, its round trips, and its errors.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Limiter, between, limiter, plain, pool};
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, ErrorKind, Limits, RateLimiter, Request, StoreError};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_testbed::differential::Differential;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Limits whose meters are stored in different ways.
const METERS: [&str; 5] = ["10/h fixed", "10/h", "10/h precision 15min", "10/h burst 10", "10/h log"];

async fn failure(limiter: &Limiter) -> StoreError {
    match limiter.check("k").await {
        Err(CheckError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// How much of `limit` is used, read with meta commands.
async fn used(server: &common::Server, limit: &str) -> u64 {
    let peeked = limiter(&server.store().await, limit);
    let peeked = peeked.peek("k").await.unwrap();
    peeked.limit() - peeked.remaining()
}

#[tokio::test]
async fn the_store_decides_as_core_does() {
    let server = common::Server::start(&["-m", "256"]).await;
    // The test's clock is not the server's: nothing may expire during the test.
    let config =
        MemcachedConfig::default().timeout(common::PATIENCE).clock_slack(Duration::from_secs(86_400));
    let store = MemcachedStore::with_pool(pool(&server.address(), 4), config).unwrap();
    // The clock never goes back: a window cannot detect that a claim is late.
    Differential::new(store, Duration::ZERO).histories(100, 60).await;
    assert_eq!(server.stat("evictions"), 0);
}

#[tokio::test]
async fn both_protocols_count_in_the_same_items() {
    let server = common::Server::start(&[]).await;
    for limit in METERS {
        let ways = [limiter(&server.store().await, limit), limiter(&plain(&server.address()), limit)];
        for resetting in 0..2 {
            let mut charged = Vec::new();
            for nth in 0..10 {
                let decision = ways[nth % 2].check("k").await.unwrap();
                assert_eq!(decision.remaining(), 9 - nth as u64, "{limit}");
                charged.push(decision.into_owned());
            }
            assert!(
                !ways[0].check("k").await.unwrap().allowed() && !ways[1].check("k").await.unwrap().allowed()
            );
            ways[1].refund(&charged[0]).await.unwrap();
            ways[0].refund(&charged[1]).await.unwrap();
            for way in &ways {
                assert_eq!(way.peek("k").await.unwrap().remaining(), 2, "{limit}");
            }
            ways[resetting].reset("k").await.unwrap();
            for way in &ways {
                assert_eq!(way.peek("k").await.unwrap().remaining(), 10, "{limit}");
            }
        }
    }
}

/// Commands of a call, as in the crate documentation.
#[tokio::test]
async fn calls_take_as_many_round_trips_as_documented() {
    let server = common::Server::start(&[]).await;
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let address = between(server.address(), move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        false
    })
    .await;
    let store = plain(&address.to_string());
    for (limit, trips) in [
        ("2/h fixed", [4, 2, 3, 1, 2, 4]),
        ("2/h", [4, 2, 3, 1, 2, 4]),
        ("2/h precision 15min", [4, 2, 3, 1, 2, 7]),
        ("2/h burst 2", [4, 2, 1, 1, 2, 1]),
        ("2/h log", [4, 2, 1, 1, 2, 1]),
    ] {
        let limiter = limiter(&store, limit);
        let first = limiter.check("k").await.unwrap();
        let mut seen = vec![count.swap(0, Ordering::SeqCst)];
        assert!(limiter.check("k").await.unwrap().allowed());
        seen.push(count.swap(0, Ordering::SeqCst));
        for _ in 0..2 {
            assert!(!limiter.check("k").await.unwrap().allowed());
            seen.push(count.swap(0, Ordering::SeqCst));
        }
        limiter.refund(&first).await.unwrap();
        seen.push(count.swap(0, Ordering::SeqCst));
        limiter.reset("k").await.unwrap();
        seen.push(count.swap(0, Ordering::SeqCst));
        assert_eq!(seen, trips, "{limit}: first, second, refused, refused again, refund, reset");
    }
}

/// A counter that disappears before it is incremented: evicted, or deleted by a reset.
#[tokio::test]
async fn vanished_counters_are_recreated_and_counted_once() {
    let server = Arc::new(common::Server::start(&[]).await);
    let left = Arc::new(AtomicU64::new(0));
    let (remover, vanishing) = (server.clone(), left.clone());
    let address = between(server.address(), move |request| {
        if let Some(rest) = request.strip_prefix("add ")
            && vanishing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            let key = rest.split(' ').next().unwrap();
            remover.say(&format!("delete {key}\r\n"), "DELETED");
        }
        false
    })
    .await;
    let store = plain(&address.to_string());
    for limit in METERS {
        for times in [1, 2, 100] {
            left.store(times, Ordering::SeqCst);
            let limiter = limiter(&store, limit);
            match limiter.check(Request::new("k").cost(3)).await {
                Ok(decision) => assert!(decision.allowed() && times < 100, "{limit}"),
                Err(CheckError::Store(error)) => {
                    assert_eq!((error.kind(), error.applied()), (ErrorKind::Contended, Applied::No));
                    assert_eq!(times, 100, "{limit}");
                }
                Err(error) => panic!("{error}"),
            }
            left.store(0, Ordering::SeqCst);
            let expected = if times < 100 { 3 } else { 0 };
            assert_eq!(used(&server, limit).await, expected, "{limit}, {times} times");
            server.say("flush_all\r\n", "OK");
        }
    }
}

/// The client does not report which of two writers created a meter: only one may be admitted on what it has read.
#[tokio::test]
async fn concurrently_created_buckets_are_not_overwritten() {
    let server = Arc::new(common::Server::start(&[]).await);
    for limit in ["10/h burst 10", "10/h log"] {
        for trap in ["add ", "gets "] {
            let (address, once) = (server.address(), AtomicU64::new(1));
            let address = between(server.address(), move |request| {
                // Another caller charges seven between two commands of the first.
                if request.starts_with(trap) && once.swap(0, Ordering::SeqCst) == 1 {
                    let address = address.clone();
                    std::thread::spawn(move || {
                        let other = async {
                            let other = limiter(&plain(&address), limit);
                            assert!(other.check(Request::new("k").cost(7)).await.unwrap().allowed());
                        };
                        tokio::runtime::Runtime::new().unwrap().block_on(other);
                    })
                    .join()
                    .unwrap();
                }
                false
            })
            .await;
            let first = limiter(&plain(&address.to_string()), limit);
            assert!(!first.check(Request::new("k").cost(7)).await.unwrap().allowed(), "{limit}, {trap}");
            assert_eq!(used(&server, limit).await, 7, "{limit}, {trap}");
            server.say("flush_all\r\n", "OK");
        }
    }
}

/// A caller that died between creating a meter and writing it.
#[tokio::test]
async fn created_but_unwritten_meters_are_empty() {
    let server = common::Server::start(&[]).await;
    for (limit, scope) in [("10/h burst 10", "bucket"), ("10/h log", "log")] {
        let limiter = limiter(&plain(&server.address()), limit);
        limiter.check("k").await.unwrap();
        let (key, _) = server.keys().pop().unwrap();
        assert!(key.contains(scope), "{key}");
        server.say(&format!("set {key} 0 0 0\r\n\r\n"), "STORED");
        assert_eq!(limiter.check("k").await.unwrap().remaining(), 9, "{limit}");
        server.say("flush_all\r\n", "OK");
    }
}

#[tokio::test]
async fn possible_charges_are_reported_and_not_repeated() {
    let server = common::Server::start(&[]).await;
    for (limit, trap) in [("10/h", "incr "), ("10/h burst 10", "cas "), ("10/h log", "cas ")] {
        let armed = Arc::new(AtomicU64::new(0));
        let traps = armed.clone();
        let address = between(server.address(), move |request| {
            request.starts_with(trap) && traps.swap(0, Ordering::SeqCst) == 1
        })
        .await;
        let limiter = limiter(&plain(&address.to_string()), limit);
        limiter.check("k").await.unwrap();
        armed.store(1, Ordering::SeqCst);
        let error = failure(&limiter).await;
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::Unknown), "{error}");
        assert_eq!(error.address(), Some(&*address.to_string()));
        assert_eq!(used(&server, limit).await, 2, "{limit}");
        assert_eq!(limiter.check("k").await.unwrap().remaining(), 7, "{limit}");
        server.say("flush_all\r\n", "OK");
    }
}

/// Of two writes the first may have been made, and the second was not sent. Which one the error is about must not matter.
#[tokio::test]
async fn changes_in_part_are_reported() {
    let server = common::Server::start(&[]).await;
    for limits in ["10/h burst 10 name a; 10/h log name b", "10/h log name b; 10/h burst 10 name a"] {
        let limits: Limits = limits.parse().unwrap();
        let armed = Arc::new(AtomicU64::new(0));
        let traps = armed.clone();
        let address = between(server.address(), move |request| {
            request.starts_with("cas ") && traps.swap(0, Ordering::SeqCst) == 1
        })
        .await;
        let limiter = RateLimiter::new(plain(&address.to_string()), limits.clone());
        let decision = limiter.check("k").await.unwrap();
        armed.store(1, Ordering::SeqCst);
        let CheckError::Store(error) = limiter.check("k").await.unwrap_err() else { panic!("no error") };
        assert_eq!(error.applied(), Applied::Unknown, "charge under {limits}: {error}");
        armed.store(1, Ordering::SeqCst);
        let error = limiter.refund(&decision).await.unwrap_err();
        assert_eq!(error.applied(), Applied::Unknown, "refund under {limits}: {error}");
        server.say("flush_all\r\n", "OK");
    }
}

#[tokio::test]
async fn pool_timeouts_charge_nothing() {
    let server = common::Server::start(&[]).await;
    let only_one = pool(&server.address(), 1);
    let config = MemcachedConfig::default().timeout(Duration::from_millis(200));
    let hasty = MemcachedStore::with_pool(only_one.clone(), config).unwrap();
    let held = only_one.get().await.unwrap();
    for limit in METERS {
        let error = failure(&limiter(&hasty, limit)).await;
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
        assert_eq!(used(&server, limit).await, 0, "{limit}");
    }
    drop(held);
    let patient = MemcachedConfig::default().timeout(common::PATIENCE);
    let patient = MemcachedStore::with_pool(only_one, patient).unwrap();
    for limit in METERS {
        assert!(limiter(&patient, limit).check("k").await.unwrap().allowed());
    }
}

/// Nothing is busy if a server does not accept connections, so a larger pool would not help.
#[tokio::test]
async fn unreachable_servers_are_not_reported_as_busy_pools() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // Until its queue of connections is full.
    let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _queued: Vec<_> = std::iter::from_fn(connect).take(16).collect();
    let config = MemcachedConfig::default().timeout(Duration::from_millis(300));
    let store = MemcachedStore::with_pool(pool(&address.to_string(), 16), config).unwrap();
    let error = failure(&limiter(&store, "10/h")).await;
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
    assert!(!error.to_string().contains("max_size"), "{error}");
}

#[tokio::test]
async fn a_restart_fails_at_most_one_call() {
    let server = common::Server::start(&[]).await;
    let connections = pool(&server.address(), 4);
    let held = futures_util::future::join_all((0..4).map(|_| connections.get())).await;
    drop(held);
    assert_eq!(connections.status().size, 4);
    let config = MemcachedConfig::default().timeout(common::PATIENCE);
    let store = MemcachedStore::with_pool(connections, config).unwrap();
    let limiter = limiter(&store, "10/h");
    server.restart().await;
    let _at_most_one = limiter.check("k").await;
    for left in [9, 8, 7] {
        // If the first call got a connection that had been tested, it was counted.
        let decision = limiter.check("k").await.unwrap();
        assert!([left, left - 1].contains(&decision.remaining()), "{decision:?}");
    }
}

#[tokio::test]
async fn errors_identify_servers_that_are_not_memcached() {
    for (says, kind, applied) in [
        ("ERROR\r\n", ErrorKind::Unsupported, Applied::No),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::Server, Applied::Unknown),
        ("SERVER_ERROR Connection refused\r\n", ErrorKind::Unreachable, Applied::No),
        ("SERVER_ERROR Connection timed out\r\n", ErrorKind::Timeout, Applied::Unknown),
        ("\u{fffd}\r\n", ErrorKind::Server, Applied::Unknown),
        ("", ErrorKind::Unreachable, Applied::Unknown),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n") {
                        if client.read_buf(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let _ = client.write_all(says.as_bytes()).await;
                });
            }
        });
        let error = failure(&limiter(&plain(&address), "10/h")).await;
        assert_eq!((error.kind(), error.applied()), (kind, applied), "{says:?}: {error}");
    }
    let nobody = format!("127.0.0.1:{}", common::free_port());
    let error = failure(&limiter(&plain(&nobody), "10/h")).await;
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::No), "{error}");
    assert_eq!(error.address(), Some(&*nobody));
}

/// The proxy runs and the servers behind it do not.
#[tokio::test]
async fn dead_and_frozen_servers_behind_a_proxy_are_errors_until_they_return() {
    let settings = ratelimit_testbed::Settings {
        addresses: Default::default(),
        ..ratelimit_testbed::Settings::from_env()
    };
    let group = ratelimit_testbed::Testbed::new(settings).twemproxy().await;
    let group = group.unwrap_or_else(|error| panic!("{error}"));
    let [one, two, proxy] = group.servers() else { panic!("{group:?}") };
    let limiter = limiter(&plain(&proxy.address().to_string()), "1000/h");
    let keys: Vec<String> = (0..20).map(|nth| format!("user:{nth}")).collect();
    let check_all =
        || async { futures_util::future::join_all(keys.iter().map(|key| limiter.check(key))).await };
    assert!(check_all().await.into_iter().all(|answer| answer.unwrap().remaining() == 999));
    one.freeze().await.unwrap();
    two.freeze().await.unwrap();
    let error = failure(&limiter).await;
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Timeout, Applied::Unknown), "{error}");
    one.kill().await.unwrap();
    two.kill().await.unwrap();
    for answer in check_all().await {
        let Err(CheckError::Store(error)) = answer else { panic!("{answer:?}") };
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{error}");
    }
    one.start().await.unwrap();
    two.start().await.unwrap();
    while check_all().await.iter().any(Result::is_err) {}
    assert!(check_all().await.iter().all(Result::is_ok));
}

/// A proxy that has a second server, only for the key with which connections are tested. In its place it gives this answer,
/// or none. Also returns how many connections it has accepted.
async fn proxy_before_two(server: String, answer: Option<&'static str>) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, accepted) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicU64::new(0)));
    let count = accepted.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(&server).await.unwrap();
            let (requests, mut client) = client.into_split();
            tokio::spawn(async move {
                // By line, because the client sends a line in several pieces.
                let mut requests = BufReader::new(requests);
                let (mut line, mut reply) = (Vec::new(), vec![0; 4_096]);
                loop {
                    tokio::select! {
                        Ok(1..) = requests.read_until(b'\n', &mut line) => {
                            if line.starts_with(b"get !") {
                                client.write_all(answer.unwrap_or_default().as_bytes()).await.unwrap();
                            } else {
                                server.write_all(&line).await.unwrap();
                            }
                            line.clear();
                        }
                        Ok(size @ 1..) = server.read(&mut reply) => {
                            client.write_all(&reply[..size]).await.unwrap();
                        }
                        else => return,
                    }
                }
            });
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn a_server_behind_a_proxy_that_does_not_answer_does_not_delay_keys_of_another() {
    let server = common::Server::start(&[]).await;
    for answer in
        [None, Some("SERVER_ERROR Connection timed out\r\n"), Some("SERVER_ERROR Connection refused\r\n")]
    {
        let (address, accepted) = proxy_before_two(server.address(), answer).await;
        let config = MemcachedConfig::default().timeout(Duration::from_secs(1));
        let store = MemcachedStore::with_pool(pool(&address, 1), config).unwrap();
        let limiter = limiter(&store, "1000/h burst 1000");
        assert!(limiter.check("k").await.unwrap().allowed());
        let before = accepted.load(Ordering::SeqCst);
        // Idle for so long that the connection is tested.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let checked = limiter.check("k").await;
        assert!(checked.is_ok(), "{answer:?}: {checked:?}");
        let is_kept = accepted.load(Ordering::SeqCst) == before;
        assert_eq!(is_kept, answer.is_some(), "{answer:?}");
    }
}

/// The way through a pool does not read the server's settings, so it meets a server that refuses instead of evicting.
#[tokio::test]
async fn a_full_server_is_reported() {
    let server = common::Server::start(&["-m", "2", "-M"]).await;
    let store = plain(&server.address());
    for limit in ["5/h fixed", "1000/h log"] {
        let limiter = limiter(&store, limit);
        let full = async {
            for nth in 0..60_000 {
                match limiter.check(Request::new(&format!("{limit} {nth}")).cost(5)).await {
                    Ok(decision) => assert!(decision.allowed()),
                    Err(CheckError::Store(error)) => return error,
                    Err(error) => panic!("{error}"),
                }
            }
            panic!("it does not get full");
        };
        let error = full.await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Full, true), "{error}");
        assert_eq!((error.store(), error.address()), ("memcached", Some(&*server.address())));
        assert_eq!(error.applied(), Applied::No);
    }
}
