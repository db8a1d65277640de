//! The servers: which of them stores a meter, and batches for several of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join_all, try_join_all};
use ratelimit_core::{MeterId, StoreError};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::check;
use crate::config::MemcachedConfig;
use crate::connection::{Commands, Connection};
use crate::distribution::ServerSelector;
use crate::queue::Replies;
use crate::reply::Reply;
use crate::stream::Opener;
use crate::wire::Command;

/// All servers.
pub(crate) struct Servers {
    list: Vec<Server>,
    selector: ServerSelector,
}

struct Server {
    address: Arc<str>,
    connections: Vec<Connection>,
    turn: AtomicUsize,
}

/// Commands for several servers; those for one server are executed in order.
pub(crate) struct Batch {
    servers: SmallVec<[Commands; 1]>,
}

/// The place of a command in a [`Batch`], and of its reply in the [`Answers`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandIndex {
    pub(crate) server: usize,
    pub(crate) nth: usize,
}

/// The servers' replies to a [`Batch`].
pub(crate) struct Answers(pub(crate) Vec<Replies>);

impl Servers {
    pub(crate) fn new(config: &MemcachedConfig) -> Result<Self, StoreError> {
        let addresses = check::addresses(config)?;
        let selector = ServerSelector::new(config.distribution, &addresses);
        let server = |opener: Opener| {
            let address: Arc<str> = opener.address().text().into();
            let opener = Arc::new(opener);
            let connection = |_| Connection::new(address.clone(), opener.clone());
            let connections = (0..config.connections.max(1)).map(connection).collect();
            Server { address, connections, turn: AtomicUsize::new(0) }
        };
        let list = Opener::all(config, addresses)?.into_iter().map(server).collect();
        Ok(Self { list, selector })
    }

    /// The addresses of the servers.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.list.iter().map(|server| &*server.address).collect()
    }

    /// The address of a server.
    pub(crate) fn address(&self, server: usize) -> &Arc<str> {
        &self.list[server].address
    }

    /// Opens all connections, so that no call has to wait for one later.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        let connections = self.list.iter().flat_map(|server| &server.connections);
        try_join_all(connections.map(|connection| connection.connect(deadline))).await.map(drop)
    }

    /// The server that stores a meter.
    pub(crate) fn choose(&self, id: &MeterId<'_>) -> usize {
        self.selector.choose(id)
    }

    /// Performs one round trip: sends each server its commands, concurrently.
    pub(crate) async fn send(&self, batch: &Batch, deadline: Instant) -> Answers {
        let mut answers = Answers(batch.servers.iter().map(|_| Replies::new()).collect());
        match batch.used() {
            (None, _) => {}
            (Some(only), None) => {
                answers.0[only] = self.list[only].connection().send(&batch.servers[only], deadline).await;
            }
            // Boxed, so that calls to one server are spared its size.
            (Some(_), Some(_)) => Box::pin(self.send_to_several(batch, deadline, &mut answers)).await,
        }
        answers
    }

    async fn send_to_several(&self, batch: &Batch, deadline: Instant, answers: &mut Answers) {
        let used = batch.servers.iter().zip(&self.list).zip(&mut answers.0);
        let used = used.filter(|((commands, _), _)| commands.count > 0);
        join_all(used.map(|((commands, server), replies)| async move {
            *replies = server.connection().send(commands, deadline).await;
        }))
        .await;
    }
}

impl Server {
    /// The next of its connections, in turn.
    fn connection(&self) -> &Connection {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.connections[turn % self.connections.len()]
    }
}

impl Batch {
    pub(crate) fn new(servers: &Servers) -> Self {
        Self { servers: servers.list.iter().map(|_| Commands::default()).collect() }
    }

    /// A batch whose answers can be [appended](Answers::append) to these.
    pub(crate) fn after(answers: &Answers) -> Self {
        Self { servers: answers.0.iter().map(|replies| Commands::after(replies.len())).collect() }
    }

    /// The first two servers with commands in the batch.
    fn used(&self) -> (Option<usize>, Option<usize>) {
        let mut used = (0..self.servers.len()).filter(|nth| self.servers[*nth].count > 0);
        (used.next(), used.next())
    }

    pub(crate) fn push(&mut self, server: usize, key: &str, command: &Command) -> CommandIndex {
        CommandIndex { server, nth: self.servers[server].push(key, command) }
    }
}

impl Answers {
    /// Appends the answers to a batch that was made [after](Batch::after) these.
    pub(crate) fn append(&mut self, more: Self) {
        self.0.iter_mut().zip(more.0).for_each(|(replies, more)| replies.extend(more));
    }

    /// The reply to a command of the batch.
    pub(crate) fn reply(&self, place: CommandIndex) -> &Result<Reply, StoreError> {
        static NONE: Result<Reply, StoreError> = Ok(Reply::Lost);
        self.0.get(place.server).and_then(|replies| replies.get(place.nth)).unwrap_or(&NONE)
    }
}
