//! The servers that `--store` may name: which feature has each, and in words what is counted there.

use anyhow::bail;

use crate::fleet::Counting;

/// A kind of server.
struct Server {
    /// What people call it.
    name: &'static str,
    /// The beginnings of its URLs.
    schemes: &'static [&'static str],
    /// The feature of this program that has it.
    feature: &'static str,
    /// Whether this program was built with that feature.
    is_built: bool,
}

const SERVERS: [Server; 3] = [
    Server {
        name: "Redis",
        schemes: &["redis", "valkey", "unix:"],
        feature: "redis",
        is_built: cfg!(feature = "redis"),
    },
    Server {
        name: "Memcached",
        schemes: &["memcached"],
        feature: "memcached",
        is_built: cfg!(feature = "memcached"),
    },
    Server {
        name: "PostgreSQL",
        schemes: &["postgres"],
        feature: "postgres",
        is_built: cfg!(feature = "postgres"),
    },
];

fn named(url: &str) -> Option<&'static Server> {
    SERVERS.iter().find(|server| server.schemes.iter().any(|scheme| url.starts_with(scheme)))
}

/// Fails if the server at `url` needs a feature that this program was built without: the message has the command with it.
pub(crate) fn require(url: &str) -> anyhow::Result<()> {
    match named(url) {
        Some(server) if !server.is_built => bail!("{}", server.advice()),
        _ => Ok(()),
    }
}

impl Server {
    /// Does not repeat the URL, which may contain a password.
    fn advice(&self) -> String {
        let Self { name, feature, .. } = self;
        format!(
            "this program was built without {name}; build it with the feature `{feature}`: \
             cargo run -p api --features {feature} -- --store …"
        )
    }
}

/// Where requests are counted. Does not repeat the URL, which may contain a password.
pub(crate) fn place(url: &str, counting: Counting) -> String {
    let Some(Server { name, .. }) = named(url) else {
        return "in the memory of this process: no other instance sees the counts, and they end with it"
            .to_owned();
    };
    match counting {
        Counting::Straight => {
            format!("in {name}, which is asked for each: all instances on it share the counts")
        }
        Counting::Leased => {
            format!("in {name}, from which this instance claims parts of the quotas in advance")
        }
        Counting::Synced => format!("in the memory of this process, and merged with {name} at each interval"),
        Counting::Replicated => {
            format!(
                "in the memory of this process, and broadcast to the others through {name} at each interval"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SERVERS, named};

    #[test]
    fn each_address_names_the_server_that_it_reaches() {
        let addresses = [
            ("redis://host", "redis"),
            ("rediss+cluster://host", "redis"),
            ("valkey+unix:///socket", "redis"),
            ("unix:///socket", "redis"),
            ("memcached+unix:///socket", "memcached"),
            ("postgresql://host/database", "postgres"),
        ];
        for (url, feature) in addresses {
            assert_eq!(named(url).map(|server| server.feature), Some(feature), "{url}");
        }
        for url in ["memory:", "memory?max_keys=7", "mongodb://host", ""] {
            assert!(named(url).is_none(), "{url}");
        }
    }

    #[test]
    fn the_advice_is_a_command_with_the_feature() {
        for server in &SERVERS {
            let command = format!("cargo run -p api --features {} -- --store …", server.feature);
            assert!(server.advice().ends_with(&command), "{}", server.advice());
        }
    }
}
