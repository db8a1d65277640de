//! Redis Cluster: three masters without replicas.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::group::Group;
use crate::resp::Resp;
use crate::server::{Server, ServerError};
use crate::service::{External, Placement, Recipe, Service};
use crate::{Redis, Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "redis-cluster",
    variable: "RATELIMIT_REDIS_CLUSTER_URL",
    image: "redis:7",
    program: "redis-server",
    package: "redis-server",
    wheel: None,
};

/// The first and last slot of each master; together all 16,384 slots.
const SHARES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

/// How long the nodes may take to agree.
const AGREE: Duration = Duration::from_secs(30);

/// A Redis Cluster.
///
/// If it was started here, all of its nodes reported it complete then. The first three nodes were masters; the others, if
/// any, were their replicas in the same order. If it was given by an address, each node named there answered; nothing else
/// was checked.
#[derive(Clone)]
pub struct Cluster {
    nodes: Group,
    /// The options of each node.
    redis: Redis,
}

impl Testbed {
    /// Finds or starts a Redis Cluster of three masters; uses the nodes in the environment if set.
    ///
    /// # Errors
    /// If no cluster could be found or started.
    pub async fn redis_cluster(&self) -> Result<Cluster, Unavailable> {
        self.cluster_of(SHARES.len(), Redis::default()).await
    }

    /// Starts a Redis Cluster of three masters with these options; does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn redis_cluster_with(&self, redis: Redis) -> Result<Cluster, Unavailable> {
        let testbed = self.starting(&RECIPE);
        let testbed = if redis.tls.is_some() { testbed.as_process() } else { testbed };
        testbed.cluster_of(SHARES.len(), redis).await
    }

    /// Starts a Redis Cluster of three masters with a replica each, which replaces its master a few seconds after a
    /// failure. Does not use an address in the environment.
    ///
    /// # Errors
    /// If it could not be started.
    pub async fn redis_cluster_with_replicas(&self) -> Result<Cluster, Unavailable> {
        self.starting(&RECIPE).cluster_of(2 * SHARES.len(), Redis::default()).await
    }

    async fn cluster_of(&self, count: usize, redis: Redis) -> Result<Cluster, Unavailable> {
        let services: Vec<Arc<dyn Service>> =
            (0..count).map(|_| Arc::new(Node(redis.clone())) as Arc<dyn Service>).collect();
        let cluster = Cluster { nodes: Group::new(self.obtain(&RECIPE, &services).await?), redis };
        let formed = async {
            if cluster.is_controlled() {
                cluster.form().await?;
            }
            cluster.whole().await?;
            if cluster.is_controlled() { cluster.replicate().await } else { Ok(()) }
        };
        match formed.await {
            Ok(()) => Ok(cluster),
            Err(reason) => Err(Unavailable {
                name: RECIPE.name,
                tried: vec![("cluster", reason)],
                advice: "Look at the servers' logs, or name a cluster in RATELIMIT_REDIS_CLUSTER_URL."
                    .to_owned(),
            }),
        }
    }
}

impl Cluster {
    /// The nodes.
    pub fn nodes(&self) -> &[Server] {
        self.nodes.servers()
    }

    /// The address with all nodes: `redis+cluster://host:port,host:port`.
    pub fn url(&self) -> String {
        let urls = self.urls();
        let hosts: Vec<&str> =
            urls.iter().filter_map(|url| url.trim_end_matches('/').rsplit(['/', '@']).next()).collect();
        // All of them have the same scheme and log-in.
        let (first, host) = (urls.first().map_or("", |url| url), hosts.first().copied().unwrap_or_default());
        let start = first.trim_end_matches('/').strip_suffix(host).unwrap_or_default();
        start.replacen("://", "+cluster://", 1) + &hosts.join(",")
    }

    /// The addresses of the nodes for clients.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.urls()
    }

    /// Whether the nodes can be killed, started, frozen and thawed.
    pub fn is_controlled(&self) -> bool {
        self.nodes.is_controlled()
    }

    /// Kills all nodes, like `kill -9`.
    ///
    /// # Errors
    /// If the cluster was given by an address, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.nodes.kill().await
    }

    /// Starts all nodes again at their addresses; returns when each reports a complete cluster.
    ///
    /// # Errors
    /// If the cluster was given by an address, or the nodes do not agree within 30 seconds.
    pub async fn start(&self) -> Result<(), ServerError> {
        self.nodes.start().await?;
        self.whole().await.map_err(|reason| self.error(reason))
    }

    /// Freezes all nodes: they do not answer, and their connections stay open.
    ///
    /// # Errors
    /// If the cluster was given by an address, or a node is not running.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        self.nodes.freeze().await
    }

    /// Thaws all nodes, and waits until each reports a complete cluster: after a long freeze they consider each other
    /// failed.
    ///
    /// # Errors
    /// If the cluster was given by an address, a node is not running, or they do not agree within 30 seconds.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        self.nodes.thaw().await?;
        self.whole().await.map_err(|reason| self.error(reason))
    }

    /// Assigns slots to the nodes and introduces them to each other.
    async fn form(&self) -> Result<(), String> {
        let Some(first) = self.nodes().first() else { return Ok(()) };
        for (index, node) in self.nodes().iter().enumerate() {
            let mut resp = self.connect(node).await?;
            // With equal epochs the nodes would have to resolve the conflict first.
            resp.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await?;
            if let Some((from, to)) = SHARES.get(index) {
                let slots: Vec<String> = (*from..=*to).map(|slot| slot.to_string()).collect();
                let mut words = vec!["CLUSTER", "ADDSLOTS"];
                words.extend(slots.iter().map(String::as_str));
                resp.ask(&words).await?;
            }
            if index > 0 {
                let port = first.address().port().to_string();
                resp.ask(&["CLUSTER", "MEET", &first.address().ip().to_string(), &port]).await?;
            }
        }
        Ok(())
    }

    /// Makes the nodes without slots replicas; returns when they have their masters' data.
    async fn replicate(&self) -> Result<(), String> {
        for (master, replica) in self.nodes().iter().zip(self.nodes().iter().skip(SHARES.len())) {
            let id = self.connect(master).await?.ask(&["CLUSTER", "MYID"]).await?;
            self.connect(replica).await?.ask(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        let following = async {
            for replica in self.nodes().iter().skip(SHARES.len()) {
                while !self.follows(replica).await? {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            self.know_of_replicas().await
        };
        let outcome = tokio::time::timeout(AGREE, following).await;
        outcome.unwrap_or_else(|_| Err(format!("the replicas did not follow within {AGREE:?}")))
    }

    /// Waits until every node knows all replicas: a master that does not know a replica would not vote for it.
    async fn know_of_replicas(&self) -> Result<(), String> {
        for node in self.nodes() {
            loop {
                let nodes = self.connect(node).await?.ask(&["CLUSTER", "NODES"]).await?;
                let replicas = nodes.lines().filter(|line| line.contains("slave ")).count();
                if replicas + SHARES.len() == self.nodes().len() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Waits until every node reports a complete cluster; see [`is_whole`](Self::is_whole).
    async fn whole(&self) -> Result<(), String> {
        let mut last = String::new();
        let waiting = async {
            for node in self.nodes() {
                while let Err(reason) = self.is_whole(node).await {
                    last = format!("{}: {reason}", node.address());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        let outcome = tokio::time::timeout(AGREE, waiting).await;
        outcome.map_err(|_| format!("the nodes did not agree within {AGREE:?}; {last}"))
    }

    async fn connect(&self, node: &Server) -> Result<Resp, String> {
        self.redis.connect(node.address()).await
    }

    fn error(&self, reason: String) -> ServerError {
        ServerError::of(RECIPE.name, self.nodes().first().map(Server::address), reason)
    }

    /// Whether a replica has its master's data.
    async fn follows(&self, replica: &Server) -> Result<bool, String> {
        let info = self.connect(replica).await?.ask(&["INFO", "replication"]).await?;
        Ok(info.lines().any(|line| line == "master_link_status:up"))
    }

    /// Whether a node reports a complete cluster with all of its nodes. If the cluster was given by an address, only
    /// whether the node answers.
    async fn is_whole(&self, node: &Server) -> Result<(), String> {
        if !node.is_controlled() {
            return node.check().await;
        }
        let info = self.connect(node).await?.ask(&["CLUSTER", "INFO"]).await?;
        let known = format!("cluster_known_nodes:{}", self.nodes().len());
        for wanted in ["cluster_state:ok", &known, "cluster_slots_ok:16384"] {
            if !info.lines().any(|line| line == wanted) {
                return Err(format!("it does not say {wanted}"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// One node.
struct Node(Redis);

#[async_trait]
impl Service for Node {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let mut arguments = self.0.arguments(place);
        let further = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        let address = ["--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "5000"];
        arguments.extend(further.into_iter().chain(address).map(str::to_owned));
        if let Some(tls) = &self.0.tls {
            arguments.extend(["--tls-cluster", "yes"].map(str::to_owned));
            let name =
                tls.hostname.iter().flat_map(|name| ["--cluster-announce-hostname".to_owned(), name.clone()]);
            arguments.extend(name);
        }
        arguments
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        self.0.ready(address).await
    }

    fn url(&self, address: SocketAddr) -> String {
        self.0.url(address)
    }

    fn at_address(&self, url: &str) -> Result<External, String> {
        self.0.at_address(url)
    }
}
