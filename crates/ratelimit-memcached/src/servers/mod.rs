//! The servers: which of them stores a meter, and batches for several of them, with meta commands or the plain protocol.

pub(crate) mod connection;
pub(crate) mod handshake;
#[cfg(feature = "memcache")]
pub(crate) mod plain;
pub(crate) mod queue;
#[cfg(feature = "tls")]
pub(crate) mod records;
pub(crate) mod stream;
pub(crate) mod transfer;

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use ratelimit_core::StoreError;
use ratelimit_core::store::MeterId;
use ratelimit_store_kit::InTurn;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::config::MemcachedConfig;
use crate::config::check;
use crate::config::distribution::ServerSelector;
use crate::servers::connection::{Commands, Connection};
#[cfg(feature = "memcache")]
use crate::servers::plain::MemcachePool;
use crate::servers::queue::Replies;
use crate::servers::stream::Opener;
use crate::wire::commands::Command;
use crate::wire::reply::Reply;

/// All servers.
pub(crate) struct Servers {
    list: Vec<Server>,
    selector: ServerSelector,
}

struct Server {
    address: Arc<str>,
    way: Way,
}

/// How commands reach a server.
enum Way {
    /// With meta commands, over connections of our own.
    Meta(InTurn<Connection>),
    /// With the plain protocol, over the connections of the program's pool.
    #[cfg(feature = "memcache")]
    Plain(MemcachePool),
}

/// Commands for several servers; those for one server are executed in order.
pub(crate) struct Batch<'a> {
    servers: SmallVec<[ServerCommands<'a>; 1]>,
}

/// Commands for one server.
struct ServerCommands<'a> {
    /// The number of replies to earlier batches, which precede those to this one.
    before: usize,
    content: Content<'a>,
}

/// Commands as they are sent.
enum Content<'a> {
    Meta(&'a InTurn<Connection>, Commands),
    /// With the keys of their items, because the pool's clients encode them.
    #[cfg(feature = "memcache")]
    Plain(&'a MemcachePool, Vec<(String, Command)>),
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
            let connection = || Connection::new(address.clone(), opener.clone());
            Server { way: Way::Meta(InTurn::new(config.connections, connection)), address }
        };
        let list = Opener::all(config, addresses)?.into_iter().map(server).collect();
        Ok(Self { list, selector })
    }

    /// The server or proxy of a pool. A proxy distributes items by their keys.
    #[cfg(feature = "memcache")]
    pub(crate) fn on_pool(pool: MemcachePool) -> Self {
        let address = pool.manager().address().into();
        Self {
            list: vec![Server { address, way: Way::Plain(pool) }],
            selector: ServerSelector::Rendezvous(vec![0]),
        }
    }

    /// The addresses of the servers.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.list.iter().map(|server| &*server.address).collect()
    }

    /// The address of a server.
    pub(crate) fn address(&self, server: usize) -> &str {
        &self.list[server].address
    }

    /// Opens all connections, so that no call has to wait for one later. A pool connects on its first call.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        let connections = self.list.iter().flat_map(|server| match &server.way {
            Way::Meta(connections) => connections.all(),
            #[cfg(feature = "memcache")]
            Way::Plain(_) => &[],
        });
        try_join_all(connections.map(|connection| connection.connect(deadline))).await.map(drop)
    }

    /// The server that stores a meter.
    pub(crate) fn choose(&self, id: &MeterId<'_>) -> usize {
        self.selector.choose(id)
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn new(servers: &'a Servers) -> Self {
        Self { servers: servers.list.iter().map(|server| ServerCommands::new(server, 0)).collect() }
    }

    /// A batch whose answers can be [appended](Answers::append) to these.
    pub(crate) fn after(servers: &'a Servers, answers: &Answers) -> Self {
        let servers = servers.list.iter().zip(&answers.0);
        Self {
            servers: servers.map(|(server, replies)| ServerCommands::new(server, replies.len())).collect(),
        }
    }

    /// Adds a command on the item with this key.
    pub(crate) fn push(&mut self, server: usize, key: &str, command: Command) -> CommandIndex {
        CommandIndex { server, nth: self.servers[server].push(key, command) }
    }

    /// Performs one round trip: sends each server its commands, concurrently.
    pub(crate) async fn send(&self, deadline: Instant) -> Answers {
        let mut answers = Answers(self.servers.iter().map(|_| Replies::new()).collect());
        match self.used() {
            (None, _) => {}
            (Some(only), None) => answers.0[only] = self.servers[only].send(deadline).await,
            // Boxed, so that calls to one server are spared its size.
            (Some(_), Some(_)) => Box::pin(self.send_to_several(deadline, &mut answers)).await,
        }
        answers
    }

    async fn send_to_several(&self, deadline: Instant, answers: &mut Answers) {
        let used = self.servers.iter().zip(&mut answers.0).filter(|(commands, _)| commands.count() > 0);
        join_all(used.map(|(commands, replies)| async move { *replies = commands.send(deadline).await }))
            .await;
    }

    /// The first two servers with commands in the batch.
    fn used(&self) -> (Option<usize>, Option<usize>) {
        let mut used = (0..self.servers.len()).filter(|nth| self.servers[*nth].count() > 0);
        (used.next(), used.next())
    }
}

impl<'a> ServerCommands<'a> {
    fn new(server: &'a Server, before: usize) -> Self {
        let content = match &server.way {
            Way::Meta(connections) => Content::Meta(connections, Commands::default()),
            #[cfg(feature = "memcache")]
            Way::Plain(pool) => Content::Plain(pool, Vec::new()),
        };
        Self { before, content }
    }

    /// Appends a command and returns its place.
    #[allow(clippy::needless_pass_by_value)] // the plain protocol keeps it
    fn push(&mut self, key: &str, command: Command) -> usize {
        let nth = self.before + self.count();
        match &mut self.content {
            Content::Meta(_, commands) => commands.push(key, &command),
            #[cfg(feature = "memcache")]
            Content::Plain(_, commands) => commands.push((key.to_owned(), command)),
        }
        nth
    }

    fn count(&self) -> usize {
        match &self.content {
            Content::Meta(_, commands) => commands.count,
            #[cfg(feature = "memcache")]
            Content::Plain(_, commands) => commands.len(),
        }
    }

    /// Sends them and returns one reply for each.
    async fn send(&self, deadline: Instant) -> Replies {
        match &self.content {
            Content::Meta(connections, commands) => connections.next().send(commands, deadline).await,
            // Boxed, so that calls with meta commands are spared its size.
            #[cfg(feature = "memcache")]
            Content::Plain(pool, commands) => Box::pin(plain::send(pool, commands, deadline)).await,
        }
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
