//! `Replicated`: counts here, and tells the others each interval.

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use ratelimit_core::{
    Answer, Claims, CounterStore, Decisions, Meter, MeterId, Mode, Promises, Refund, StoreError,
    SyncCounterStore, Time, Timer, Timestamp, Verdict,
};

use super::config::{ReplicaConfig, ReplicaStats};
use super::hearing::Reply;
use super::message::{self, Id};
use super::talk::Talk;
use super::transport::{Transport, TransportError};
use super::wire::Malformed;
use crate::ledger::{Ledger, answer, answer_now};
use crate::names::lock;

/// How long it is waited before it is tried again to receive.
const PAUSE: Duration = Duration::from_millis(100);

/// A store that decides every claim in this process, and tells the other nodes each interval what was charged.
///
/// # What it guarantees
/// By its own units alone a node never admits more than the limit; what others have charged counts as soon as it has come.
/// So *n* nodes admit at most *n* times the limit, whatever is lost or cut; while messages arrive, each node misses what the
/// others have admitted in the last interval and what is on its way. A slice is admitted whole or not at all.
///
/// Each update is counted once, however late, often and out of order it comes. One that got lost is told again. What could
/// not be sent stays until it can be. A node that joins is told the present state first.
///
/// # What it costs
/// A check costs what it costs in memory, and no trip ever. Each interval a node sends one message, or as many as the meters
/// need that were charged in it; each goes to all nodes. A node that crashes has not told its last interval.
///
/// # Clocks
/// Limits are counted by the callers' clocks, which should be synchronised. Units that come from a clock that is ahead move
/// the meter on, as they would on a shared store.
///
/// # Reset
/// A reset is this node's alone: others are not told.
///
/// # Trust
/// Bytes that are no message are dropped. But who can write to the channel can have any units counted.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_cluster::{Hub, Replicated};
/// use ratelimit_core::{Limit, RateLimiter, SystemClock};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = Hub::new(); // in earnest a `RedisTransport` or a `PostgresTransport`
/// let store = std::sync::Arc::new(Replicated::new(hub.transport()));
/// let limiter = RateLimiter::new(store.clone(), "10000/min".parse::<Limit>()?);
/// tokio::spawn({
///     let store = store.clone();
///     async move { store.run(SystemClock::new(), Duration::from_secs(1)).await }
/// });
/// assert!(limiter.check_now("user:7")?.allowed());
/// # Ok(())
/// # }
/// ```
pub struct Replicated<T> {
    pub(super) transport: T,
    pub(super) config: ReplicaConfig,
    pub(super) ledger: Ledger,
    pub(super) talk: Mutex<Talk>,
    pub(super) stats: Mutex<ReplicaStats>,
}

impl<T: Transport> Replicated<T> {
    /// A node that knows nothing yet, by the default configuration.
    pub fn new(transport: T) -> Self {
        Self::with_config(transport, ReplicaConfig::default())
    }

    /// A node that knows nothing yet.
    pub fn with_config(transport: T, config: ReplicaConfig) -> Self {
        let random = || RandomState::new().hash_one(());
        let id = config.id.unwrap_or_else(|| u128::from(random()) << 64 | u128::from(random()));
        let talk = Talk::new(Id(id.to_be_bytes()), config.keep, u64::from(config.patience));
        let (talk, stats) = (Mutex::new(talk), Mutex::default());
        Self { transport, config, ledger: Ledger::new(config.max_keys, None), talk, stats }
    }

    /// What carries the messages.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Of how many meters this node knows something.
    pub fn len(&self) -> usize {
        self.ledger.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many other nodes have been heard of in the last [`ReplicaConfig::patience`] intervals and have not left.
    pub fn peers(&self) -> usize {
        lock(&self.talk).peers()
    }

    /// Whether this node has learned the state from another one, or has found that nobody is there to tell it. Until then it
    /// tells nothing, and decides by what it has charged itself; so it does while the channel cannot be reached when it
    /// begins.
    pub fn has_joined(&self) -> bool {
        lock(&self.talk).joining.is_none()
    }

    /// What was said and heard.
    pub fn stats(&self) -> ReplicaStats {
        let given_up = lock(&self.talk).given_up;
        ReplicaStats { given_up, ..*lock(&self.stats) }
    }

    /// Receives for ever, and tells at once and then each time that `interval` has passed: to be spawned. What cannot be sent
    /// or received is tried again.
    pub async fn run<C: Timer>(&self, clock: C, interval: Duration) {
        let telling = async {
            loop {
                let _ = self.tell(clock.now()).await;
                clock.sleep(interval).await;
            }
        };
        let (mut listening, mut telling) = (pin!(self.listen(&clock)), pin!(telling));
        poll_fn(|context| -> Poll<()> {
            let _: Poll<()> = telling.as_mut().poll(context);
            let _: Poll<()> = listening.as_mut().poll(context);
            Poll::Pending
        })
        .await;
    }

    /// Receives for ever; for those who call [`tell`](Self::tell) themselves.
    pub async fn listen<C: Timer>(&self, clock: &C) {
        loop {
            match self.transport.receive().await {
                Ok(message) => self.hear(&message, clock.now()).await,
                Err(_) => clock.sleep(PAUSE).await,
            }
        }
    }

    /// Tells what was charged since it was last called, and asks for what is missing. To be called each interval.
    ///
    /// # Errors
    /// If it could not be sent. Nothing is lost by that: it is sent by the next call.
    pub async fn tell(&self, now: Timestamp) -> Result<(), TransportError> {
        if !self.flush(now).await? {
            let pulse = {
                let talk = lock(&self.talk);
                message::pulse(talk.id, talk.outbox.newest(), talk.outbox.oldest())
            };
            self.send(&[pulse.into()]).await?;
        }
        let (questions, held) = lock(&self.talk).beat();
        self.count_held(&held);
        if questions.is_empty() { Ok(()) } else { self.send(&questions).await }
    }

    /// Tells what has not been told, and says farewell: what a node does before it ends.
    ///
    /// # Errors
    /// If it could not be sent; the others then miss what was charged since the last time, and count this node for a while.
    pub async fn leave(&self, now: Timestamp) -> Result<(), TransportError> {
        let held = lock(&self.talk).joined();
        self.count_held(&held);
        self.flush(now).await?;
        let leave = message::leave(lock(&self.talk).id);
        self.send(&[leave.into()]).await
    }

    /// Takes in a message, and answers if it asks for something. [`listen`](Self::listen) does this with all that come; it
    /// is for those who receive by themselves. An answer that cannot be sent is asked for again.
    pub async fn hear(&self, message: &[u8], now: Timestamp) {
        match self.take_in(message) {
            Ok(Some(Reply::Messages(messages))) => drop(self.send(&messages).await),
            Ok(Some(Reply::State(to, question))) => drop(self.tell_state((to, question), now).await),
            Ok(None) => {}
            Err(Malformed) => lock(&self.stats).malformed += 1,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Replicated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated")
            .field("transport", &self.transport)
            .field("config", &self.config)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<T: Transport> CounterStore for Replicated<T> {
    answer!();

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.ledger.reset_now(claims);
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl<T: Transport> SyncCounterStore for Replicated<T> {
    answer_now!();

    fn reset_now(&self, claims: Claims<'_>) {
        self.ledger.reset_now(claims);
    }
}
