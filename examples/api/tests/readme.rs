//! Compares the README's table of stores with what the stores declare.
//!
//! How many round trips follow from a declaration is the conformance suite's rule. Its cases `trips/…` test it on every
//! store by counting round trips in a proxy.

use ratelimit_core::CounterStore;
use ratelimit_core::store::Decisions;
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_memory::MemoryStore;
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_redis::{RedisConfig, RedisStore};

/// A row of the table: where the store is, its decisions, and its round trips.
struct Row {
    place: String,
    decisions: String,
    trips: Vec<String>,
}

fn rows() -> Vec<Row> {
    let readme = include_str!("../../../README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| `ratelimit-"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        Row {
            place: cells[1].to_owned(),
            decisions: cells[2].to_owned(),
            trips: cells[3..6].iter().map(|cell| (*cell).to_owned()).collect(),
        }
    })
    .collect()
}

#[tokio::test]
async fn the_table_of_stores_says_what_the_stores_declare() {
    let redis = |url| RedisStore::lazy(RedisConfig::from_url(url).unwrap()).unwrap().promises().decisions;
    let stores: Vec<(&str, Decisions, bool)> = vec![
        ("this process", MemoryStore::new().promises().decisions, false),
        (
            "Redis, Valkey, also behind [Sentinel](docs/redis.md#sentinel)",
            redis("redis+sentinel://127.0.0.1:1/limits"),
            true,
        ),
        ("Redis Cluster", redis("redis+cluster://127.0.0.1:1"), true),
        (
            "PostgreSQL",
            PostgresStore::lazy(PostgresConfig::from_url("postgres://me@127.0.0.1:1/db").unwrap())
                .unwrap()
                .promises()
                .decisions,
            true,
        ),
        (
            "Memcached, one or several",
            MemcachedStore::lazy(MemcachedConfig::from_url("memcached://127.0.0.1:1").unwrap())
                .unwrap()
                .promises()
                .decisions,
            true,
        ),
    ];
    let rows = rows();
    assert_eq!(rows.len(), stores.len());
    for (row, (place, decisions, is_remote)) in rows.iter().zip(stores) {
        assert_eq!(row.place, place);
        let (word, trips) = match (decisions, is_remote) {
            (_, false) => ("exact", ["0", "0", "0"]),
            (Decisions::Exact, true) => ("exact", ["1", "1", "1"]),
            (Decisions::ExactPerKey, true) => ("exact for all limits of one key ", ["1", "1", "1"]),
            (Decisions::Conservative, true) => ("conservative: never one too many", ["1", "2", "2"]),
            (other, true) => panic!("the table has no words for {other:?}"),
        };
        let says_it =
            if word.ends_with(' ') { row.decisions.starts_with(word) } else { row.decisions == word };
        assert!(says_it, "{place}: {}", row.decisions);
        assert_eq!(row.trips, trips, "{place}");
    }
}
