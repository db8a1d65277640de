//! Two servers that share the keys.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Limiter, START, limiter};
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, ErrorKind, Limits, ManualClock, RateLimiter, Request};
use ratelimit_memcached::MemcachedStore;

#[tokio::test]
async fn the_order_of_servers_does_not_matter() {
    let servers = [common::Server::start(&[]).await, common::Server::start(&[]).await];
    let config = |order: [usize; 2]| servers[0].config().servers(order.map(|nth| servers[nth].address()));
    let (there, back) = (config([0, 1]), config([1, 0]));
    let there = MemcachedStore::connect_with(there).await.unwrap();
    let back = MemcachedStore::connect_with(back).await.unwrap();
    for limit in ["10/h", "10/h precision 15min", "10/h burst 10", "10/h log"] {
        let (there, back) = (limiter(&there, limit), limiter(&back, limit));
        let keys: Vec<String> = (0..50).map(|nth| format!("user:{nth}")).collect();
        for key in &keys {
            assert_eq!(there.check(Request::new(key).cost(4)).await.unwrap().remaining(), 6);
        }
        let answers = back.check_many(keys.iter().map(|key| Request::new(key).cost(4))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().remaining() == 2));
        // Both keys or none, on whichever servers they are.
        for pair in keys.windows(2) {
            assert!(there.check(Request::new(&pair[0]).cost(2)).await.unwrap().allowed());
            let refused =
                back.check(Request::new(&pair[0]).and(Request::new(&pair[1])).cost(1)).await.unwrap();
            assert!(!refused.allowed());
            assert_eq!(back.peek(&pair[1]).await.unwrap().remaining(), 2);
        }
    }
    assert!(servers.iter().all(|server| server.stat("curr_items") > 50));
}

/// Groups these keys by server: those of the running server, those of the dead one.
async fn sorted(limiter: &Limiter, dead: &common::Server, keys: &[String]) -> [Vec<String>; 2] {
    let mut sorted = [Vec::new(), Vec::new()];
    for key in keys {
        let place = match limiter.check(Request::new(key)).await {
            Ok(decision) => usize::from(!decision.allowed()), // none is refused
            Err(CheckError::Store(error)) => {
                let reported = (error.kind(), error.applied(), error.address());
                assert_eq!(
                    reported,
                    (ErrorKind::Unreachable, Applied::No, Some(&*dead.address())),
                    "{error}"
                );
                1
            }
            Err(error) => panic!("{error}"),
        };
        sorted[place].push(key.clone());
    }
    sorted
}

#[tokio::test]
async fn keys_on_the_other_server_work_when_one_dies() {
    let servers = [common::Server::start(&[]).await, common::Server::start(&[]).await];
    let config = servers[0].config().servers(servers.iter().map(common::Server::address));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let keys: Vec<String> = (0..40).map(|nth| format!("user:{nth}")).collect();
    for limit in ["10/h", "10/h precision 15min", "10/h burst 10", "10/h log"] {
        let limiter = limiter(&store, limit);
        for key in &keys {
            assert!(limiter.check(key).await.unwrap().allowed());
        }
        servers[0].kill().await;
        let [alive, dead] = sorted(&limiter, &servers[0], &keys).await;
        assert!(alive.len() >= 5 && dead.len() >= 5, "{} and {}", alive.len(), dead.len());
        // They have lost nothing.
        for key in &alive {
            assert_eq!(limiter.check(key).await.unwrap().remaining(), 7, "{limit}");
        }
        // In one batch each is answered separately.
        for (key, answer) in keys.iter().zip(limiter.check_many(&keys).await) {
            match answer {
                Ok(decision) => assert!(alive.contains(key) && decision.remaining() == 6, "{limit} {key}"),
                Err(error) => assert!(dead.contains(key), "{limit} {key}: {error}"),
            }
        }
        // A slice on both servers is an error, and charges neither.
        let both = Request::new(&alive[0]).and(Request::new(&dead[0]));
        for _ in 0..3 {
            assert!(limiter.check(&both).await.is_err(), "{limit}");
        }
        assert_eq!(limiter.peek(&alive[0]).await.unwrap().remaining(), 6, "{limit}");
        servers[0].restart().await;
        for key in &dead {
            assert_eq!(limiter.check(key).await.unwrap().remaining(), 9, "{limit}");
        }
        assert!(limiter.check(&both).await.unwrap().allowed());
        for key in &keys {
            limiter.reset(key).await.unwrap();
        }
    }
}

/// It has been applied on the other server, and whoever retries it could give units back twice.
#[tokio::test]
async fn a_refund_of_which_one_server_is_dead_is_applied_on_the_other() {
    let servers = [common::Server::start(&[]).await, common::Server::start(&[]).await];
    let config = servers[0].config().servers(servers.iter().map(common::Server::address));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let keys: Vec<String> = (0..30).map(|nth| format!("user:{nth}")).collect();
    let all = keys[1..].iter().fold(Request::new(&keys[0]), |all, key| all.and(Request::new(key)));
    for limit in ["10/h", "10/h precision 15min", "10/h burst 10", "10/h log", "10/h; 10/h burst 10"] {
        let limits: Limits = limit.parse().unwrap();
        let limiter = RateLimiter::new(store.clone(), limits).with_clock(ManualClock::at(START));
        let decision = limiter.check(&all).await.unwrap();
        servers[0].kill().await;
        let error = limiter.refund(&decision).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.applied()),
            (ErrorKind::Unreachable, Applied::Unknown),
            "{limit}: {error}"
        );
        let (mut alive, mut given_back) = (0, 0);
        for key in &keys {
            if let Ok(decision) = limiter.peek(key).await {
                alive += 1;
                given_back += usize::from(decision.remaining() == 10);
            }
        }
        assert!(alive >= 5);
        assert_eq!(given_back, alive, "{limit}: {error}");
        servers[0].restart().await;
        for key in &keys {
            limiter.reset(key).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_reset_of_which_one_server_is_dead_is_applied_on_the_other() {
    let servers = [common::Server::start(&[]).await, common::Server::start(&[]).await];
    let config = servers[0].config().servers(servers.iter().map(common::Server::address));
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let keys: Vec<String> = (0..30).map(|nth| format!("user:{nth}")).collect();
    let all = keys[1..].iter().fold(Request::new(&keys[0]), |all, key| all.and(Request::new(key)));
    for limit in ["10/h", "10/h burst 10"] {
        let limiter = limiter(&store, limit);
        assert!(limiter.check(&all).await.unwrap().allowed());
        servers[0].kill().await;
        let error = limiter.reset(&all).await.unwrap_err();
        let CheckError::Store(error) = error else { panic!("{error}") };
        let reported = (error.kind(), error.applied());
        assert_eq!(reported, (ErrorKind::Unreachable, Applied::Unknown), "{limit}: {error}");
        let mut alive = 0;
        for key in &keys {
            if let Ok(decision) = limiter.peek(key).await {
                alive += 1;
                assert_eq!(decision.remaining(), 10, "{limit}");
            }
        }
        assert!(alive >= 5);
        servers[0].restart().await;
    }
}

/// One server fails, and the connection to the other breaks while it takes back what was reserved: that may stay counted.
#[tokio::test]
async fn a_slice_that_could_not_be_taken_back_may_be_charged() {
    let servers = [common::Server::start(&[]).await, common::Server::start(&[]).await];
    let cut = Arc::new(AtomicBool::new(false));
    let cuts = cut.clone();
    let seen = move |request: &str| request.contains(" MD ") && cuts.load(Ordering::SeqCst);
    let relay = common::between(servers[1].address(), seen).await.to_string();
    let config = servers[0].config().servers([servers[0].address(), relay]);
    let patient = MemcachedStore::connect_with(config.clone()).await.unwrap();
    let patient = limiter(&patient, "10/h burst 10");
    let mut keys = [None, None];
    for key in (0..40).map(|nth| format!("user:{nth}")) {
        assert!(patient.check(&key).await.unwrap().allowed());
        let name = format!("rl!!{}!{key}", patient.limits()[0].scope());
        let found = servers[1].say(&format!("mg {name} t\r\nmn\r\n"), "MN")[0].starts_with("HD");
        keys[usize::from(found)] = Some(key);
    }
    let [Some(failing), Some(cut_off)] = keys else { panic!("all keys are on one server") };
    let both = Request::new(&cut_off).limits(common::limits(&["10/h"])).and(Request::new(&failing));
    servers[0].kill().await;
    for (is_cut, applied) in [(false, Applied::No), (true, Applied::Unknown)] {
        cut.store(is_cut, Ordering::SeqCst);
        let Err(CheckError::Store(error)) = patient.check(&both).await else { panic!("an answer") };
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, applied), "{error}");
    }
    servers[0].restart().await;
    let store = MemcachedStore::connect_with(config.timeout(Duration::from_secs(1))).await.unwrap();
    servers[0].freeze().await;
    let Err(CheckError::Store(error)) = limiter(&store, "10/h burst 10").check(&both).await else {
        panic!("an answer")
    };
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Timeout, Applied::Unknown), "{error}");
}
