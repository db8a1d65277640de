//! The configuration of `Synced`.

/// How many meters a [`Synced`](crate::Synced) counts, and how it sends them to the store.
///
/// ```
/// use ratelimit_cluster::SyncConfig;
///
/// let config = SyncConfig::default().max_keys(5_000_000);
/// assert_eq!(config.batch_size, 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncConfig {
    /// The maximum number of meters that are counted at once; a check of another one is an error
    /// ([`ErrorKind::Full`](ratelimit_core::ErrorKind::Full)). 1,000,000 by default.
    pub max_keys: usize,
    /// The number of meters in one batch to the store. 500 by default.
    pub batch_size: usize,
    /// The number of batches in flight at once. 4 by default.
    pub concurrent_batches: usize,
    /// The seed for the keys of the hash table and for the order in which meters are sent. `None`, the default, draws it at
    /// random. Set it only in a test that must be repeatable: clients that know the seed can choose keys that collide.
    pub seed: Option<u64>,
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, batch_size: 500, concurrent_batches: 4, seed: None }
    }
}

impl SyncConfig {
    ratelimit_core::kit::setters! {
        max_keys: usize,
        batch_size: usize,
        concurrent_batches: usize,
        seed: impl Into<Option<u64>>,
    }
}
