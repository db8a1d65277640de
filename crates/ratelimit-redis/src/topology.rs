//! Which node of a cluster serves which slot, as a node tells it.

use std::ops::RangeInclusive;

use ratelimit_core::ErrorKind;
use redis::{Value, cmd};
use tokio::time::Instant;

use crate::error::Failure;
use crate::link::Lines;

/// A node's host and port.
pub(crate) type Place = (String, u16);

/// What one node thinks of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Nodes that saw the same cluster agree on it; after a failover it is higher.
    epoch: u64,
    /// Whether the node counts itself to a cluster that works.
    sound: bool,
    /// Slots and who serves them.
    pub(crate) shares: Vec<(RangeInclusive<u16>, Place)>,
    /// Nodes that serve no slot now: replicas.
    pub(crate) others: Vec<Place>,
}

impl View {
    /// How far it is to be trusted: a node that was cut off from the others is behind.
    pub(crate) fn rank(&self) -> (bool, u64) {
        (self.sound, self.epoch)
    }

    /// Asks a node.
    pub(crate) async fn of(node: &Lines, deadline: Instant) -> Result<Self, Failure> {
        let failed = |error| Failure::from_redis(error).at(node.address());
        let slots = node.line().send(cmd("CLUSTER").arg("SLOTS"), false, deadline).await?.map_err(failed)?;
        // A user that may not ask this gets along without.
        let info = node.line().send(cmd("CLUSTER").arg("INFO"), false, deadline).await?.unwrap_or(Value::Nil);
        let view = Self::read(&slots, &info, &split_address(node.address()).unwrap_or_default().0);
        let empty = || Failure::new(ErrorKind::Unreachable, "it knows of no node that serves a slot");
        view.ok_or_else(|| Failure::strange_reply().at(node.address()))
            .and_then(|view| if view.shares.is_empty() { Err(empty().at(node.address())) } else { Ok(view) })
    }

    fn read(slots: &Value, info: &Value, asked: &str) -> Option<Self> {
        let mut view = Self { epoch: 0, sound: false, shares: Vec::new(), others: Vec::new() };
        for share in list(slots)? {
            let [Value::Int(from), Value::Int(to), master, replicas @ ..] = list(share)? else {
                return None;
            };
            let range = u16::try_from(*from).ok()?..=u16::try_from(*to).ok()?;
            view.shares.push((range, place(master, asked)?));
            view.others.extend(replicas.iter().filter_map(|replica| place(replica, asked)));
        }
        for line in text(info).unwrap_or_default().lines() {
            match line.split_once(':') {
                Some(("cluster_state", state)) => view.sound = state == "ok",
                Some(("cluster_current_epoch", epoch)) => view.epoch = epoch.parse().unwrap_or_default(),
                _ => {}
            }
        }
        Some(view)
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A node as `CLUSTER SLOTS` tells it. One without a name is to be reached where the answer came from.
fn place(node: &Value, asked: &str) -> Option<Place> {
    let [host, Value::Int(port), ..] = list(node)? else {
        return None;
    };
    let host = text(host).filter(|host| !host.is_empty() && *host != "?").unwrap_or(asked);
    Some((host.to_owned(), u16::try_from(*port).ok()?))
}

/// Host and port; the host may be an IPv6 address.
pub(crate) fn split_address(address: &str) -> Option<Place> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id")])
    }

    #[test]
    fn a_view_is_read_as_the_node_tells_it() {
        let share = |from, to, nodes: Vec<Value>| {
            Value::Array([Value::Int(from), Value::Int(to)].into_iter().chain(nodes).collect())
        };
        let slots = Value::Array(vec![
            share(0, 5, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            share(6, 6, vec![node(Value::Nil, 3)]),
            share(7, 16_383, vec![node(bulk("?"), 4)]),
        ]);
        let info = bulk("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let view = View::read(&slots, &info, "asked").unwrap();
        let place = |host: &str, port| (host.to_owned(), port);
        let shares = [(0..=5, place("a", 1)), (6..=6, place("asked", 3)), (7..=16_383, place("asked", 4))];
        assert_eq!(
            (view.rank(), view.shares, view.others),
            ((true, 7), shares.to_vec(), vec![place("b", 2)])
        );
        assert!(View::read(&slots, &Value::Nil, "asked").is_some_and(|view| view.rank() == (false, 0)));
        for wrong in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![share(0, 1, vec![])])] {
            assert!(View::read(&wrong, &info, "asked").is_none(), "{wrong:?}");
        }
        let far = Value::Array(vec![share(0, 70_000, vec![node(bulk("a"), 1)])]);
        assert!(View::read(&far, &info, "asked").is_none());
    }

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(split_address("host:7000"), Some(("host".to_owned(), 7000)));
        assert_eq!(split_address("::1:7000"), Some(("::1".to_owned(), 7000)));
        assert_eq!(split_address("[::1]:7000"), Some(("::1".to_owned(), 7000)));
        assert_eq!(split_address("host"), None);
    }
}
