//! Compares the ketama ring with another implementation: a proxy in front of the same servers.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use common::{START, limits};
use ratelimit_core::{ManualClock, RateLimiter};
use ratelimit_memcached::{Distribution, MemcachedStore};
use ratelimit_testbed::Testbed;

/// Stores keys through the proxy, each with a value.
fn put(proxy: SocketAddr, keys: &[String]) {
    let mut stream = BufReader::new(TcpStream::connect(proxy).unwrap());
    for key in keys {
        stream.get_mut().write_all(format!("set {key} 0 0 1\r\nx\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n", "{key}");
    }
}

#[tokio::test]
async fn meters_are_on_the_server_that_other_ketama_clients_choose() {
    let servers = [
        common::Server::start(&[]).await,
        common::Server::start(&[]).await,
        common::Server::start(&[]).await,
    ];
    let addresses = servers.each_ref().map(common::Server::address);
    let proxy = Testbed::from_env()
        .twemproxy_before(addresses.to_vec())
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    // In a different order than in the proxy.
    let config = servers[0].config().distribution(Distribution::Ketama).servers(addresses.iter().rev());
    let store = MemcachedStore::connect_with(config).await.unwrap();
    let limiter = RateLimiter::new(store, limits(&["10/h burst 10"]))
        .with_clock(ManualClock::at(START))
        .with_namespace("api");
    let keys: Vec<String> = (0..600).map(|nth| format!("user:{nth}")).collect();
    for key in &keys {
        limiter.check(key).await.unwrap();
    }
    put(proxy.address(), &keys.iter().map(|key| format!("api!{key}")).collect::<Vec<_>>());
    let mut counts = [0; 3];
    for (nth, server) in servers.iter().enumerate() {
        let stored: Vec<String> = server.keys().into_iter().map(|(key, _)| key).collect();
        for key in &keys {
            let theirs = stored.contains(&format!("api!{key}"));
            let ours =
                stored.iter().any(|name| name.starts_with("rl!api!") && name.ends_with(&format!("!{key}")));
            assert_eq!(theirs, ours, "{key} on server {nth}");
            counts[nth] += usize::from(ours);
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), keys.len());
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}
