//! Asks the sentinels which server is the primary, and has that server confirm it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ratelimit_core::{ErrorKind, StoreError};
use redis::{RedisError, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};
use crate::servers::dialer::Dialer;
use crate::servers::discovery::{query_all, survey_deadline};
use crate::servers::server::Server;
use crate::wire::value::{list, text};

use crate::config::sentinel::Address;

/// The sentinels, and the last known primary.
pub(crate) struct Watch {
    sentinels: Vec<Arc<Server>>,
    name: String,
    /// Connects to the servers that the sentinels watch.
    dialer: Dialer,
    timeout: Duration,
    connections: usize,
    primary: RwLock<Option<Arc<Server>>>,
}

impl Watch {
    pub(super) fn new(address: &Address, config: &RedisConfig) -> Result<Self, StoreError> {
        let (kind, places) = &address.sentinels;
        let dialer = Dialer::new(kind, address.settings.clone(), config)?;
        let to_sentinels = dialer.without_scripts(address.sentinel_settings.clone());
        let sentinel = |place| Arc::new(Server::new(to_sentinels.towards(place), 1));
        Ok(Self {
            sentinels: places.iter().map(sentinel).collect(),
            name: address.name.clone(),
            dialer,
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
        let deadline = survey_deadline(self.timeout);
        let named = self.named(deadline).await?;
        let queried: Vec<_> =
            named.iter().map(|place| tokio::spawn(confirmed(self.at(place), deadline))).collect();
        let mut outcome = Err(ERRORS.stopped());
        for answer in queried {
            outcome = answer.await.unwrap_or_else(|_| Err(ERRORS.stopped()));
            if outcome.is_ok() {
                break;
            }
        }
        *self.primary.write().unwrap_or_else(PoisonError::into_inner) = Some(outcome?);
        Ok(())
    }

    /// The servers that sentinels name, most votes first. Does not wait for sentinels that are down or frozen once one has
    /// answered.
    async fn named(&self, deadline: Instant) -> Result<Vec<NodeAddress>, StoreError> {
        let query = |sentinel: Arc<Server>| {
            let name = self.name.clone();
            async move { primary_of(&sentinel, &name, deadline).await }
        };
        let mut votes: Vec<(NodeAddress, usize)> = Vec::new();
        let mut failure = ERRORS.of(ErrorKind::Timeout, "no sentinel has answered within the time limit");
        for answer in query_all(self.sentinels.iter().cloned(), query, deadline).await {
            match answer {
                Ok(place) => match votes.iter_mut().find(|(known, _)| *known == place) {
                    Some((_, number)) => *number += 1,
                    None => votes.push((place, 1)),
                },
                // Any other failure is more informative than a sentinel that is down.
                Err(other) if matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::Timeout) => {
                    failure = other;
                }
                Err(_) => {}
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
            _ => Arc::new(Server::new(self.dialer.towards(place), self.connections)),
        }
    }
}

/// The primary according to a sentinel.
async fn primary_of(sentinel: &Server, name: &str, deadline: Instant) -> Result<NodeAddress, StoreError> {
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    let reply = sentinel.connection().send(&question, false, deadline).await?;
    let answer = reply.map_err(|error| of_sentinel(error).at(sentinel.address()))?;
    if answer == Value::Nil {
        let known = sentinel.send(cmd("SENTINEL").arg("MASTERS"), deadline).await;
        let known = names(&known.unwrap_or(Value::Nil)).join(", ");
        let message = format!("the sentinels watch no primary called {name:?}; they watch: {known}");
        return Err(ERRORS.of(ErrorKind::Unsupported, message).at(sentinel.address()));
    }
    place(&answer).ok_or_else(|| {
        ERRORS
            .of(ErrorKind::Server, "its reply is not that of a sentinel; check the port in the address")
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
    ERRORS.of(error.kind(), message)
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
    Err(ERRORS.of(ErrorKind::ReadOnly, message).at(server.address()))
}
