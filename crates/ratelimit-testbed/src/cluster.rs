//! Redis Cluster: three masters without replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::group::Group;
use crate::redis::ping;
use crate::resp::Resp;
use crate::server::{Server, ServerError};
use crate::service::{Given, Place, Recipe, Service};
use crate::{Redis, Testbed, Unavailable};

pub(crate) static RECIPE: Recipe = Recipe {
    name: "redis-cluster",
    variable: "RATELIMIT_REDIS_CLUSTER_URL",
    image: "redis:7",
    program: "redis-server",
    package: "redis-server",
};

/// The masters and the first slot after each; together all 16,384.
const SHARES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

/// How long the nodes may take until they agree.
const AGREE: Duration = Duration::from_secs(30);

/// A Redis Cluster whose nodes all say that it is whole, or did when it was obtained.
///
/// The first three nodes are masters when it is obtained, the others, if there are any, their replicas in the same order.
#[derive(Clone, Debug)]
pub struct Cluster {
    nodes: Group,
}

impl Testbed {
    /// A Redis Cluster of three masters; of those that the environment names, if it does.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn redis_cluster(&self) -> Result<Cluster, Unavailable> {
        self.cluster_of(SHARES.len()).await
    }

    /// A Redis Cluster of three masters with a replica each, which takes the master's place a few seconds after its end.
    /// It is started in any case: an address in the environment is not used for it.
    ///
    /// # Errors
    /// If no way to one worked.
    pub async fn redis_cluster_with_replicas(&self) -> Result<Cluster, Unavailable> {
        self.starting(&RECIPE).cluster_of(2 * SHARES.len()).await
    }

    async fn cluster_of(&self, count: usize) -> Result<Cluster, Unavailable> {
        let services: Vec<Arc<dyn Service>> =
            (0..count).map(|_| Arc::new(Node(Redis::default())) as Arc<dyn Service>).collect();
        let cluster = Cluster { nodes: Group::new(self.obtain(&RECIPE, &services).await?) };
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
    /// Its nodes.
    pub fn nodes(&self) -> &[Server] {
        self.nodes.servers()
    }

    /// The nodes' addresses as clients name them.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.urls()
    }

    /// Whether its nodes can be killed, started, frozen and thawed.
    pub fn is_controlled(&self) -> bool {
        self.nodes.is_controlled()
    }

    /// Ends all nodes at once, as `kill -9` does.
    ///
    /// # Errors
    /// If somebody else runs them, or it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.nodes.kill().await
    }

    /// Starts all nodes again at their addresses, and comes back when each says that the cluster is whole.
    ///
    /// # Errors
    /// If somebody else runs them, or they do not agree within 30 seconds.
    pub async fn start(&self) -> Result<(), ServerError> {
        self.nodes.start().await?;
        match self.nodes().first() {
            Some(first) => self.whole().await.map_err(|reason| first.error(reason)),
            None => Ok(()),
        }
    }

    /// Stops all nodes from answering while their connections stay open.
    ///
    /// # Errors
    /// If somebody else runs them, or one does not run.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        self.nodes.freeze().await
    }

    /// Lets all nodes go on, and comes back when each says that the cluster is whole: after a long freeze they suspect
    /// one another.
    ///
    /// # Errors
    /// If somebody else runs them, one does not run, or they do not agree within 30 seconds.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        self.nodes.thaw().await?;
        match self.nodes().first() {
            Some(first) => self.whole().await.map_err(|reason| first.error(reason)),
            None => Ok(()),
        }
    }

    /// Gives each node its slots, and makes them known to each other.
    async fn form(&self) -> Result<(), String> {
        let Some(first) = self.nodes().first() else { return Ok(()) };
        for (index, node) in self.nodes().iter().enumerate() {
            let mut resp = Resp::connect(node.address(), &[]).await?;
            // Without distinct epochs the nodes would have to settle which of them may count first.
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

    /// Makes the nodes that serve no slots replicas, and comes back when they have their masters' data.
    async fn replicate(&self) -> Result<(), String> {
        for (master, replica) in self.nodes().iter().zip(self.nodes().iter().skip(SHARES.len())) {
            let id = Resp::connect(master.address(), &[]).await?.ask(&["CLUSTER", "MYID"]).await?;
            Resp::connect(replica.address(), &[]).await?.ask(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        let following = async {
            for replica in self.nodes().iter().skip(SHARES.len()) {
                while !follows(replica).await? {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            self.know_of_replicas().await
        };
        let outcome = tokio::time::timeout(AGREE, following).await;
        outcome.unwrap_or_else(|_| Err(format!("the replicas did not follow within {AGREE:?}")))
    }

    /// Comes back when every node knows whose replicas the replicas are: a master that does not would not let one take a
    /// place.
    async fn know_of_replicas(&self) -> Result<(), String> {
        for node in self.nodes() {
            loop {
                let nodes = Resp::connect(node.address(), &[]).await?.ask(&["CLUSTER", "NODES"]).await?;
                let replicas = nodes.lines().filter(|line| line.contains("slave ")).count();
                if replicas + SHARES.len() == self.nodes().len() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Comes back when every node says that the cluster is whole.
    async fn whole(&self) -> Result<(), String> {
        let mut last = String::new();
        let waiting = async {
            for node in self.nodes() {
                while let Err(reason) = is_whole(node, self.nodes().len()).await {
                    last = format!("{}: {reason}", node.address());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        let outcome = tokio::time::timeout(AGREE, waiting).await;
        outcome.map_err(|_| format!("the nodes did not agree within {AGREE:?}; {last}"))
    }
}

/// Whether a replica has its master's data.
async fn follows(replica: &Server) -> Result<bool, String> {
    let info = Resp::connect(replica.address(), &[]).await?.ask(&["INFO", "replication"]).await?;
    Ok(info.lines().any(|line| line == "master_link_status:up"))
}

/// What a node thinks of the cluster. Of a cluster of ours it has to know all nodes.
async fn is_whole(node: &Server, count: usize) -> Result<(), String> {
    if !node.is_controlled() {
        return node.check().await;
    }
    let info = Resp::connect(node.address(), &[]).await?.ask(&["CLUSTER", "INFO"]).await?;
    let known = format!("cluster_known_nodes:{count}");
    for wanted in ["cluster_state:ok", &known, "cluster_slots_ok:16384"] {
        if !info.lines().any(|line| line == wanted) {
            return Err(format!("it does not say {wanted}"));
        }
    }
    Ok(())
}

/// One node.
struct Node(Redis);

#[async_trait]
impl Service for Node {
    fn arguments(&self, place: Place<'_>) -> Vec<String> {
        let mut arguments = self.0.arguments(place);
        let further = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        let address = ["--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "5000"];
        arguments.extend(further.into_iter().chain(address).map(str::to_owned));
        arguments
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        ping(address, &[]).await
    }

    fn url(&self, address: SocketAddr) -> String {
        self.0.url(address)
    }

    fn given(&self, url: &str) -> Result<Given, String> {
        self.0.given(url)
    }
}
