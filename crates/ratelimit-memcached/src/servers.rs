//! The servers: which of them keeps a meter, and batches that go to several of them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connection::{Commands, Line, Replies};
use crate::error::Failure;
use crate::keys::{OFFSET, mix, stable_hash};
use crate::reply::Reply;
use crate::wire::Command;

/// All servers.
pub(crate) struct Servers(Vec<Arc<Server>>);

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
            Arc::new(Server {
                seed: stable_hash(address.as_bytes(), OFFSET),
                address,
                lines,
                turn: AtomicUsize::new(0),
            })
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
        let answers = self.send(batch, deadline).await;
        places.into_iter().try_for_each(|place| answers.reply(place).clone().map(drop))
    }

    /// The server that keeps what is placed by this hash: the one with the highest score (rendezvous hashing).
    pub(crate) fn choose(&self, place: u64) -> usize {
        let score = |nth: &usize| mix(self.0[*nth].seed ^ place);
        (0..self.0.len()).max_by_key(score).unwrap_or(0)
    }

    /// One trip: each server gets its commands at once, all of them at the same time.
    pub(crate) async fn send(&self, batch: Batch, deadline: Instant) -> Answers {
        let mut answers: Vec<Replies> = batch.servers.iter().map(|_| Vec::new()).collect();
        let mut asked = batch.servers.into_iter().enumerate().filter(|(_, commands)| commands.count > 0);
        let Some((first, commands)) = asked.next() else { return Answers(answers) };
        let mut others = JoinSet::new();
        for (nth, commands) in asked {
            let server = self.0[nth].clone();
            // A task that does not come back leaves this.
            answers[nth] = vec![Err(Failure::abandoned()); commands.count];
            others.spawn(async move { (nth, server.send(commands, deadline).await) });
        }
        answers[first] = self.0[first].send(commands, deadline).await;
        while let Some(ended) = others.join_next().await {
            if let Ok((nth, replies)) = ended {
                answers[nth] = replies;
            }
        }
        Answers(answers)
    }
}

impl Server {
    async fn send(&self, commands: Commands, deadline: Instant) -> Replies {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.lines[turn % self.lines.len()].send(commands, deadline).await
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

    pub(crate) fn push(&mut self, server: usize, command: &Command<'_>) -> Place {
        Place { server, nth: self.servers[server].push(command) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.servers.iter().all(|server| server.count == 0)
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
