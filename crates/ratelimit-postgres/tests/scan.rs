//! Listing the meters of the table.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::Schema;
use ratelimit_postgres::core::kit::OwnedName;
use ratelimit_postgres::core::store::MeterId;
use ratelimit_postgres::{Limits, PostgresStore, RateLimiter};

async fn charge(store: &PostgresStore, namespace: &str, keys: impl Iterator<Item = Vec<u8>>) {
    let limits: Limits = "10/h; 10/d log".parse().unwrap();
    let limiter = RateLimiter::new(store, limits).with_namespace(namespace);
    let keys: Vec<_> = keys.collect();
    for decision in limiter.check_many(&keys).await {
        assert!(decision.unwrap().allowed());
    }
}

fn numbered(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| format!("k{number}").into_bytes())
}

/// The keys of a namespace in the order of their names, how many names were looked at, how many digests, whether there are
/// more.
async fn scan(store: &PostgresStore, namespace: &str, most: usize) -> (Vec<Vec<u8>>, usize, usize, bool) {
    let mut names = Vec::new();
    let scan = store.scan_meters(namespace, most, |id| names.push(OwnedName::new(id))).await.unwrap();
    assert!(names.iter().all(|name| name.id().namespace == namespace));
    let keys = names.iter().map(|name| name.id().key.to_vec()).collect();
    (keys, scan.looked_at, scan.digests, scan.more)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_namespace_are_listed() {
    let schema = Schema::new();
    for store in
        [schema.store().await, PostgresStore::connect_with(schema.config().pooler(true)).await.unwrap()]
    {
        let odd: [&[u8]; 4] = [b"", b"'\\", b"\xff\x00\n", b"user:7"];
        charge(&store, "a:b", odd.iter().map(|key| key.to_vec())).await;
        charge(&store, "a", numbered(3)).await;
        charge(&store, "c", [vec![b'x'; 300]].into_iter()).await;
        let (keys, looked_at, digests, more) = scan(&store, "a:b", 100).await;
        assert_eq!((keys.len(), looked_at, digests, more), (8, 10, 2, false));
        assert!(odd.iter().all(|odd| keys.iter().filter(|key| key == odd).count() == 2));
        assert_eq!(scan(&store, "a", 100).await.0.len(), 6);
        assert_eq!(scan(&store, "none", 100).await, (vec![], 2, 2, false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_ends_at_its_bound() {
    let schema = Schema::new();
    let store = schema.store().await;
    charge(&store, "", numbered(1_500)).await;
    for (most, found, more) in [
        (0, 0, true),
        (1, 1, true),
        (1_000, 1_000, true),
        (2_999, 2_999, true),
        (3_000, 3_000, false),
        (9_000, 3_000, false),
    ] {
        let (keys, looked_at, _, is_more) = scan(&store, "", most).await;
        assert_eq!((keys.len(), looked_at, is_more), (found, found, more), "{most}");
    }
}

/// The namespaces and scopes in which a key has meters, and whether there are no others.
async fn meters_of(store: &PostgresStore, key: &[u8], most: usize) -> (BTreeSet<(String, String)>, bool) {
    let mut found = BTreeSet::new();
    let visit = |id: &MeterId<'_>| {
        assert_eq!(id.key, key);
        assert!(found.insert((id.namespace.to_owned(), id.scope.to_owned())));
    };
    let scan = store.meters_of(key, most, Duration::from_secs(60), visit).await.unwrap();
    (found, !scan.more)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meters_of_a_key_are_found_in_all_namespaces_and_those_of_others_are_not() {
    let schema = Schema::new();
    for store in
        [schema.store().await, PostgresStore::connect_with(schema.config().pooler(true)).await.unwrap()]
    {
        let keys: [&[u8]; 7] = [b"user:7", b"", b"'\\", b"\xff\x00\n", b"\x00", &[0xff; 150], &[b'x'; 300]];
        let namespaces = ["", "a", "api", "\u{fff}", "web:v2"];
        for namespace in namespaces {
            charge(&store, namespace, keys.iter().map(|key| key.to_vec())).await;
        }
        charge(&store, "other", ["user:77", "7", "xuser:7"].map(|key| key.into()).into_iter()).await;
        charge(&store, "api", numbered(2_000)).await;
        let both =
            |namespace: &str| ["sliding:1h", "log:1d"].map(|scope| (namespace.to_owned(), scope.to_owned()));
        for key in keys {
            let expected = namespaces.into_iter().flat_map(both).collect();
            assert_eq!(meters_of(&store, key, 100).await, (expected, true), "{key:?}");
        }
        assert_eq!(meters_of(&store, b"nobody", 100).await, (BTreeSet::new(), true));
        // Six namespaces with two scopes each.
        for (most, is_whole) in [(0, false), (1, false), (11, false), (12, true)] {
            let (found, whole) = meters_of(&store, b"user:7", most).await;
            assert_eq!((found.len() <= most.min(10), whole), (true, is_whole), "{most}: {found:?}");
        }
        let scan = store.meters_of(b"user:7", 100, Duration::ZERO, |_| {}).await.unwrap();
        assert!(scan.more && scan.looked_at <= 1, "{scan:?}");
    }
}

#[tokio::test]
async fn without_a_table_the_error_says_what_to_do() {
    let schema = Schema::new();
    let store = PostgresStore::connect_with(schema.config().migrate(false)).await.unwrap();
    let error = store.scan_meters("", 10, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("run PostgresStore::migrate()"), "{error}");
}
