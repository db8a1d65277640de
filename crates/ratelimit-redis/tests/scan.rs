//! Listing the meters of a server and of a cluster.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Server, testbed};
use ratelimit_redis::core::kit::{MeterScan, OwnedName};
use ratelimit_redis::core::store::MeterId;
use ratelimit_redis::{Limits, RateLimiter, RedisStore};

/// The names of a namespace, and how far the scan got.
async fn scan(store: &RedisStore, namespace: &str, most: usize) -> (BTreeSet<(String, Vec<u8>)>, MeterScan) {
    let mut names = Vec::new();
    let scan = store.scan_meters(namespace, most, |id| names.push(OwnedName::new(id))).await.unwrap();
    let parts = |name: &OwnedName| (name.id().scope.to_owned(), name.id().key.to_vec());
    assert!(names.iter().all(|name| name.id().namespace == namespace));
    (names.iter().map(parts).collect(), scan)
}

async fn charge(store: &RedisStore, namespace: &str, keys: impl Iterator<Item = Vec<u8>>) {
    let limits: Limits = "10/h; 10/d log".parse().unwrap();
    let limiter = RateLimiter::new(store, limits).with_namespace(namespace);
    for key in keys {
        assert!(limiter.check(&key).await.unwrap().allowed());
    }
}

fn numbered(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| format!("k{number}").into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_namespace_are_listed() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(&format!("{}?timeout=60s", server.url())).await.unwrap();
    assert_eq!(scan(&store, "a", 100).await, (BTreeSet::new(), MeterScan::default()));
    let odd: [&[u8]; 4] = [b"", b"{x}:%", b"\xff\x00\n", b"user:7"];
    charge(&store, "a:b", odd.iter().map(|key| key.to_vec())).await;
    charge(&store, "a", numbered(3)).await;
    charge(&store, "a", [vec![b'x'; 300]].into_iter()).await;
    server.say("SET rl:{a:other} 1");
    server.say("SET a 1");
    let (names, all) = scan(&store, "a:b", 100).await;
    let expected =
        odd.iter().flat_map(|key| ["sliding:1h", "log:1d"].map(|scope| (scope.to_owned(), key.to_vec())));
    assert_eq!(names, expected.collect());
    assert_eq!((all.looked_at, all.digests, all.more), (18, 2, false));
    assert_eq!(scan(&store, "a", 100).await.0.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_ends_at_its_bound() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(&format!("{}?timeout=60s", server.url())).await.unwrap();
    charge(&store, "", numbered(1_500)).await;
    let (names, all) = scan(&store, "", 10_000).await;
    assert_eq!((names.len(), all.more), (3_000, false));
    let (names, some) = scan(&store, "", 1_200).await;
    // A server may return a few more than asked for.
    assert!(some.more && (1_200..1_400).contains(&some.looked_at), "{some:?}");
    assert!((1_100..=some.looked_at).contains(&names.len()));
    let (names, none) = scan(&store, "", 0).await;
    assert_eq!((names.len(), none.looked_at, none.more), (0, 0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_cluster_are_those_of_all_nodes() {
    let cluster = testbed().redis_cluster().await.unwrap();
    let store = RedisStore::connect(&format!("{}?timeout=60s", cluster.url())).await.unwrap();
    charge(&store, "scan", numbered(50)).await;
    let (names, all) = scan(&store, "scan", 100_000).await;
    assert_eq!((names.len(), all.more), (100, false));
    assert!(all.looked_at >= 100);
}

/// The namespaces and scopes in which a key has meters, and whether all names were read.
async fn meters_of(store: &RedisStore, key: &[u8], most: usize) -> (BTreeSet<(String, String)>, bool) {
    let mut found = BTreeSet::new();
    let within = Duration::from_secs(60);
    let visit = |id: &MeterId<'_>| {
        assert_eq!(id.key, key);
        found.insert((id.namespace.to_owned(), id.scope.to_owned()));
    };
    let scan = store.meters_of(key, most, within, visit).await.unwrap();
    (found, !scan.more)
}

fn both_of(namespaces: &[&str]) -> BTreeSet<(String, String)> {
    let both =
        |namespace: &&str| ["sliding:1h", "log:1d"].map(|scope| ((*namespace).to_owned(), scope.to_owned()));
    namespaces.iter().flat_map(both).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_key_are_found_in_all_namespaces_and_those_of_others_are_not() {
    let server = Server::start(&[]).await;
    let store = RedisStore::connect(&format!("{}?timeout=60s&prefix=rl*:", server.url())).await.unwrap();
    let keys: [&[u8]; 6] = [b"user:7", b"", b"{x}:%", b"\xff\x00\n", b"a*[b]?\\^-c", b"7"];
    for key in keys {
        charge(&store, "web", [key.to_vec()].into_iter()).await;
        charge(&store, "api:v2 {*}", [key.to_vec()].into_iter()).await;
    }
    // What a careless pattern would match: `7` ends others, and `*` and `?` stand for anything.
    charge(&store, "other", [&b"user:77"[..], b"aXYbZ\\^-c", b"7:7", b"x7"].map(<[u8]>::to_vec).into_iter())
        .await;
    charge(&store, "other:user", [b"77".to_vec()].into_iter()).await;
    charge(&store, "web", numbered(1_500)).await;
    for key in keys {
        let found = meters_of(&store, key, 1_000_000).await;
        assert_eq!(found, (both_of(&["web", "api:v2 {*}"]), true), "{key:?}");
    }
    assert_eq!(meters_of(&store, b"nobody", 1_000_000).await, (BTreeSet::new(), true));
    let mut visited = 0;
    for (most, within) in [(1_000, 60), (1_000_000, 0), (0, 60)] {
        let scan = store.meters_of(b"k1", most, Duration::from_secs(within), |_| visited += 1).await.unwrap();
        assert!(scan.more && scan.looked_at <= most, "{most} {within}: {scan:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_key_are_found_on_all_nodes_of_a_cluster() {
    let cluster = testbed().redis_cluster().await.unwrap();
    let store = RedisStore::connect(&format!("{}?timeout=60s", cluster.url())).await.unwrap();
    let namespaces = ["scan a", "scan b", "scan c", "scan d", "scan e"];
    for namespace in namespaces {
        charge(&store, namespace, [b"of a key".to_vec()].into_iter()).await;
    }
    assert_eq!(meters_of(&store, b"of a key", 1_000_000).await, (both_of(&namespaces), true));
}

#[tokio::test]
async fn a_user_without_scan_learns_what_is_missing() {
    let server = Server::start(&[]).await;
    server.say("ACL SETUSER limited on >pw ~* +@all -scan");
    let store = RedisStore::connect(&format!("redis://limited:pw@127.0.0.1:{}/?timeout=60s", server.port))
        .await
        .unwrap();
    let error = store.scan_meters("", 10, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("it needs the command SCAN") && !error.contains("pw@"), "{error}");
}
