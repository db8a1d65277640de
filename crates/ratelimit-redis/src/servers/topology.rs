//! Which node of a cluster serves which slot, as reported by a node.

use std::ops::RangeInclusive;

use ratelimit_core::{ErrorKind, StoreError};
use redis::{Value, cmd};
use tokio::time::Instant;

use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};
use crate::servers::server::Server;
use crate::wire::value::{list, text};

/// The cluster as seen by one node.
#[derive(Clone, Debug)]
pub(crate) struct ClusterView {
    /// The cluster's epoch: nodes with the same view agree on it, and a failover increases it.
    epoch: u64,
    /// Whether the node considers the cluster to be working.
    sound: bool,
    /// Slots and the nodes that serve them.
    pub(crate) shares: Vec<(RangeInclusive<u16>, NodeAddress)>,
    /// Nodes that serve no slot now: replicas.
    pub(crate) others: Vec<NodeAddress>,
}

impl ClusterView {
    /// Orders views by how up to date they are: a node that was cut off from the others has an older epoch.
    pub(crate) fn rank(&self) -> (bool, u64) {
        (self.sound, self.epoch)
    }

    /// Asks a node.
    pub(crate) async fn of(node: &Server, deadline: Instant) -> Result<Self, StoreError> {
        let slots = node.send(cmd("CLUSTER").arg("SLOTS"), deadline).await?;
        // A user without permission for `CLUSTER INFO` works as well.
        let info =
            node.connection().send(cmd("CLUSTER").arg("INFO"), false, deadline).await?.unwrap_or(Value::Nil);
        let own_host = NodeAddress::of_address(node.address()).map(|place| place.host).unwrap_or_default();
        let view = Self::read(&slots, &info, &own_host);
        let empty = || {
            ERRORS.of(ErrorKind::Unreachable, "it reports no node that serves a slot; is the cluster set up?")
        };
        view.ok_or_else(|| error::strange_reply().at(node.address()))
            .and_then(|view| if view.shares.is_empty() { Err(empty().at(node.address())) } else { Ok(view) })
    }

    fn read(slots: &Value, info: &Value, own_host: &str) -> Option<Self> {
        let mut view = Self { epoch: 0, sound: false, shares: Vec::new(), others: Vec::new() };
        for share in list(slots)? {
            let [Value::Int(from), Value::Int(to), master, replicas @ ..] = list(share)? else {
                return None;
            };
            let range = u16::try_from(*from).ok()?..=u16::try_from(*to).ok()?;
            view.shares.push((range, place(master, own_host)?));
            view.others.extend(replicas.iter().filter_map(|replica| place(replica, own_host)));
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

/// The host name of a node, from the metadata that `CLUSTER SLOTS` reports since Redis 7.
fn announced_name(ways: &Value) -> Option<&str> {
    let is_name = |key: &Value| text(key) == Some("hostname");
    match ways {
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| is_name(&pair[0])).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).and_then(|(_, name)| text(name)),
        _ => None,
    }
}

/// A node as `CLUSTER SLOTS` reports it. Without a host, it is at the address that sent the reply.
fn place(node: &Value, own_host: &str) -> Option<NodeAddress> {
    let [host, Value::Int(port), rest @ ..] = list(node)? else {
        return None;
    };
    let known = |text: &&str| !text.is_empty() && *text != "?";
    let host = text(host).filter(known).unwrap_or(own_host);
    let name = rest.get(1).and_then(announced_name).filter(known).filter(|name| *name != host);
    let name = name.map(str::to_owned);
    Some(NodeAddress { host: host.to_owned(), port: u16::try_from(*port).ok()?, name })
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

    /// A node that announces a name, as reported by Redis 7.
    fn named(port: i64, name: &str) -> Value {
        let names = Value::Array(vec![bulk("hostname"), bulk(name)]);
        Value::Array(vec![bulk("1.2.3.4"), Value::Int(port), bulk("id"), names])
    }

    #[test]
    fn cluster_views_are_parsed() {
        let share = |from, to, nodes: Vec<Value>| {
            Value::Array([Value::Int(from), Value::Int(to)].into_iter().chain(nodes).collect())
        };
        let slots = Value::Array(vec![
            share(0, 5, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            share(6, 6, vec![node(Value::Nil, 3)]),
            share(7, 8, vec![node(bulk("?"), 4)]),
            share(9, 16_383, vec![named(5, "name"), named(6, "")]),
        ]);
        let info = bulk("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let view = ClusterView::read(&slots, &info, "asked").unwrap();
        let place = |host: &str, port| NodeAddress { host: host.to_owned(), port, name: None };
        let named = NodeAddress { name: Some("name".to_owned()), ..place("1.2.3.4", 5) };
        let shares = [
            (0..=5, place("a", 1)),
            (6..=6, place("asked", 3)),
            (7..=8, place("asked", 4)),
            (9..=16_383, named),
        ];
        assert_eq!(
            (view.rank(), view.shares, view.others),
            ((true, 7), shares.to_vec(), vec![place("b", 2), place("1.2.3.4", 6)])
        );
        assert!(
            ClusterView::read(&slots, &Value::Nil, "asked").is_some_and(|view| view.rank() == (false, 0))
        );
        for wrong in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![share(0, 1, vec![])])] {
            assert!(ClusterView::read(&wrong, &info, "asked").is_none(), "{wrong:?}");
        }
        let far = Value::Array(vec![share(0, 70_000, vec![node(bulk("a"), 1)])]);
        assert!(ClusterView::read(&far, &info, "asked").is_none());
    }
}
