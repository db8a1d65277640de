//! The targets of the conformance suite.

use anyhow::{Result, bail};

/// A store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// The crate whose `tests/conformance.rs` knows the target.
    pub(crate) package: &'static str,
    pub(crate) about: &'static str,
    pub(crate) runs: Runs,
}

/// When a target runs that is not named: each of these includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runs {
    /// With each `cargo xtask test`.
    Always,
    /// With `cargo xtask conformance` and `cargo xtask test --all --usual-targets`: for each change.
    EachChange,
    /// With `--all`: each night.
    Nightly,
}

const fn target(name: &'static str, package: &'static str, about: &'static str) -> Target {
    Target { name, package, about, runs: Runs::Nightly }
}

const fn usual(name: &'static str, package: &'static str, about: &'static str) -> Target {
    Target { runs: Runs::Always, ..target(name, package, about) }
}

/// All of them.
pub(crate) const TARGETS: &[Target] = &[
    usual("memory", "ratelimit-memory", "the store in this process"),
    target("memory-erased", "ratelimit-memory", "the same behind Arc<dyn DynCounterStore>"),
    target("memory-at-once", "ratelimit-memory", "its methods that do not wait"),
    target("memory-timeout", "ratelimit-memory", "the same under Timeout"),
    target("memory-batched", "ratelimit-memory", "the same under Batched"),
    target("memory-breaker", "ratelimit-memory", "the same under Breaker"),
    target("memory-resilience", "ratelimit-memory", "the same under Resilience, with a fallback"),
    target("memory-fallback", "ratelimit-memory", "the same as the fallback of a store that is away"),
    target("memory-refusals", "ratelimit-memory", "the same under RefusalCache"),
    usual("leased", "ratelimit-cluster", "leases on memory, in their one-node form"),
    target("leased-redis", "ratelimit-cluster", "leases on one Redis server, in their one-node form"),
    usual("synced", "ratelimit-cluster", "counting in step on memory, in its one-node form"),
    target("synced-redis", "ratelimit-cluster", "counting in step on one Redis server, in its one-node form"),
    usual("replicated", "ratelimit-cluster", "a node that tells others what it counts, by itself"),
    usual("redis", "ratelimit-redis", "one Redis server"),
    target("redis-direct", "ratelimit-redis", "the same, each check a call of its own"),
    target("redis-server-clock", "ratelimit-redis", "one Redis server that decides by its own clock"),
    Target {
        runs: Runs::EachChange,
        ..target("redis-cluster", "ratelimit-redis", "Redis Cluster of three masters")
    },
    target("redis-6.2", "ratelimit-redis", "one server of Redis 6.2"),
    target("redis-8", "ratelimit-redis", "one server of Redis 8"),
    target("valkey-9", "ratelimit-redis", "one server of Valkey 9"),
    target("redis-connection", "ratelimit-redis", "one Redis server by the program's own connection"),
    target("redis-connection-manager", "ratelimit-redis", "the same by its connection manager"),
    target("redis-cluster-connection", "ratelimit-redis", "Redis Cluster by the program's own connection"),
    target("redis-pool", "ratelimit-redis", "one Redis server by the program's own pool"),
    target("redis-cluster-pool", "ratelimit-redis", "Redis Cluster by the program's own pool"),
    target("redis-sentinel", "ratelimit-redis", "a primary and a replica that three sentinels watch"),
    target("redis-sentinel-pool", "ratelimit-redis", "the same by the program's own pool"),
    target("redis-tls", "ratelimit-redis", "one Redis server over TLS, each check a call of its own"),
    target(
        "redis-cluster-tls",
        "ratelimit-redis",
        "Redis Cluster over TLS with client certificates, each check a call of its own",
    ),
    usual("postgres", "ratelimit-postgres", "one PostgreSQL server, an unlogged table"),
    target("postgres-logged", "ratelimit-postgres", "the same with a table that survives a crash"),
    target("postgres-server-clock", "ratelimit-postgres", "the same, deciding by the server's clock"),
    target("postgres-pool", "ratelimit-postgres", "the same by the connections of the program's own pool"),
    target("postgres-unix", "ratelimit-postgres", "the same over a Unix socket"),
    target("postgres-tls", "ratelimit-postgres", "the same over TLS, with a certificate for the client"),
    target("postgres-pgbouncer", "ratelimit-postgres", "the same behind PgBouncer in transaction mode"),
    target("postgres-pgbouncer-pool", "ratelimit-postgres", "the program's own pool behind PgBouncer"),
    target("postgres-16", "ratelimit-postgres", "one server of PostgreSQL 16"),
    target("postgres-17", "ratelimit-postgres", "one server of PostgreSQL 17"),
    target("postgres-18", "ratelimit-postgres", "one server of PostgreSQL 18"),
    usual("memcached", "ratelimit-memcached", "one Memcached server"),
    target("memcached-pair", "ratelimit-memcached", "two Memcached servers that share the keys"),
    target(
        "memcached-ketama",
        "ratelimit-memcached",
        "three that share the keys by the ring of other clients",
    ),
    target("memcached-auth", "ratelimit-memcached", "one Memcached server that wants a log-in"),
    target("memcached-unix", "ratelimit-memcached", "one Memcached server at a Unix socket"),
    target(
        "memcached-tls",
        "ratelimit-memcached",
        "one Memcached server that speaks TLS and wants a certificate",
    ),
    target(
        "memcached-plain",
        "ratelimit-memcached",
        "one Memcached server, by the plain protocol through a pool",
    ),
    target("memcached-proxy", "ratelimit-memcached", "the same through twemproxy, before two servers"),
];

/// The name of the test in each crate.
pub(crate) const TEST: &str = "conformance";

/// The targets with these names; without names, those that run then.
pub(crate) fn chosen(names: &[String], unnamed: Runs) -> Result<Vec<Target>> {
    if let Some(unknown) = names.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name)) {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no target {unknown:?}; the targets are {}", known.join(", "));
    }
    let is_chosen = |target: &&Target| match names {
        [] => target.runs <= unnamed,
        names => names.iter().any(|name| name == target.name),
    };
    Ok(TARGETS.iter().filter(is_chosen).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::{Runs, TARGETS, chosen};

    #[test]
    fn errors_about_unknown_targets_list_the_known_ones() {
        let error = chosen(&["memroy".to_owned()], Runs::Always).expect_err("misspelt").to_string();
        assert!(error.contains("\"memroy\"") && error.contains("memory-erased, "), "{error}");
    }

    #[test]
    fn no_names_select_the_targets_of_that_run() {
        let count = |names: &[String], unnamed| chosen(names, unnamed).expect("targets").len();
        assert_eq!(count(&[], Runs::Nightly), TARGETS.len());
        assert!(count(&[], Runs::Always) < count(&[], Runs::EachChange));
        assert_eq!(count(&["valkey-9".to_owned()], Runs::Always), 1);
    }
}
