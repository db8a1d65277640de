//! The nodes of a cluster: which slots each of them serves, and how the store finds that out.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use redis::ConnectionInfo;

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::ERRORS;
use crate::servers::dialer::Dialer;
use crate::servers::discovery::{query_all, survey_deadline};
use crate::servers::server::Server;
use crate::servers::topology::ClusterView;
use crate::wire::keys::SLOTS;

/// How many nodes are asked for their view concurrently.
const ASKED: usize = 8;

/// The nodes of a cluster.
pub(crate) struct Nodes {
    seeds: Vec<Arc<Server>>,
    /// Connects to the other nodes.
    dialer: Dialer,
    timeout: Duration,
    connections: usize,
    map: RwLock<SlotMap>,
}

/// Which node serves which slot.
#[derive(Default)]
struct SlotMap {
    /// By slot.
    owners: Vec<Option<Arc<Server>>>,
    /// By address, replicas too.
    nodes: HashMap<String, Arc<Server>>,
    /// The place among `nodes` at which the next survey begins.
    turn: usize,
}

impl Nodes {
    pub(crate) fn new(nodes: &[ConnectionInfo], config: &RedisConfig) -> Result<Self, StoreError> {
        let Some(first) = nodes.first() else {
            return Err(ERRORS.misconfigured("the address contains no node"));
        };
        // One for all nodes, which share log-in and certificates: reading certificates takes long.
        let dialer = Dialer::new(first.addr(), first.redis_settings().clone(), config)?;
        let places = nodes.iter().filter_map(|node| NodeAddress::of_address(&node.addr().to_string()));
        Ok(Self {
            seeds: places.map(|place| Arc::new(Server::new(dialer.towards(&place), 1))).collect(),
            dialer,
            timeout: config.timeout,
            connections: config.connections,
            map: RwLock::default(),
        })
    }

    /// The addresses that the program gave.
    pub(crate) fn address(&self) -> String {
        self.seeds.iter().map(|seed| seed.address()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Server>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.owners.get(usize::from(slot)).cloned().flatten()
    }

    /// The nodes that serve slots.
    pub(crate) fn serving(&self) -> Vec<Arc<Server>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let serves = |node: &&Arc<Server>| map.owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, node));
        map.nodes.values().filter(serves).cloned().collect()
    }

    /// The node at this address.
    pub(crate) fn at(&self, place: &NodeAddress) -> Arc<Server> {
        self.map.write().unwrap_or_else(PoisonError::into_inner).node(self, place)
    }

    /// The node at this address, which serves the slot from now on.
    pub(crate) fn moved(&self, slot: u16, place: &NodeAddress) -> Arc<Server> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let node = map.node(self, place);
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = Some(node.clone());
        }
        node
    }

    /// Finds out from the nodes which of them serves which slot: from the known nodes, or from those in the address if none
    /// of these answers.
    pub(crate) async fn survey(self: Arc<Self>) -> Result<(), StoreError> {
        let known = self.next_to_ask();
        let queried: Vec<_> = known.iter().map(|node| node.address().to_owned()).collect();
        let mut outcome = self.best_view(known).await;
        if outcome.is_err() {
            let seeds =
                self.seeds.iter().filter(|seed| !queried.iter().any(|queried| queried == seed.address()));
            let view = self.best_view(seeds.cloned().collect()).await;
            // The failure of a known node says more than that of a seed.
            if view.is_ok() || queried.is_empty() {
                outcome = view;
            }
        }
        outcome.map(|view| self.take_over(&view))
    }

    /// Some of the known nodes, different ones each time.
    fn next_to_ask(&self) -> Vec<Arc<Server>> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.turn = (map.turn + ASKED) % map.nodes.len().max(1);
        map.nodes.values().cycle().skip(map.turn).take(map.nodes.len().min(ASKED)).cloned().collect()
    }

    /// The most recent view of the cluster among those of these nodes. Does not wait for nodes that are down or frozen once
    /// one has answered.
    async fn best_view(&self, nodes: Vec<Arc<Server>>) -> Result<ClusterView, StoreError> {
        let deadline = survey_deadline(self.timeout);
        let query = |node: Arc<Server>| async move { ClusterView::of(&node, deadline).await };
        let mut best: Result<ClusterView, _> =
            Err(ERRORS.of(ErrorKind::Unreachable, "no node of the cluster is known"));
        for answer in query_all(nodes, query, deadline).await {
            let is_better = match (&answer, &best) {
                (Ok(view), Ok(other)) => view.rank() > other.rank(),
                (_, best) => best.is_err(),
            };
            if is_better {
                best = answer;
            }
        }
        best
    }

    fn take_over(&self, view: &ClusterView) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = SlotMap { owners: vec![None; SLOTS], nodes: HashMap::new(), turn: map.turn };
        std::mem::swap(&mut new.nodes, &mut map.nodes);
        let mut present = HashMap::new();
        for (range, place) in &view.shares {
            let node = new.node(self, place);
            let slots = usize::from(*range.start())..=usize::from(*range.end());
            if let Some(owners) = new.owners.get_mut(slots) {
                owners.fill(Some(node.clone()));
            }
            present.insert(node.address().to_owned(), node);
        }
        for place in &view.others {
            let node = new.node(self, place);
            present.insert(node.address().to_owned(), node);
        }
        new.nodes = present;
        *map = new;
    }
}

impl SlotMap {
    /// The node at this address; a new one if it is unknown or was known without the name in its certificate.
    fn node(&mut self, nodes: &Nodes, place: &NodeAddress) -> Arc<Server> {
        let dialer = nodes.dialer.towards(place);
        if let Some(node) = self.nodes.get(dialer.address()).filter(|node| node.is_at(place)) {
            return node.clone();
        }
        let node = Arc::new(Server::new(dialer, nodes.connections));
        self.nodes.insert(node.address().to_owned(), node.clone());
        node
    }
}
