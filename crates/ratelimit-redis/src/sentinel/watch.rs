//! Asks the sentinels which server is the primary, and has that server confirm it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::{ErrorKind, StoreError};
use redis::{RedisConnectionInfo, RedisError, ServerErrorKind, Value, cmd};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::connection::Dialer;
use crate::error;
use crate::node_address::NodeAddress;
use crate::server::Server;
use crate::stream::Opener;
use crate::value::{list, text};

use super::address::Address;

/// The minimum time limit for the answers of the sentinels and the primary.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for further sentinels once one has answered.
const GRACE: Duration = Duration::from_millis(50);

/// The sentinels, and the last known primary.
pub(crate) struct Watch {
    sentinels: Vec<Arc<Server>>,
    name: String,
    settings: RedisConnectionInfo,
    opener: Opener,
    timeout: Duration,
    connections: usize,
    primary: RwLock<Option<Arc<Server>>>,
}

impl Watch {
    pub(super) fn new(address: Address, config: &RedisConfig) -> Result<Self, StoreError> {
        let opener = Opener::new(&address.sentinels.0, config)?;
        let sentinel = |at: &NodeAddress| {
            let dialer = Dialer::new(address.sentinel_settings.clone(), opener.towards(at), config.timeout);
            Arc::new(Server::with_dialer(dialer.without_scripts(), 1))
        };
        Ok(Self {
            sentinels: address.sentinels.1.iter().map(sentinel).collect(),
            name: address.name,
            settings: address.settings,
            opener,
            timeout: config.timeout,
            connections: config.connections,
            primary: RwLock::default(),
        })
    }

    /// The addresses of the sentinels.
    pub(crate) fn address(&self) -> String {
        self.sentinels.iter().map(|sentinel| sentinel.address()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn primary(&self) -> Option<Arc<Server>> {
        self.primary.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finds the primary. If that fails, the previous one is kept.
    pub(crate) async fn look(self: Arc<Self>) -> Result<(), StoreError> {
        let deadline = deadline_after(self.timeout.max(MIN_TIMEOUT));
        let named = self.named(deadline).await?;
        let asked: Vec<_> =
            named.iter().map(|place| tokio::spawn(confirmed(self.at(place), deadline))).collect();
        let mut outcome = Err(error::stopped());
        for answer in asked {
            outcome = answer.await.unwrap_or_else(|_| Err(error::stopped()));
            if outcome.is_ok() {
                break;
            }
        }
        *self.primary.write().unwrap_or_else(PoisonError::into_inner) = Some(outcome?);
        Ok(())
    }

    /// The servers that sentinels name, most votes first. Does not wait for sentinels that are down or frozen once one has
    /// answered.
    async fn named(&self, mut deadline: Instant) -> Result<Vec<NodeAddress>, StoreError> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, name) = (sentinel.clone(), self.name.clone());
            asked.spawn(async move { ask(&sentinel, &name, deadline).await });
        }
        let mut votes: Vec<(NodeAddress, usize)> = Vec::new();
        let mut failure = error::new(ErrorKind::Timeout, "no sentinel has answered within the time limit");
        while let Ok(Some(answer)) = timeout_at(deadline, asked.join_next()).await {
            match answer {
                Ok(Ok(place)) => {
                    match votes.iter_mut().find(|(known, _)| *known == place) {
                        Some((_, number)) => *number += 1,
                        None => votes.push((place, 1)),
                    }
                    deadline = deadline.min(Instant::now() + GRACE);
                }
                // Any other failure is more informative than a sentinel that is down.
                Ok(Err(other)) if matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    failure = other;
                }
                _ => {}
            }
        }
        if votes.is_empty() {
            return Err(failure);
        }
        // A sentinel names another server only after a failover: with equal votes, an unknown server is the newer one.
        let known = self.primary();
        let is_known = |place: &NodeAddress| known.as_ref().is_some_and(|known| known.is_at(place));
        votes.sort_by_key(|(place, number)| (std::cmp::Reverse(*number), is_known(place)));
        Ok(votes.into_iter().map(|(place, _)| place).collect())
    }

    /// Connections to the server at this address: the current ones if it is the known primary.
    fn at(&self, place: &NodeAddress) -> Arc<Server> {
        match self.primary() {
            Some(known) if known.is_at(place) => known,
            _ => {
                let dialer = Dialer::new(self.settings.clone(), self.opener.towards(place), self.timeout);
                Arc::new(Server::with_dialer(dialer, self.connections))
            }
        }
    }
}

/// The primary according to a sentinel.
async fn ask(sentinel: &Server, name: &str, deadline: Instant) -> Result<NodeAddress, StoreError> {
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    let reply = sentinel.connection().send(&question, false, deadline).await?;
    let answer = reply.map_err(|error| of_sentinel(error).at(sentinel.address()))?;
    if answer == Value::Nil {
        let known = sentinel.send(cmd("SENTINEL").arg("MASTERS"), deadline).await;
        let known = names(&known.unwrap_or(Value::Nil)).join(", ");
        let message = format!("the sentinels watch no primary called {name:?}; they watch: {known}");
        return Err(error::new(ErrorKind::Unsupported, message).at(sentinel.address()));
    }
    place(&answer).ok_or_else(|| {
        error::new(ErrorKind::Server, "its reply is not that of a sentinel; check the port in the address")
            .at(sentinel.address())
    })
}

/// An error from a sentinel has other causes than the same error from a server.
fn of_sentinel(error: RedisError) -> StoreError {
    let error = error::from_redis(error);
    let message = match error.kind() {
        ErrorKind::Denied => {
            "the sentinel refused the command; check `sentinel_user` and `sentinel_password` in the address"
        }
        ErrorKind::Unsupported | ErrorKind::Server => {
            "it is not a sentinel; use the port of the sentinels, usually 26379"
        }
        _ => return error,
    };
    error::new(error.kind(), message)
}

fn place(answer: &Value) -> Option<NodeAddress> {
    let [host, port] = list(answer)? else {
        return None;
    };
    Some(NodeAddress { host: text(host)?.to_owned(), port: text(port)?.parse().ok()?, name: None })
}

/// The names of the primaries that a sentinel watches.
fn names(masters: &Value) -> Vec<String> {
    let name = |master: &Value| {
        let [key, name, ..] = list(master)? else {
            return None;
        };
        (text(key)? == "name").then(|| text(name).map(|name| format!("{name:?}")))?
    };
    list(masters).unwrap_or_default().iter().filter_map(name).collect()
}

/// Returns `server` if it reports itself as a primary.
async fn confirmed(server: Arc<Server>, deadline: Instant) -> Result<Arc<Server>, StoreError> {
    let role = match server.connection().send(&cmd("ROLE"), false, deadline).await? {
        // A user without permission for `ROLE` works as well.
        Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => return Ok(server),
        role => role.map_err(|error| error::from_redis(error).at(server.address()))?,
    };
    let is_primary = list(&role).and_then(<[Value]>::first).and_then(text) == Some("master");
    if is_primary {
        return Ok(server);
    }
    let message = "the sentinels name it as the primary, but it is a replica; a failover may be under way";
    Err(error::new(ErrorKind::ReadOnly, message).at(server.address()))
}
