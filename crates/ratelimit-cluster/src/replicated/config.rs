//! The configuration and the statistics of `Replicated`.

/// How much a node keeps, and when it considers a peer gone.
///
/// ```
/// use ratelimit_cluster::ReplicaConfig;
///
/// let config = ReplicaConfig::default().max_keys(100_000);
/// assert_eq!(config.silent_intervals, 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaConfig {
    /// The maximum number of meters that are counted at once, including those received from other nodes. 1,000,000 by
    /// default; a claim on another one is an error of the kind [`Full`](ratelimit_core::ErrorKind::Full).
    ///
    /// It also bounds how much memory the state of another node may take while it is received: 1 MiB for each of these
    /// meters, but all together at most 1 GiB, or 256 bytes for each if that is more. A longer state is
    /// [dropped](ReplicaStats::dropped_states).
    pub max_keys: usize,
    /// How many bytes of sent updates are kept for nodes that missed them. 16 MiB by default. Choose it large enough for
    /// the updates of the longest expected network partition. It also bounds the updates that a node keeps while it
    /// joins.
    pub history_bytes: usize,
    /// The number of intervals without a message from a node after which it no longer counts as one of the
    /// [`peers`](crate::Replicated::peers), and receives no more requests. 10 by default.
    pub silent_intervals: u32,
    /// The identifier of this run of the node. `None`, the default, draws it at random. Set it only in a test that must be
    /// repeatable: no two runs may ever have the same identifier.
    pub id: Option<u128>,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, history_bytes: 16 << 20, silent_intervals: 10, id: None }
    }
}

impl ReplicaConfig {
    ratelimit_core::kit::setters! {
        max_keys: usize,
        history_bytes: usize,
        silent_intervals: u32,
        id: impl Into<Option<u128>>,
    }
}

/// What a node has sent and received since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStats {
    /// Messages sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages received from other nodes.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Updates of other nodes that were counted.
    pub applied: u64,
    /// Updates that were received again and not counted again.
    pub repeated: u64,
    /// How often updates of another node were missing for good, so that this node requested the state of their sender
    /// instead.
    pub given_up: u64,
    /// Received states that were longer than [`ReplicaConfig::max_keys`] allows, so that this node lacks their units.
    pub dropped_states: u64,
    /// Received messages that were not valid.
    pub malformed: u64,
    /// Received meters that could not be counted: the node was full, or counts the meters in other segments of time.
    pub uncounted: u64,
    /// Meters that could not be sent, because their names do not fit in a message.
    pub too_large: u64,
}
