//! The configuration from a URL.

use ratelimit_core::{StoreError, StoreUrl};

use crate::config::{MemoryConfig, WhenFull};

/// The names of a URL's options.
const OPTIONS: &[&str] = &["max_keys", "shards", "when_full"];

impl MemoryConfig {
    /// Parses the configuration from the query of `url`: `memory:?max_keys=1000000`.
    ///
    /// | option | takes | sets |
    /// |---|---|---|
    /// | `max_keys` | a number | [`max_keys`](Self::max_keys) |
    /// | `shards` | a number | [`shards`](Self::shards) |
    /// | `when_full` | `evict` or `refuse` | [`when_full`](Self::when_full) |
    ///
    /// ```
    /// use ratelimit_memory::{MemoryConfig, WhenFull};
    ///
    /// let config = MemoryConfig::from_url("memory:?max_keys=1000000&when_full=refuse")?;
    /// assert_eq!((config.max_keys, config.when_full), (Some(1_000_000), WhenFull::Refuse));
    ///
    /// let error = MemoryConfig::from_url("memory:?max=1000000").unwrap_err();
    /// assert!(error.to_string().ends_with("there is no option `max`; the options are `max_keys`, `shards`, `when_full`"));
    /// # Ok::<(), ratelimit_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// If an option is unknown, or its value is not valid.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let mut config = Self::default();
        for option in StoreUrl::parse("memory", url)?.options() {
            match option.name() {
                "max_keys" => config.max_keys = Some(option.number()?),
                "shards" => config.shards = option.number()?,
                "when_full" => {
                    let choices = [("evict", WhenFull::Evict), ("refuse", WhenFull::Refuse)];
                    config.when_full = option.one_of(&choices)?;
                }
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        Ok(config)
    }
}
