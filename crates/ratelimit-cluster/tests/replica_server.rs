//! Nodes whose connections to Redis end on a replica: they say so, and agree again when they reach the primary.
#![cfg(feature = "redis")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ratelimit_cluster::{RedisTransport, Replicated};
use ratelimit_core::{Limit, RateLimiter, Request, SystemClock};
use ratelimit_testbed::{Server, Settings, Testbed, Way};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A process on this machine: a server in a container cannot reach another one by its address here.
async fn server() -> Server {
    let settings = Settings { only: Some(Way::Process), addresses: BTreeMap::new(), ..Settings::from_env() };
    Testbed::new(settings).redis().await.unwrap()
}

async fn say(server: &Server, line: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

/// Makes one server the replica of the other, and waits until it receives what the other publishes.
async fn replicate(replica: &Server, primary: &Server) {
    let [host, port] = [primary.address().ip().to_string(), primary.address().port().to_string()];
    assert!(say(primary, "REPLICAOF NO ONE").await.contains("+OK"));
    assert!(say(replica, &format!("REPLICAOF {host} {port}")).await.contains("+OK"));
    until(async || say(replica, "INFO replication").await.contains("master_link_status:up")).await;
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it did not happen");
}

/// A name that leads to one server, and later to another one. Connections that exist stay.
struct Name {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Name {
    async fn of(server: &Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(server.address().port()));
        let current = target.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = (Ipv4Addr::LOCALHOST, current.load(Ordering::SeqCst));
                tokio::spawn(async move {
                    // When the test ends, the server is gone first.
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { port, target }
    }

    fn set(&self, server: &Server) {
        self.target.store(server.address().port(), Ordering::SeqCst);
    }

    async fn node(&self) -> Node {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let node = Arc::new(Replicated::new(RedisTransport::connect(&url, "limits").await.unwrap()));
        let runs = node.clone();
        tokio::spawn(async move { runs.run(SystemClock::new(), Duration::from_millis(100)).await });
        Node { limiter: RateLimiter::new(node.clone(), "1000/d".parse::<Limit>().unwrap()), node }
    }
}

struct Node {
    node: Arc<Replicated<RedisTransport>>,
    limiter: RateLimiter<Arc<Replicated<RedisTransport>>>,
}

impl Node {
    fn charge(&self, units: u64) {
        assert!(self.limiter.check_now(Request::new("k").cost(units)).unwrap().allowed());
    }

    fn used(&self) -> u64 {
        1_000 - self.limiter.peek_now("k").unwrap().remaining()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_connections_end_on_a_replica_says_so_and_agrees_when_it_reaches_the_primary() {
    let [primary, other] = [server().await, server().await];
    let (right, wrong) = (Name::of(&primary).await, Name::of(&other).await);
    let [a, b] = [right.node().await, wrong.node().await];
    until(async || a.node.has_joined() && b.node.has_joined()).await;
    assert_eq!((a.node.outage(), b.node.outage()), (None, None));
    replicate(&other, &primary).await;
    a.charge(10);
    b.charge(100);
    until(async || b.node.outage().is_some_and(|error| error.contains("replica"))).await;
    assert_eq!(a.node.outage(), None);
    // Its name leads to the primary now.
    wrong.set(&primary);
    until(async || (a.used(), b.used()) == (110, 110)).await;
    until(async || b.node.outage().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_connections_to_the_primary_before_a_failover_follow_it() {
    let [old, new] = [server().await, server().await];
    replicate(&new, &old).await;
    let name = Name::of(&old).await;
    let [a, b] = [name.node().await, name.node().await];
    a.charge(10);
    until(async || (a.used(), b.used()) == (10, 10)).await;
    replicate(&old, &new).await;
    name.set(&new);
    let c = name.node().await;
    b.charge(20);
    c.charge(100);
    until(async || [&a, &b, &c].map(Node::used) == [130; 3]).await;
    until(async || [&a, &b, &c].iter().all(|node| node.node.has_joined() && node.node.outage().is_none()))
        .await;
}

#[tokio::test]
async fn the_address_of_a_replica_is_an_error() {
    let [primary, replica] = [server().await, server().await];
    replicate(&replica, &primary).await;
    let error = RedisTransport::connect(replica.url(), "limits").await.unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
}
