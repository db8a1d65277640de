//! The configuration from a URL.

use ratelimit_core::store::StoreUrl;
use ratelimit_core::{ErrorKind, StoreError};

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
    /// If an option is unknown, or its value is not valid, or if there is anything else behind `memory:`.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let mut config = Self::default();
        let url = StoreUrl::parse("memory", url)?;
        if !matches!(url.base(), "memory" | "memory:" | "memory://") {
            let message = "the address is not valid; it looks like `memory:?max_keys=1000000`";
            return Err(StoreError::new("memory", ErrorKind::Misconfigured, message));
        }
        for option in url.options() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_behind_a_question_mark() {
        for wrong in ["memory:max_keys=1000", "memory:&max_keys=1000", "memory://max_keys=1", "redis:", ""] {
            let error = MemoryConfig::from_url(wrong).expect_err(wrong);
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(error.to_string().contains("`memory:?max_keys=1000000`"), "{error}");
        }
        for right in ["memory", "memory:", "memory://", "memory?max_keys=7", "memory:?max_keys=7"] {
            assert!(MemoryConfig::from_url(right).is_ok(), "{right}");
        }
    }
}
