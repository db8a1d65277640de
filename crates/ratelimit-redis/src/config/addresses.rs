//! Which servers an address names.

use ratelimit_core::StoreError;
use redis::ConnectionInfo;

use crate::config::address::info;
use crate::config::sentinel::Address;
use crate::error::ERRORS;

/// The servers that an address names.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(Box<ConnectionInfo>),
    /// The primary that sentinels watch.
    Sentinel(Box<Address>),
    /// Some nodes of a cluster, at least one.
    Cluster(Vec<ConnectionInfo>),
}

impl Servers {
    /// Parses an address with no options other than those of the servers.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        if url.contains("+sentinel://") {
            return Ok(Self::Sentinel(Box::new(Address::read(url)?)));
        }
        if url.contains("+cluster://") {
            return nodes(url)?.iter().map(|node| info(node)).collect::<Result<_, _>>().map(Self::Cluster);
        }
        Ok(Self::One(Box::new(info(url)?)))
    }
}

/// An address for each node of `redis+cluster://user:password@a,b/0`, in the form that the client library accepts.
fn nodes(url: &str) -> Result<Vec<String>, StoreError> {
    let parts = url.split_once("+cluster://").filter(|(scheme, _)| matches!(*scheme, "redis" | "rediss"));
    let (scheme, rest) = parts.ok_or_else(|| {
        ERRORS.misconfigured("the address of a cluster begins with redis+cluster:// or rediss+cluster://")
    })?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (log_in, nodes) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    Ok(nodes.split(',').map(|node| format!("{scheme}://{log_in}{}{path}", node.trim())).collect())
}

#[cfg(test)]
mod tests {
    use ratelimit_core::ErrorKind;

    use super::*;

    #[test]
    fn the_nodes_of_a_cluster_share_log_in_and_options() {
        for (url, expected) in [
            ("redis+cluster://u:p@a:1,b:2", &["redis://u:p@a:1", "redis://u:p@b:2"][..]),
            ("redis+cluster://a", &["redis://a"]),
            (
                "rediss+cluster://a, [::1]:7/?protocol=resp3",
                &["rediss://a/?protocol=resp3", "rediss://[::1]:7/?protocol=resp3"],
            ),
        ] {
            assert_eq!(nodes(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn the_scheme_selects_the_kind_of_servers() {
        let parse = |url| Servers::parse(url).unwrap_or_else(|failure| panic!("{url}: {failure:?}"));
        assert!(matches!(parse("redis://a:1/2"), Servers::One(_)));
        assert!(matches!(parse("redis+unix:///tmp/a,b?db=2"), Servers::One(_)));
        assert!(matches!(parse("redis+sentinel://a,b/limits?sentinel_user=u"), Servers::Sentinel(_)));
        assert!(matches!(parse("redis+cluster://u:p@a:1,b:2"), Servers::Cluster(nodes) if nodes.len() == 2));
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for (wrong, reported) in [
            ("redis://:secret@a,b/", "redis+cluster://"),
            ("http+cluster://:secret@a", "begins with"),
            ("redis+cluster://:secret@a,,b", "not valid"),
            ("redis+cluster://", "not valid"),
            ("secret", "not valid"),
        ] {
            let failure = Servers::parse(wrong).err().unwrap_or_else(|| panic!("{wrong} is read"));
            assert_eq!(failure.kind(), ErrorKind::Misconfigured, "{wrong}");
            let text = failure.to_string();
            assert!(text.contains(reported) && !text.contains("secret"), "{text}");
        }
    }
}
