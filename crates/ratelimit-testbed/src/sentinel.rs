//! A Redis primary and its replica, watched by three sentinels.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::group::Group;
use crate::resp::Resp;
use crate::server::{Server, ServerError};
use crate::service::{Placement, Recipe, Service};
use crate::{Redis, Testbed, Unavailable};

/// The servers are always started here: a given primary must not be killed.
static RECIPE: Recipe = Recipe {
    name: "redis-sentinel",
    variable: "",
    image: "redis:7",
    program: "redis-server",
    package: "redis-server",
    wheel: None,
};

/// The sentinels' name for the primary.
const NAME: &str = "limits";

const SENTINELS: usize = 3;

/// How many of them have to agree that the primary has failed.
const QUORUM: &str = "2";

/// How long all servers may take to agree.
const AGREE: Duration = Duration::from_secs(90);

/// A primary, its replica and three sentinels, all processes on this machine.
#[derive(Clone)]
pub struct Sentinel {
    servers: Group,
    sentinels: Group,
    /// The options of each server.
    redis: Redis,
}

impl Testbed {
    /// Starts a primary, its replica and three sentinels. A primary that does not answer for `down_after` is replaced; on a
    /// busy machine an answer may take half a second although nothing is wrong.
    ///
    /// # Errors
    /// If they could not be started.
    pub async fn redis_sentinel(&self, down_after: Duration) -> Result<Sentinel, Unavailable> {
        self.redis_sentinel_with(Redis::default(), down_after).await
    }

    /// The same with these options for servers and sentinels; a password applies to the servers only.
    ///
    /// # Errors
    /// If they could not be started.
    pub async fn redis_sentinel_with(
        &self,
        redis: Redis,
        down_after: Duration,
    ) -> Result<Sentinel, Unavailable> {
        let testbed = self.as_process();
        let plain = Redis { password: None, ..redis.clone() };
        let service =
            |redis: &Redis, watches| Arc::new(Member { redis: redis.clone(), watches }) as Arc<dyn Service>;
        let servers = [service(&redis, false), service(&redis, false)];
        let sentinels: Vec<_> = (0..SENTINELS).map(|_| service(&plain, true)).collect();
        let sentinel = Sentinel {
            servers: Group::new(testbed.obtain(&RECIPE, &servers).await?),
            sentinels: Group::new(testbed.obtain(&RECIPE, &sentinels).await?),
            redis,
        };
        let formed = async {
            sentinel.form(down_after).await?;
            sentinel.settled().await
        };
        match formed.await {
            Ok(()) => Ok(sentinel),
            Err(reason) => Err(Unavailable {
                name: RECIPE.name,
                tried: vec![("sentinel", reason)],
                advice: "Look at the servers' logs.".to_owned(),
            }),
        }
    }
}

impl Sentinel {
    /// The primary and the replica, in an order that does not change with their roles.
    pub fn servers(&self) -> &[Server] {
        self.servers.servers()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        self.sentinels.servers()
    }

    /// The address for clients: `redis+sentinel://127.0.0.1:11434,…/limits`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels().iter().map(|at| at.address().to_string()).collect();
        format!("{}+sentinel://{}{}/{NAME}", self.redis.scheme(), self.redis.log_in(), hosts.join(","))
    }

    /// The server that all answering sentinels name as the primary and that reports itself as one.
    ///
    /// # Errors
    /// If they do not agree within 90 seconds.
    pub async fn primary(&self) -> Result<Server, ServerError> {
        self.agreed(async |this| this.agree().await).await.map_err(|reason| self.error(reason))
    }

    /// Lets a sentinel promote the replica; returns when all agree. The old primary is then a replica.
    ///
    /// # Errors
    /// If a sentinel refuses for 90 seconds, or they do not agree within as long.
    pub async fn fail_over(&self) -> Result<(), ServerError> {
        let order = async {
            let before = self.agreed(async |this| this.agree().await).await?.address();
            let first = self.sentinels().first().ok_or("there is no sentinel")?;
            // A replica is suitable only once it has answered the sentinel lately, which takes longer on a busy machine.
            self.agreed(async |this| this.ask(first, &["SENTINEL", "FAILOVER", NAME]).await).await?;
            self.agreed(async |this| this.agree_on_other(before).await).await?;
            self.settled().await
        };
        order.await.map_err(|reason| self.error(reason))
    }

    /// Sends every sentinel this command.
    ///
    /// # Errors
    /// If one refuses it or does not answer.
    pub async fn tell(&self, words: &[&str]) -> Result<(), ServerError> {
        for sentinel in self.sentinels() {
            self.ask(sentinel, words).await.map_err(|reason| sentinel.error(reason))?;
        }
        Ok(())
    }

    /// Kills the primary and the replica, like `kill -9`. The sentinels keep running.
    ///
    /// # Errors
    /// If it cannot be done.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.servers.kill().await
    }

    /// Starts the primary and the replica again; returns when all agree on their roles.
    ///
    /// # Errors
    /// If one cannot be started, or they do not agree within 90 seconds.
    pub async fn start(&self) -> Result<(), ServerError> {
        self.servers.start().await?;
        self.settled().await.map_err(|reason| self.error(reason))
    }

    /// Freezes the primary and the replica: they do not answer, and their connections stay open.
    ///
    /// # Errors
    /// If one is not running.
    pub async fn freeze(&self) -> Result<(), ServerError> {
        self.servers.freeze().await
    }

    /// Thaws them; returns when all agree on their roles.
    ///
    /// # Errors
    /// If one is not running, or they do not agree within 90 seconds.
    pub async fn thaw(&self) -> Result<(), ServerError> {
        self.servers.thaw().await?;
        self.settled().await.map_err(|reason| self.error(reason))
    }

    /// Makes one server a replica of the other, and lets the sentinels watch them.
    async fn form(&self, down_after: Duration) -> Result<(), String> {
        let [primary, replica] = self.servers() else { return Err("there are not two servers".to_owned()) };
        let address = primary.address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut resp = self.redis.connect(replica.address()).await?;
        resp.ask(&["REPLICAOF", &host, &port]).await?;
        // After a restart it keeps its role, as the sentinels expect.
        resp.ask(&["CONFIG", "REWRITE"]).await?;
        for sentinel in self.sentinels() {
            self.ask(sentinel, &["SENTINEL", "MONITOR", NAME, &host, &port, QUORUM]).await?;
            let millis = down_after.as_millis().to_string();
            for (name, value) in [("down-after-milliseconds", millis.as_str()), ("failover-timeout", "10000")]
            {
                self.ask(sentinel, &["SENTINEL", "SET", NAME, name, value]).await?;
            }
            if let Some(password) = &self.redis.password {
                self.ask(sentinel, &["SENTINEL", "SET", NAME, "auth-pass", password]).await?;
            }
        }
        Ok(())
    }

    /// Returns when every sentinel knows the others and the replica, no change is pending, and the replica follows the
    /// primary.
    async fn settled(&self) -> Result<(), String> {
        self.agreed(async |this| this.is_settled().await).await
    }

    async fn is_settled(&self) -> Result<(), String> {
        let primary = self.agree().await?;
        for sentinel in self.sentinels() {
            let known = self.ask(sentinel, &["SENTINEL", "MASTER", NAME]).await?;
            for (field, wanted) in [("flags", "master"), ("num-slaves", "1"), ("num-other-sentinels", "2")] {
                let found = field_of(&known, field);
                if found != Some(wanted) {
                    return Err(format!("{}: {field} is {found:?}", sentinel.address()));
                }
            }
        }
        for server in self.servers().iter().filter(|server| server.address() != primary.address()) {
            let info = self.redis.connect(server.address()).await?.ask(&["INFO", "replication"]).await?;
            if !info.lines().any(|line| line == "master_link_status:up") {
                return Err(format!("{} does not follow {}", server.address(), primary.address()));
            }
        }
        Ok(())
    }

    async fn agree_on_other(&self, before: SocketAddr) -> Result<(), String> {
        let now = self.agree().await?.address();
        if now == before { Err(format!("{now} is still the primary")) } else { Ok(()) }
    }

    async fn agree(&self) -> Result<Server, String> {
        let mut named = Vec::new();
        for sentinel in self.sentinels() {
            if let Ok(place) = self.ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).await {
                named.push(place.replace('\n', ":"));
            }
        }
        named.dedup();
        let [address] = named.as_slice() else {
            return Err(format!("the sentinels name {named:?}"));
        };
        let server = self.servers().iter().find(|server| server.address().to_string() == *address);
        let server = server.ok_or_else(|| format!("the sentinels name {address}"))?;
        let role = self.redis.connect(server.address()).await?.ask(&["ROLE"]).await?;
        if role.starts_with("master") { Ok(server.clone()) } else { Err(format!("{address} is a replica")) }
    }

    /// Calls `so` until it succeeds, for up to [`AGREE`].
    async fn agreed<T>(&self, so: impl AsyncFn(&Self) -> Result<T, String>) -> Result<T, String> {
        let mut last = String::new();
        let waiting = async {
            loop {
                match so(self).await {
                    Ok(found) => return found,
                    Err(reason) => last = reason,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let outcome = tokio::time::timeout(AGREE, waiting).await;
        outcome.map_err(|_| format!("the sentinels did not agree within {AGREE:?}; {last}"))
    }

    async fn ask(&self, sentinel: &Server, words: &[&str]) -> Result<String, String> {
        let redis = Redis { password: None, ..self.redis.clone() };
        let mut resp: Resp = redis.connect(sentinel.address()).await?;
        resp.ask(words).await
    }

    fn error(&self, reason: String) -> ServerError {
        ServerError::of(RECIPE.name, self.servers().first().map(Server::address), reason)
    }
}

/// The value after this name in a reply of names and values.
fn field_of<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let names = answer.lines().step_by(2);
    let mut pairs = names.zip(answer.lines().skip(1).step_by(2));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinel")
            .field("servers", &self.servers)
            .field("sentinels", &self.sentinels)
            .finish_non_exhaustive()
    }
}

/// A server with a configuration file, in which sentinels and failovers store their changes.
struct Member {
    redis: Redis,
    /// Whether it is a sentinel.
    watches: bool,
}

#[async_trait]
impl Service for Member {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        let mut arguments = vec![format!("{}/server.conf", place.folder)];
        arguments.extend(self.watches.then(|| "--sentinel".to_owned()));
        arguments.extend(self.redis.arguments(place));
        if let Some(password) = &self.redis.password {
            arguments.extend(["--masterauth".to_owned(), password.clone()]);
        }
        // A replica that needs a full copy of the primary's data gets it without a delay.
        if !self.watches {
            arguments.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
        }
        arguments
    }

    fn preparation(&self, _program: &Path, place: Placement<'_>) -> Option<Command> {
        let mut command = Command::new("touch");
        command.arg(format!("{}/server.conf", place.folder));
        Some(command)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        self.redis.ready(address).await
    }

    fn url(&self, address: SocketAddr) -> String {
        self.redis.url(address)
    }
}
