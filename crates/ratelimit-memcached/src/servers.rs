//! The servers: which of them keeps a meter, and batches that go to several of them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::connection::{Commands, Line};
use crate::error::Failure;
use crate::keys::{OFFSET, mix, stable_hash};
use crate::queue::Replies;
use crate::reply::Reply;
use crate::wire::Command;

/// All servers.
pub(crate) struct Servers(Vec<Server>);

struct Server {
    address: Arc<str>,
    seed: u64,
    lines: Vec<Line>,
    turn: AtomicUsize,
}

/// Commands for several servers; those for one server are executed in the order in which they are pushed.
pub(crate) struct Batch {
    servers: SmallVec<[Commands; 1]>,
}

/// Where a command stands in a [`Batch`], and its reply in the [`Answers`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    server: usize,
    nth: usize,
}

/// What the servers replied to a [`Batch`].
pub(crate) struct Answers(Vec<Replies>);

impl Servers {
    pub(crate) fn new(addresses: &[String], connections: usize) -> Self {
        let server = |address: &String| {
            let address: Arc<str> = address.as_str().into();
            let lines = (0..connections.max(1)).map(|_| Line::new(address.clone())).collect();
            let seed = stable_hash(address.as_bytes(), OFFSET);
            Server { address, seed, lines, turn: AtomicUsize::new(0) }
        };
        Self(addresses.iter().map(server).collect())
    }

    /// Where they are.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        self.0.iter().map(|server| &*server.address).collect()
    }

    /// The address of a server.
    pub(crate) fn address(&self, server: usize) -> &Arc<str> {
        &self.0[server].address
    }

    /// Connects to each of them.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        for server in &self.0 {
            server.lines[0].connect(deadline).await?;
        }
        let mut batch = Batch::new(self);
        let places: Vec<_> =
            (0..self.0.len()).map(|server| batch.push(server, &Command::Look { key: "!" })).collect();
        let answers = self.send(&batch, deadline).await;
        places.into_iter().try_for_each(|place| answers.reply(place).clone().map(drop))
    }

    /// The server that keeps what is placed by this hash: the one with the highest score (rendezvous hashing).
    pub(crate) fn choose(&self, place: u64) -> usize {
        let score = |nth: &usize| mix(self.0[*nth].seed ^ place);
        (0..self.0.len()).max_by_key(score).unwrap_or(0)
    }

    /// One trip: each server gets its commands at once, all of them at the same time.
    pub(crate) async fn send(&self, batch: &Batch, deadline: Instant) -> Answers {
        let mut answers = Answers(batch.servers.iter().map(|_| Replies::new()).collect());
        match batch.asked() {
            (None, _) => {}
            (Some(only), None) => {
                answers.0[only] = self.0[only].line().send(&batch.servers[only], deadline).await;
            }
            // Set apart, so that trips to one server are spared the space for it.
            (Some(_), Some(_)) => Box::pin(self.send_to_several(batch, deadline, &mut answers)).await,
        }
        answers
    }

    async fn send_to_several(&self, batch: &Batch, deadline: Instant, answers: &mut Answers) {
        let asked = batch.servers.iter().zip(&self.0).zip(&mut answers.0);
        let asked = asked.filter(|((commands, _), _)| commands.count > 0);
        join_all(asked.map(|((commands, server), replies)| async move {
            *replies = server.line().send(commands, deadline).await;
        }))
        .await;
    }
}

impl Server {
    /// Its connections take turns.
    fn line(&self) -> &Line {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.lines[turn % self.lines.len()]
    }
}

impl Batch {
    pub(crate) fn new(servers: &Servers) -> Self {
        Self { servers: servers.0.iter().map(|_| Commands::default()).collect() }
    }

    /// A batch whose answers can be [appended](Answers::append) to these.
    pub(crate) fn after(answers: &Answers) -> Self {
        Self { servers: answers.0.iter().map(|replies| Commands::after(replies.len())).collect() }
    }

    /// The first two servers that are asked something.
    fn asked(&self) -> (Option<usize>, Option<usize>) {
        let mut asked = (0..self.servers.len()).filter(|nth| self.servers[*nth].count > 0);
        (asked.next(), asked.next())
    }

    pub(crate) fn push(&mut self, server: usize, command: &Command<'_>) -> Place {
        Place { server, nth: self.servers[server].push(command) }
    }
}

impl Answers {
    /// Takes over the answers to a batch that was made [after](Batch::after) these.
    pub(crate) fn append(&mut self, more: Self) {
        self.0.iter_mut().zip(more.0).for_each(|(replies, more)| replies.extend(more));
    }

    /// The reply to a command of the batch.
    pub(crate) fn reply(&self, place: Place) -> &Result<Reply, Failure> {
        static NONE: Result<Reply, Failure> = Ok(Reply::Lost);
        self.0.get(place.server).and_then(|replies| replies.get(place.nth)).unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(names: &[&str]) -> Servers {
        Servers::new(&names.iter().map(|name| format!("{name}:11211")).collect::<Vec<_>>(), 1)
    }

    #[test]
    fn meters_are_spread_evenly_and_move_only_to_a_new_server() {
        let (three, four) = (servers(&["a", "b", "c"]), servers(&["d", "c", "b", "a"]));
        let mut counts = [0; 4];
        let mut moved = 0;
        for nth in 0..10_000u64 {
            let place = stable_hash(&nth.to_be_bytes(), OFFSET);
            let (before, after) = (three.choose(place), four.choose(place));
            counts[after] += 1;
            if three.address(before) != four.address(after) {
                moved += 1;
                assert_eq!(&**four.address(after), "d:11211");
            }
        }
        assert!(counts.iter().all(|count| (2_300..2_700).contains(count)), "{counts:?}");
        assert_eq!(moved, counts[0]);
    }

    #[test]
    fn the_choice_stays_what_it_is() {
        // Another choice would reset the meters of a running fleet.
        let three = servers(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let chosen: Vec<_> = (0..12u8).map(|nth| three.choose(stable_hash(&[nth], OFFSET))).collect();
        assert_eq!(chosen, [0, 1, 2, 2, 2, 0, 2, 1, 0, 0, 1, 1]);
    }
}
