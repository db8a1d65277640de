//! A store of your own with a server: meters on Redis, decided here, written by compare-and-set.
//!
//! Each call guesses the server's values (those it had last), lets the library decide on them, and sends the version of
//! the guess with the result. If the guess was right, as it is if no other client wrote, that was one round trip.
//! Otherwise the server returns its values, and the call decides again. The guide *Writing a store* explains it.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::time::Duration;

use ratelimit_core::{
    Answer, Applied, CLOCK_SLACK, Claims, CounterStore, Decisions, ErrorKind, Meter, MeterId, Promises,
    Refund, State, StoreError, Time, Timestamp, decide, refund,
};
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, FromRedisValue, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

const SCRIPT: &str = include_str!("compare_and_set.lua");

/// How often a call decides again because other clients have written in between. A client that has just written knows the
/// versions, and wins against one that does not: on a busy machine a hundred times in a row.
const TRIES: usize = 1_000;

/// The maximum number of meters for which a guess is kept.
const GUESSES: usize = 10_000;

/// A store that keeps meters on a Redis server.
pub struct RemoteStore {
    client: Client,
    prefix: Vec<u8>,
    time_limit: Duration,
    /// One call at a time: concurrent calls would only conflict with each other.
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    connection: Option<MultiplexedConnection>,
    /// The server's last known values. They may be wrong; then the server says so.
    guesses: HashMap<Vec<u8>, Versioned>,
}

/// The server's value of a meter, and a version that changes with each write.
#[derive(Clone)]
struct Versioned {
    version: [u8; 8],
    state: State,
}

/// The meters of a call, each once, with the guessed values and those to write.
struct Meters {
    names: Vec<Vec<u8>>,
    thought: Vec<Option<Versioned>>,
    states: Vec<Option<State>>,
    lifetimes: Vec<Option<Duration>>,
}

impl RemoteStore {
    /// Connects to the server at `url`. Keys begin with `prefix`; no call takes longer than `time_limit`.
    ///
    /// # Errors
    /// If the address is not valid or the server does not answer.
    pub async fn connect(url: &str, prefix: &str, time_limit: Duration) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(|error| {
            StoreError::new("remote", ErrorKind::Misconfigured, "the URL is not valid").caused_by(error)
        })?;
        let prefix = prefix.as_bytes().to_vec();
        let store = Self { client, prefix, time_limit, link: Mutex::default() };
        store.in_time(async { store.connection(&mut *store.link.lock().await).await.map(drop) }).await?;
        Ok(store)
    }

    /// Limits the whole call to the time limit, whatever it waits for: other calls, a connection, an answer.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        timeout(self.time_limit, call).await.unwrap_or_else(|_| {
            let message = format!("no answer within {:?}", self.time_limit);
            Err(StoreError::new("remote", ErrorKind::Timeout, message).at(self.address()))
        })
    }

    /// Returns the connection, or a new one if the last one was lost.
    async fn connection(&self, link: &mut Link) -> Result<MultiplexedConnection, StoreError> {
        if let Some(connection) = &link.connection {
            return Ok(connection.clone());
        }
        let connected = self.client.get_multiplexed_async_connection().await;
        let connection = connected.map_err(|error| self.failed(error).not_applied())?;
        Ok(link.connection.insert(connection).clone())
    }

    /// Sends a request and returns its answer. Dropping the future leaves the connection usable: later answers are
    /// still matched to their requests.
    async fn ask<T: FromRedisValue>(&self, link: &mut Link, command: &Cmd) -> Result<T, StoreError> {
        let answer = command.query_async(&mut self.connection(link).await?).await;
        answer.map_err(|error| {
            link.connection = None;
            self.failed(error)
        })
    }

    /// Runs `work` on the states of these meters until it was based on the server's actual values.
    async fn change<T>(
        &self,
        mut names: Vec<Vec<u8>>,
        mut work: impl FnMut(&mut Meters) -> T,
    ) -> Result<T, StoreError> {
        names.sort();
        names.dedup();
        self.in_time(async {
            let mut link = self.link.lock().await;
            for _ in 0..TRIES {
                let mut meters = link.guess(&names);
                let done = work(&mut meters);
                let changed = meters.changed();
                let found: Vec<Vec<u8>> = self.ask(&mut link, &meters.command(&changed)).await?;
                if found.is_empty() {
                    link.learn(
                        meters.names.into_iter().zip(changed).filter(|(_, changed)| changed.is_some()),
                    );
                    return Ok(done);
                }
                let found = found.iter().map(|value| self.read(value)).collect::<Result<Vec<_>, _>>()?;
                link.learn(names.iter().cloned().zip(found));
            }
            let message = format!("other clients changed the meters during all {TRIES} attempts");
            Err(StoreError::new("remote", ErrorKind::Contended, message).at(self.address()).not_applied())
        })
        .await
    }

    fn read(&self, value: &[u8]) -> Result<Option<Versioned>, StoreError> {
        let Some((version, state)) = value.split_first_chunk() else { return Ok(None) };
        let state = State::from_bytes(state).map_err(|error| {
            StoreError::new("remote", ErrorKind::Corrupt, error.to_string()).at(self.address())
        })?;
        Ok(Some(Versioned { version: *version, state }))
    }

    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        [self.prefix.as_slice(), &id.to_bytes()].concat()
    }

    fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// The same error for a further check of the batch.
    fn again(&self, error: &StoreError) -> StoreError {
        let again = StoreError::new("remote", error.kind(), "the batch failed").at(self.address());
        if error.applied() == Applied::No { again.not_applied() } else { again.maybe_applied() }
    }

    /// A request that was sent may have been executed, unless the server says that it was not.
    fn failed(&self, error: RedisError) -> StoreError {
        let (kind, message) = if error.is_timeout() {
            (ErrorKind::Timeout, "no answer in time")
        } else if error.is_io_error() || error.is_unrecoverable_error() {
            (ErrorKind::Unreachable, "the connection failed")
        } else {
            return StoreError::new("remote", ErrorKind::Server, "the server returned an error")
                .at(self.address())
                .caused_by(error);
        };
        StoreError::new("remote", kind, message).at(self.address()).caused_by(error).maybe_applied()
    }
}

impl Link {
    fn guess(&self, names: &[Vec<u8>]) -> Meters {
        let thought: Vec<_> = names.iter().map(|name| self.guesses.get(name).cloned()).collect();
        let states =
            thought.iter().map(|thought| thought.as_ref().map(|thought| thought.state.clone())).collect();
        Meters { names: names.to_vec(), thought, states, lifetimes: vec![None; names.len()] }
    }

    fn learn(&mut self, meters: impl Iterator<Item = (Vec<u8>, Option<Versioned>)>) {
        if self.guesses.len() > GUESSES {
            self.guesses.clear();
        }
        for (name, versioned) in meters {
            match versioned {
                Some(versioned) => self.guesses.insert(name, versioned),
                None => self.guesses.remove(&name),
            };
        }
    }
}

impl Meters {
    fn place(&self, name: &[u8]) -> usize {
        self.names.binary_search_by(|other| other.as_slice().cmp(name)).unwrap_or_default()
    }

    fn write(&mut self, place: usize, state: Option<State>, meter: &Meter, now: Timestamp) {
        let lifetime = state.as_ref().map(|state| meter.forget_at(state).since(now) + CLOCK_SLACK);
        (self.states[place], self.lifetimes[place]) = (state, lifetime);
    }

    /// The values to write, each with a version that no other write has.
    fn changed(&self) -> Vec<Option<Versioned>> {
        let changed = self.states.iter().zip(&self.lifetimes).map(|(state, lifetime)| {
            let state = state.clone().filter(|_| lifetime.is_some())?;
            // Each `RandomState` has different keys.
            Some(Versioned { version: RandomState::new().hash_one(()).to_be_bytes(), state })
        });
        changed.collect()
    }

    /// The script call with the guessed versions and the values to write.
    fn command(&self, changed: &[Option<Versioned>]) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(self.names.len()).arg(&self.names);
        for ((thought, changed), lifetime) in self.thought.iter().zip(changed).zip(&self.lifetimes) {
            command.arg(thought.as_ref().map_or(&[][..], |thought| &thought.version));
            match (changed, lifetime) {
                (Some(Versioned { version, state }), Some(lifetime)) => {
                    let value = [&version[..], &state.to_bytes()].concat();
                    // Rounded up to whole milliseconds, so that no meter expires too early.
                    command.arg(value).arg(lifetime.as_millis().saturating_add(1).to_string())
                }
                _ => command.arg("").arg(""),
            };
        }
        command
    }
}

impl fmt::Debug for RemoteStore {
    // A derived one would print keys and the address, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").finish_non_exhaustive()
    }
}

impl CounterStore for RemoteStore {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let mut answers = self.claim_many(&[claims]).await;
        answers.pop().unwrap_or_else(|| Err(StoreError::new("remote", ErrorKind::Server, "no answer")))
    }

    /// All checks in one round trip: each is decided on the states after the one before it.
    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if slices.is_empty() {
            return Vec::new();
        }
        let mut names = Vec::new();
        for claims in slices {
            names.extend(claims.iter().map(|claim| self.name(&claim.id)));
        }
        let decided = self.change(names, |meters| {
            let decide_one = |claims: &Claims<'_>| {
                let places: Vec<_> = claims.iter().map(|claim| meters.place(&self.name(&claim.id))).collect();
                let mut states: Vec<_> = places.iter().map(|place| meters.states[*place].clone()).collect();
                let answer = decide(claims, &mut states);
                let charged = claims.iter().zip(places.into_iter().zip(states));
                for (claim, (place, state)) in charged.filter(|(claim, _)| answer.charged && claim.cost > 0) {
                    meters.write(place, state, &claim.meter, claims.now());
                }
                answer
            };
            slices.iter().map(decide_one).collect::<Vec<_>>()
        });
        match decided.await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => slices.iter().map(|_| Err(self.again(&error))).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if refunds.is_empty() {
            return Ok(());
        }
        let names = refunds.iter().map(|given| self.name(&given.id)).collect();
        self.change(names, |meters| {
            for given in refunds {
                let place = meters.place(&self.name(&given.id));
                let mut state = meters.states[place].clone();
                if refund(&given.meter, &mut state, given.cost, given.receipt, now) {
                    meters.write(place, state, &given.meter, now);
                }
            }
        })
        .await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let names: Vec<_> = claims.iter().map(|claim| self.name(&claim.id)).collect();
        self.in_time(async {
            let mut link = self.link.lock().await;
            self.ask::<()>(&mut link, redis::cmd("DEL").arg(&names)).await?;
            link.learn(names.into_iter().map(|name| (name, None)));
            Ok(())
        })
        .await
    }
}
