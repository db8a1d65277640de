//! Listing the meters of the table.

mod common;

use common::Schema;
use ratelimit_postgres::core::kit::OwnedName;
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

#[tokio::test]
async fn without_a_table_the_error_says_what_to_do() {
    let schema = Schema::new();
    let store = PostgresStore::connect_with(schema.config().migrate(false)).await.unwrap();
    let error = store.scan_meters("", 10, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("run PostgresStore::migrate()"), "{error}");
}
