//! The configuration of `Synced`.

/// Limits of a [`Synced`](crate::Synced).
///
/// ```
/// use ratelimit_cluster::SyncConfig;
///
/// let config = SyncConfig::default().max_keys(5_000_000);
/// assert_eq!(config.batch, 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncConfig {
    /// The most meters that are counted at once; a check of another one is an error
    /// ([`ErrorKind::Full`](ratelimit_core::ErrorKind::Full)). 1,000,000 by default.
    pub max_keys: usize,
    /// The number of meters in one batch to the store. 500 by default.
    pub batch: usize,
    /// The number of batches in flight at once. 4 by default.
    pub at_once: usize,
    /// The seed for the keys of the hash table and for the order in which meters are sent. `None`, the default, draws it at
    /// random. Set it only in a test that must be repeatable: clients that know the seed can choose keys that collide.
    pub seed: Option<u64>,
}

impl Default for SyncConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, batch: 500, at_once: 4, seed: None }
    }
}

impl SyncConfig {
    /// Sets [`max_keys`](Self#structfield.max_keys).
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets [`batch`](Self#structfield.batch).
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Sets [`at_once`](Self#structfield.at_once).
    #[must_use]
    pub fn at_once(mut self, at_once: usize) -> Self {
        self.at_once = at_once;
        self
    }

    /// Sets [`seed`](Self#structfield.seed): a number, or `None` to draw it at random.
    #[must_use]
    pub fn seed(mut self, seed: impl Into<Option<u64>>) -> Self {
        self.seed = seed.into();
        self
    }
}
