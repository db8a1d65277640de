//! The type `Replicated`, and its implementations of the store traits.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{
    Answer, Claim, Claims, Decisions, MeterId, Mode, Promises, Refund, Time, Verdict,
};
use ratelimit_core::{CounterStore, StoreError, SyncCounterStore, Timestamp};

use super::config::{ReplicaConfig, ReplicaStats};
use super::message::NodeId;
use super::session::Session;
use super::transport::Transport;
use crate::ledger::{Ledger, counter_store_methods, sync_counter_store_methods};
use crate::table::lock;

/// A store that decides every claim in this process, and broadcasts its charges to the other nodes once an interval.
///
/// # What it guarantees
/// One node by itself never admits more than the limit; charges of other nodes count as soon as they are received. So *n* nodes
/// admit at most *n* times the limit, whatever messages are lost. While messages arrive, a node only lacks what the
/// others admitted in the last interval, and what is in transit. A slice is admitted whole or not at all.
///
/// Each update counts once, even if it arrives late, repeatedly or out of order. A lost update is sent again. An update
/// that could not be sent is kept and sent later. A node that joins first receives the current state of another node.
///
/// # What it costs
/// A check costs as much as in memory, and never a round trip. Each interval a node sends one message, or as many as it needs
/// for the meters that were charged in it; each message goes to all nodes. A node that crashes loses its last interval.
///
/// # Clocks
/// Limits are counted by the callers' clocks, which should be synchronised. Units from a clock that is ahead move the meter
/// forward, as they would in a shared store.
///
/// # Limits that it cannot count
/// Fixed windows that start with a key's first request, buckets that are refilled in steps, and quotas in total: nodes that
/// count for themselves cannot agree on when a key's first request was. A check under such a limit is an error
/// ([`ErrorKind::Unsupported`](ratelimit_core::ErrorKind::Unsupported)). Use a shared store itself, or
/// [`Leased`](crate::Leased).
///
/// # Reset
/// A reset affects only this node: it is not sent to the others. What this node charged before it is still sent,
/// unless more than a thousand other charges wait beside it.
///
/// # Trust
/// Bytes that are not a message are dropped. But a program that can write to the channel can make nodes count any units.
///
/// ```
/// use std::time::Duration;
///
/// use ratelimit_cluster::{Hub, Replicated};
/// use ratelimit_core::{Limit, RateLimiter, SystemClock};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = Hub::new(); // in production a `RedisTransport` or a `PostgresTransport`
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
    pub(super) session: Mutex<Session>,
    pub(super) stats: Mutex<ReplicaStats>,
    /// The error of the latest broadcast.
    pub(super) outage: Mutex<Option<String>>,
}

impl<T: Transport> Replicated<T> {
    /// Creates a node without any meters, with the default configuration.
    pub fn new(transport: T) -> Self {
        Self::with_config(transport, ReplicaConfig::default())
    }

    /// Creates a node without any meters.
    pub fn with_config(transport: T, config: ReplicaConfig) -> Self {
        let random = || RandomState::new().hash_one(());
        let id = config.id.unwrap_or_else(|| u128::from(random()) << 64 | u128::from(random()));
        let session =
            Session::new(NodeId(id.to_be_bytes()), config.history_bytes, u64::from(config.silent_intervals));
        let (session, stats, outage) = (Mutex::new(session), Mutex::default(), Mutex::default());
        Self { transport, config, ledger: Ledger::new(config.max_keys, None), session, stats, outage }
    }

    /// The transport of the messages.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The number of meters that this node counts.
    pub fn len(&self) -> usize {
        self.ledger.len()
    }

    /// Whether this node counts no meters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of other nodes that sent a message in the last [`ReplicaConfig::silent_intervals`] intervals and have not left.
    pub fn peers(&self) -> usize {
        lock(&self.session).peer_count()
    }

    /// Whether this node has received the state of another node, or no other node has sent one. Until then, it broadcasts
    /// no charges and decides by its own charges only. It does not finish joining while the channel cannot be reached. A
    /// node that has joined stays so; [`outage`](Self::outage) says whether it reaches the others now.
    pub fn has_joined(&self) -> bool {
        lock(&self.session).joining.is_none()
    }

    /// The error of the latest [`broadcast`](Self::broadcast), if it failed: the other nodes do not learn what this one
    /// charges. [`run`](Self::run) tries again each interval, and then sends everything. For a health check or a metric.
    pub fn outage(&self) -> Option<String> {
        lock(&self.outage).clone()
    }

    /// The numbers of messages that were sent and received.
    pub fn stats(&self) -> ReplicaStats {
        let (given_up, dropped_states) = {
            let session = lock(&self.session);
            (session.given_up, session.dropped_states)
        };
        ReplicaStats { given_up, dropped_states, ..*lock(&self.stats) }
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

impl<T: Transport> CounterStore for Replicated<T> {
    counter_store_methods!();

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.ledger.reset_now(claims, true);
        Ok(())
    }
}

impl<T: Transport> SyncCounterStore for Replicated<T> {
    sync_counter_store_methods!();

    fn reset_now(&self, claims: Claims<'_>) {
        self.ledger.reset_now(claims, true);
    }
}
