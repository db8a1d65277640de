//! The readme's table of stores, held against what the stores declare.
//!
//! How many trips follow from what is declared is the suite's rule, which its cases `trips/…` prove on every store by
//! counting them in a proxy.

use ratelimit_core::{CounterStore, Decisions};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};
use ratelimit_memory::MemoryStore;
use ratelimit_postgres::{PostgresConfig, PostgresStore};
use ratelimit_redis::{RedisConfig, RedisStore};

/// What the table says of a store: where it is, its decisions, and the trips.
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
    let redis = RedisConfig::new("redis://127.0.0.1:1");
    let stores: Vec<(&str, Decisions, bool)> = vec![
        ("this process", MemoryStore::new().promises().decisions, false),
        ("Redis, Valkey", RedisStore::lazy(redis.clone()).unwrap().promises().decisions, true),
        ("Redis Cluster", RedisStore::lazy_cluster(redis).unwrap().promises().decisions, true),
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
            MemcachedStore::lazy(MemcachedConfig::new("memcached://127.0.0.1:1"))
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
            (Decisions::Eventual, true) => ("exact on one node", ["0", "0", "0"]),
        };
        let says_it =
            if word.ends_with(' ') { row.decisions.starts_with(word) } else { row.decisions == word };
        assert!(says_it, "{place}: {}", row.decisions);
        assert_eq!(row.trips, trips, "{place}");
    }
}
