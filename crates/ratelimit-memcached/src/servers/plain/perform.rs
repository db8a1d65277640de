//! Performs a batch with a blocking client: one round trip for each change, and one for every 64 keys that are read.
//!
//! The reads are performed last, although they stand between changes in the batch; only those of counters that the batch
//! resets come first. Units that are added later in the batch are subtracted from what was read, so that the result is the
//! same as if it had been read in order.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::Duration;

use memcache::{Client, CommandError, MemcacheError, ToMemcacheValue};
use ratelimit_core::{Clock as _, StoreError, SystemClock, Timestamp};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::failure::{Fault, Health};
use crate::error::{self, ERRORS};
use crate::servers::queue::Replies;
use crate::wire::commands::Command;
use crate::wire::lifetime::end;
use crate::wire::reply::{Counter, Reply};

/// The maximum number of keys in one request, so that it fits into the 16 KiB that proxies have for one.
const KEYS: usize = 64;

/// How many times a counter is created that disappears before units are added to it.
const MAKINGS: u32 = 3;

/// The outcome of a batch.
pub(super) struct Performed {
    pub(super) replies: Replies,
    pub(super) health: Health,
}

/// An item as read, with its flags and its unique number.
type Item = (Vec<u8>, u32, Option<u64>);

/// A value that is written together with the second in which its item expires, as the item's flags: this protocol cannot ask
/// for it.
struct Dated<'a> {
    value: &'a [u8],
    end: u32,
}

impl<W: Write> ToMemcacheValue<W> for Dated<'_> {
    fn get_flags(&self) -> u32 {
        self.end
    }

    fn get_length(&self) -> usize {
        self.value.len()
    }

    fn write_to(&self, stream: &mut W) -> io::Result<()> {
        stream.write_all(self.value)
    }
}

/// A client with a deadline.
struct Work<'a> {
    client: &'a Client,
    deadline: Instant,
    health: Health,
}

/// Performs a batch. Starts no command after the deadline has passed or the connection has failed.
pub(super) fn perform(client: &Client, commands: &[(String, Command)], deadline: Instant) -> Performed {
    let mut work = Work { client, deadline, health: Health::InStep };
    let mut replies: Vec<Option<Result<Reply, StoreError>>> = vec![None; commands.len()];
    work.read(commands, &first_reads(commands), &mut replies);
    for (nth, (key, command)) in commands.iter().enumerate() {
        if !is_read(command) {
            replies[nth] = Some(work.change(key, command));
        }
    }
    let last: Vec<usize> = (0..replies.len()).filter(|nth| replies[*nth].is_none()).collect();
    work.read(commands, &last, &mut replies);
    undo_later_additions(commands, &last, &mut replies);
    let replies = replies.into_iter().map(|reply| reply.unwrap_or_else(|| Err(error::broken()))).collect();
    Performed { replies, health: work.health }
}

/// Whether it reads. Both reads are the same in the plain protocol.
fn is_read(command: &Command) -> bool {
    matches!(command, Command::ReadCounter | Command::Read)
}

/// The reads that come before everything else: of items that a reset is about to replace. All other reads come after
/// everything else.
fn first_reads(commands: &[(String, Command)]) -> Vec<usize> {
    let mut replaced = HashSet::new();
    let mut reads = Vec::new();
    for (nth, (key, command)) in commands.iter().enumerate().rev() {
        match command {
            Command::Reset { .. } => _ = replaced.insert(key),
            command if is_read(command) && replaced.contains(key) => reads.push(nth),
            _ => {}
        }
    }
    reads
}

/// Subtracts from each read what was added after it in the order of the batch.
fn undo_later_additions(
    commands: &[(String, Command)],
    read: &[usize],
    replies: &mut [Option<Result<Reply, StoreError>>],
) {
    let mut later: HashMap<&str, u64> = HashMap::new();
    let read: HashSet<usize> = read.iter().copied().collect();
    for (nth, (key, command)) in commands.iter().enumerate().rev() {
        if let Command::Add { units, .. } = command
            && matches!(replies[nth], Some(Ok(_)))
        {
            *later.entry(key).or_default() += units;
        }
        let Some(units) = later.get(key.as_str()).filter(|_| read.contains(&nth)) else { continue };
        if let Some(Ok(reply)) = &mut replies[nth]
            && let Ok(Counter::Count(count)) = reply.counter()
        {
            *reply = number(count.saturating_sub(*units));
        }
    }
}

fn number(count: u64) -> Reply {
    let bytes = SmallVec::from_slice(itoa::Buffer::new().format(count).as_bytes());
    Reply::Value { bytes, unique: None, left: None }
}

impl Work<'_> {
    /// Sends one command.
    fn call<T>(&mut self, command: impl FnOnce(&Client) -> Result<T, MemcacheError>) -> Result<T, NoReply> {
        if self.health != Health::InStep {
            return Err(NoReply::Failed(error::broken()));
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoReply::Failed(ERRORS.late().not_applied()));
        }
        // The system has no shorter time limit than one microsecond.
        let left = Some(left.max(Duration::from_micros(1)));
        let limited = self.client.set_read_timeout(left).and_then(|()| self.client.set_write_timeout(left));
        match limited.and_then(|()| command(self.client)) {
            Ok(reply) => Ok(reply),
            Err(MemcacheError::CommandError(CommandError::KeyNotFound)) => Err(NoReply::Missing),
            Err(error) => {
                let fault = Fault::new(error);
                self.health = fault.health;
                Err(NoReply::Failed(fault.failure))
            }
        }
    }

    fn change(&mut self, key: &str, command: &Command) -> Result<Reply, StoreError> {
        let done = match command {
            Command::Add { units, lifetime } => self.add(key, *units, *lifetime),
            Command::Deduction { units } => self.call(|client| client.decrement(key, *units)).map(number),
            Command::Write { value, unique: Some(unique), lifetime } => {
                self.replace_if_same(key, value, *unique, *lifetime)
            }
            Command::Write { value, unique: None, lifetime } => self.create(key, value, *lifetime),
            Command::Reset { mark, lifetime } => {
                let mark = format!("@{mark}");
                self.call(|client| client.replace(key, mark.as_str(), seconds(*lifetime)))
                    .map(|()| Reply::Done)
            }
            Command::Delete => self.call(|client| client.delete(key)).map(|_| Reply::Done),
            Command::ReadCounter | Command::Read => Err(NoReply::Missing),
        };
        match done {
            Ok(reply) => Ok(reply),
            Err(NoReply::Missing) => Ok(Reply::Missing),
            Err(NoReply::Failed(failure)) => Err(failure),
        }
    }

    /// Adds to a counter, creating it with zero if it does not exist. The client does not report whether another writer
    /// created it first, which does not matter here. Adding does not change a counter's lifetime.
    fn add(&mut self, key: &str, units: u64, lifetime: u64) -> Result<Reply, NoReply> {
        for _ in 0..MAKINGS {
            match self.call(|client| client.increment(key, units)) {
                Err(NoReply::Missing) => {
                    let made = self.call(|client| client.add(key, "0", seconds(lifetime)));
                    made.map_err(NoReply::unapplied)?;
                }
                added => return added.map(number),
            }
        }
        let added = self.call(|client| client.increment(key, units)).map(number);
        added.map_err(|ended| match ended {
            NoReply::Missing => NoReply::Failed(error::contended()),
            failed => failed,
        })
    }

    /// Writes an item if it does not exist. First creates an empty one, which is not a state of any meter: the client does
    /// not report whether another writer created it first, but only one of them can replace it.
    fn create(&mut self, key: &str, value: &[u8], lifetime: u64) -> Result<Reply, NoReply> {
        let empty: &[u8] = b"";
        self.call(|client| client.add(key, empty, seconds(lifetime))).map_err(NoReply::unapplied)?;
        let item = self.call(|client| client.get::<Item>(key)).map_err(NoReply::unapplied)?;
        match item {
            Some((bytes, _, Some(unique))) if bytes.is_empty() => {
                self.replace_if_same(key, value, unique, lifetime)
            }
            _ => Ok(Reply::Lost),
        }
    }

    fn replace_if_same(
        &mut self,
        key: &str,
        value: &[u8],
        unique: u64,
        lifetime: u64,
    ) -> Result<Reply, NoReply> {
        let value = Dated { value, end: seconds(end(lifetime, now())) };
        let stored = self.call(|client| client.cas(key, value, seconds(lifetime), unique))?;
        Ok(if stored { Reply::Done } else { Reply::Lost })
    }

    /// Performs the reads with these indices: those of a window's older segments first, so that what is read of them is not
    /// newer than what is read of the current one.
    fn read(
        &mut self,
        commands: &[(String, Command)],
        which: &[usize],
        replies: &mut [Option<Result<Reply, StoreError>>],
    ) {
        let mut keys: Vec<&str> = which.iter().map(|nth| commands[*nth].0.as_str()).collect();
        keys.sort_unstable_by_key(|key| (key.len(), *key));
        keys.dedup();
        let mut found: HashMap<String, Item> = HashMap::new();
        let mut failed: HashMap<&str, StoreError> = HashMap::new();
        for keys in keys.chunks(KEYS) {
            match self.call(|client| client.gets::<Item>(keys)) {
                Ok(items) => found.extend(items),
                Err(NoReply::Missing) => {}
                Err(NoReply::Failed(failure)) => {
                    let failure = failure.not_applied(); // a read changes nothing
                    failed.extend(keys.iter().map(|key| (*key, failure.clone())));
                }
            }
        }
        for nth in which {
            let key = commands[*nth].0.as_str();
            replies[*nth] = Some(match (found.get(key), failed.get(key)) {
                (_, Some(failure)) => Err(failure.clone()),
                (Some((bytes, end, unique)), None) => {
                    let left = (*end > 0).then(|| u64::from(*end).saturating_sub(now()));
                    Ok(Reply::Value { bytes: SmallVec::from_slice(bytes), unique: *unique, left })
                }
                (None, None) => Ok(Reply::Missing),
            });
        }
    }
}

/// Why a command has no reply of its own kind.
enum NoReply {
    /// There is no such item.
    Missing,
    Failed(StoreError),
}

impl NoReply {
    /// So far nothing was counted.
    fn unapplied(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(failure.not_applied()),
            Self::Missing => Self::Missing,
        }
    }
}

/// The second of this machine's clock.
fn now() -> u64 {
    SystemClock::new().now().since(Timestamp::EPOCH).as_secs()
}

/// A lifetime in the client's type.
fn seconds(lifetime: u64) -> u32 {
    u32::try_from(lifetime).unwrap_or(i32::MAX as u32)
}
