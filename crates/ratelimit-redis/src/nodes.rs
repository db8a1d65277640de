//! The nodes of a cluster, who of them serves which slot, and how that is found out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ratelimit_core::ErrorKind;
use redis::RedisConnectionInfo;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::connection::Dialer;
use crate::error::Failure;
use crate::keys::SLOTS;
use crate::link::{Lines, info};
use crate::stream::Opener;
use crate::topology::{Place, View};

/// What was learned so recently is not asked again.
const FRESH: Duration = Duration::from_millis(100);

/// How long a node may take to say what it thinks of the cluster, when the time limit of a call is shorter.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the views of further nodes are waited for when there is one.
const GRACE: Duration = Duration::from_millis(50);

/// How many nodes are asked for their view at once.
const ASKED: usize = 8;

/// The nodes of a cluster.
pub(crate) struct Nodes {
    seeds: Vec<Arc<Lines>>,
    settings: RedisConnectionInfo,
    opener: Opener,
    timeout: Duration,
    connections: usize,
    map: RwLock<Map>,
    surveyed: Mutex<Option<Instant>>,
}

/// Who serves which slot.
#[derive(Default)]
struct Map {
    /// By slot.
    owners: Vec<Option<Arc<Lines>>>,
    /// By address, replicas too.
    nodes: HashMap<String, Arc<Lines>>,
    /// Where the next survey begins.
    turn: usize,
}

impl Nodes {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, Failure> {
        let urls = config.urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = urls.first() else {
            return Err(Failure::new(ErrorKind::Unsupported, "give the address of at least one node"));
        };
        let seed = |url: &redis::ConnectionInfo| {
            let opener = Opener::new(url.addr(), config.authorities.as_deref())?;
            let dialer = Dialer::new(url.redis_settings().clone(), opener, config.timeout);
            Ok(Arc::new(Lines::new(dialer, 1)))
        };
        let seeds = urls.iter().map(seed).collect::<Result<_, Failure>>();
        Ok(Self {
            seeds: seeds?,
            settings: first.redis_settings().clone(),
            opener: Opener::new(first.addr(), config.authorities.as_deref())?,
            timeout: config.timeout,
            connections: config.connections,
            map: RwLock::default(),
            surveyed: Mutex::default(),
        })
    }

    /// Where it was said to be.
    pub(crate) fn address(&self) -> String {
        self.seeds.iter().map(|seed| seed.address()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Lines>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.owners.get(usize::from(slot)).cloned().flatten()
    }

    /// Those that serve slots.
    pub(crate) fn serving(&self) -> Vec<Arc<Lines>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let serves = |node: &&Arc<Lines>| map.owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, node));
        map.nodes.values().filter(serves).cloned().collect()
    }

    /// The node at this place.
    pub(crate) fn at(&self, place: &Place) -> Arc<Lines> {
        self.map.write().unwrap_or_else(PoisonError::into_inner).node(self, place)
    }

    /// The node at this place, which serves the slot from now on.
    pub(crate) fn moved(&self, slot: u16, place: &Place) -> Arc<Lines> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let node = map.node(self, place);
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = Some(node.clone());
        }
        node
    }

    pub(crate) fn is_fresh(&self) -> bool {
        let surveyed = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner);
        surveyed.is_some_and(|then| then.elapsed() < FRESH)
    }

    /// Asks who serves what.
    pub(crate) async fn survey(self: Arc<Self>) -> Result<(), Failure> {
        let known = self.next_to_ask();
        let asked: Vec<_> = known.iter().map(|node| node.address().to_owned()).collect();
        let mut outcome = self.best_view(known).await;
        if outcome.is_err() {
            let seeds = self.seeds.iter().filter(|seed| !asked.iter().any(|asked| asked == seed.address()));
            outcome = self.best_view(seeds.cloned().collect()).await.or(outcome);
        }
        let outcome = outcome.map(|view| self.take_over(&view));
        *self.surveyed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        outcome
    }

    /// Some of the known nodes, others each time.
    fn next_to_ask(&self) -> Vec<Arc<Lines>> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.turn = (map.turn + ASKED) % map.nodes.len().max(1);
        map.nodes.values().cycle().skip(map.turn).take(map.nodes.len().min(ASKED)).cloned().collect()
    }

    /// The view of the node that knows best. Nodes that are gone or frozen are not waited for.
    async fn best_view(&self, nodes: Vec<Arc<Lines>>) -> Result<View, Failure> {
        let mut deadline = Instant::now() + self.timeout.max(PATIENCE);
        let mut best = Err(Failure::new(ErrorKind::Unreachable, "no node of the cluster is known"));
        let mut asked = JoinSet::new();
        for node in nodes {
            asked.spawn(async move { View::of(&node, deadline).await });
        }
        while let Ok(Some(answer)) = timeout_at(deadline, asked.join_next()).await {
            match (answer, &best) {
                (Ok(Ok(view)), Err(_)) => {
                    best = Ok(view);
                    deadline = Instant::now() + GRACE;
                }
                (Ok(Ok(view)), Ok(other)) if view.rank() > other.rank() => best = Ok(view),
                (Ok(Err(failure)), Err(_)) => best = Err(failure),
                _ => {}
            }
        }
        best
    }

    fn take_over(&self, view: &View) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Map { owners: vec![None; SLOTS], nodes: HashMap::new(), turn: map.turn };
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

impl Map {
    /// The node at this place; a new one if it is not known.
    fn node(&mut self, nodes: &Nodes, (host, port): &Place) -> Arc<Lines> {
        let opener = nodes.opener.towards(host, *port);
        let node = self.nodes.entry(opener.address()).or_insert_with(|| {
            let dialer = Dialer::new(nodes.settings.clone(), opener, nodes.timeout);
            Arc::new(Lines::new(dialer, nodes.connections))
        });
        node.clone()
    }
}
