//! What a node keeps, and what it has said and heard.

/// What a node keeps, and how long it counts the others.
///
/// ```
/// use ratelimit_cluster::ReplicaConfig;
///
/// let config = ReplicaConfig { max_keys: 100_000, ..ReplicaConfig::default() };
/// assert_eq!(config.patience, 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The most meters that are counted at once, those that others have told included. 1,000,000 by default; a claim on a
    /// further one is an error of the kind [`Full`](ratelimit_core::ErrorKind::Full).
    pub max_keys: usize,
    /// How many bytes of what was told are kept, to be told again to those who have missed it. 16 MiB by default: what a
    /// node tells in the time for which another one may be cut off should fit.
    pub keep: usize,
    /// After so many silent intervals a node is not counted any more among [`peers`](crate::Replicated::peers), nor asked. 10 by
    /// default.
    pub patience: u32,
    /// The name of this life of the node. Drawn at random if there is none, as it should be but in a test that is to be
    /// repeated: no two may ever be the same.
    pub id: Option<u128>,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, keep: 16 << 20, patience: 10, id: None }
    }
}

/// What a node has said and heard since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStats {
    /// Messages sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages of others received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Updates of others counted.
    pub applied: u64,
    /// Updates that came again and were not counted again.
    pub repeated: u64,
    /// How often updates were given up that nobody could tell again; the state of their origin was asked for instead.
    pub given_up: u64,
    /// Messages that were none.
    pub malformed: u64,
    /// Meters told by others that could not be counted: there was no room, or they count in other segments here.
    pub uncounted: u64,
    /// Meters that could not be told: their names are longer than a message may be.
    pub untold: u64,
}
