//! The stores that the suite runs on.

use anyhow::{Result, bail};

/// A store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// The crate whose `tests/conformance.rs` knows it.
    pub(crate) package: &'static str,
    pub(crate) about: &'static str,
}

const fn target(name: &'static str, package: &'static str, about: &'static str) -> Target {
    Target { name, package, about }
}

/// All of them; those of one crate stand together.
pub(crate) const TARGETS: &[Target] = &[
    target("memory", "ratelimit-memory", "the store in this process"),
    target("memory-erased", "ratelimit-memory", "the same behind Arc<dyn DynCounterStore>"),
    target("memory-timeout", "ratelimit-memory", "the same under Timeout"),
    target("memory-batched", "ratelimit-memory", "the same under Batched"),
    target("memory-refusals", "ratelimit-memory", "the same under RefusalCache"),
    target("leased", "ratelimit-cluster", "leases on memory, in their one-node form"),
    target("leased-redis", "ratelimit-cluster", "leases on one Redis server, in their one-node form"),
    target("synced", "ratelimit-cluster", "counting in step on memory, in its one-node form"),
    target("synced-redis", "ratelimit-cluster", "counting in step on one Redis server, in its one-node form"),
    target("replicated", "ratelimit-cluster", "a node that tells others what it counts, by itself"),
    target("redis", "ratelimit-redis", "one Redis server"),
    target("redis-direct", "ratelimit-redis", "the same, each check a call of its own"),
    target("redis-server-clock", "ratelimit-redis", "one Redis server that decides by its own clock"),
    target("redis-cluster", "ratelimit-redis", "Redis Cluster of three masters"),
    target("postgres", "ratelimit-postgres", "one PostgreSQL server, an unlogged table"),
    target("postgres-logged", "ratelimit-postgres", "the same with a table that survives a crash"),
    target("postgres-server-clock", "ratelimit-postgres", "the same, deciding by the server's clock"),
    target("postgres-pool", "ratelimit-postgres", "the same by the connections of the program's own pool"),
    target("memcached", "ratelimit-memcached", "one Memcached server"),
    target("memcached-pair", "ratelimit-memcached", "two Memcached servers that share the keys"),
];

/// The name of the test in each crate.
pub(crate) const TEST: &str = "conformance";

/// The targets called `names`, by crate; all of them if there are no names.
pub(crate) fn by_package(names: &[String]) -> Result<Vec<(&'static str, Vec<Target>)>> {
    if let Some(unknown) = names.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name)) {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no target {unknown:?}; known are {}", known.join(", "));
    }
    let mut groups: Vec<(&str, Vec<Target>)> = Vec::new();
    for target in
        TARGETS.iter().filter(|target| names.is_empty() || names.iter().any(|name| name == target.name))
    {
        match groups.last_mut() {
            Some((package, targets)) if *package == target.package => targets.push(*target),
            _ => groups.push((target.package, vec![*target])),
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, by_package};

    #[test]
    fn an_unknown_target_is_told_the_known_ones() {
        let error = by_package(&["memroy".to_owned()]).expect_err("misspelt").to_string();
        assert!(error.contains("\"memroy\"") && error.contains("memory-erased, "), "{error}");
    }

    #[test]
    fn no_name_means_all_and_no_crate_is_run_twice() {
        let groups = by_package(&[]).expect("all");
        let count: usize = groups.iter().map(|(_, targets)| targets.len()).sum();
        assert_eq!(count, TARGETS.len());
        let packages: std::collections::BTreeSet<&str> = groups.iter().map(|(package, _)| *package).collect();
        assert_eq!(packages.len(), groups.len(), "the targets of a crate do not stand together");
    }
}
