//! Parses a configuration from an address.

use ratelimit_core::{StoreError, StoreUrl, UrlOption};

use crate::config::MemcachedConfig;
use crate::distribution::Distribution;

/// The names of the options.
const OPTIONS: &[&str] = &[
    "authorities",
    "client_certificate",
    "client_key",
    "clock_slack",
    "connections",
    "distribution",
    "max_item_size",
    "prefix",
    "timeout",
];

impl MemcachedConfig {
    /// Parses the configuration from `url`, which begins with the addresses of the servers:
    ///
    /// - `memcached://[user:password@]host[:port][,host[:port]…]`, where `memcached://` is optional;
    /// - `memcacheds://…`, the same with TLS (feature `tls`);
    /// - `memcached+unix://[user:password@]/path/to/socket`.
    ///
    /// User, password and the path of a socket are percent-decoded: write `@` as `%40`, `,` as `%2C`, `/` (in a
    /// password) as `%2F`, `#` as `%23`, `?` as `%3F`. Write user and password once, before the first server. The query
    /// contains options:
    ///
    /// | option | value | sets |
    /// |---|---|---|
    /// | `authorities` | the path of a file | [`authorities`](Self::authorities) |
    /// | `client_certificate` | the path of a file | [`client_certificate`](Self::client_certificate) |
    /// | `client_key` | the path of a file | [`client_key`](Self::client_key) |
    /// | `clock_slack` | a duration: `10s` | [`clock_slack`](Self::clock_slack) |
    /// | `connections` | a number | [`connections`](Self::connections) |
    /// | `distribution` | `rendezvous` or `ketama` | [`distribution`](Self::distribution) |
    /// | `max_item_size` | a number of bytes | [`max_item_size`](Self::max_item_size) |
    /// | `prefix` | text | [`prefix`](Self::prefix) |
    /// | `timeout` | a duration: `200ms` | [`timeout`](Self::timeout) |
    ///
    /// ```
    /// use ratelimit_memcached::MemcachedConfig;
    ///
    /// let config = MemcachedConfig::from_url("memcached://cache-1,cache-2?timeout=100ms&connections=4")?;
    /// assert_eq!(config.servers, ["cache-1", "cache-2"]);
    /// assert_eq!((config.timeout.as_millis(), config.connections), (100, 4));
    ///
    /// let error = MemcachedConfig::from_url("memcached://cache-1?timout=100ms").unwrap_err();
    /// assert!(error.to_string().contains("there is no option `timout`; the options are `authorities`"));
    /// # Ok::<(), ratelimit_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// If an option is unknown, if its value is not valid, or if a file cannot be read. The addresses of the servers are
    /// checked by [`MemcachedStore::connect`](crate::MemcachedStore::connect) and
    /// [`lazy`](crate::MemcachedStore::lazy).
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let url = StoreUrl::parse("memcached", url)?;
        let mut config = Self::of(url.base());
        for option in url.options() {
            match option.name() {
                "authorities" => config.authorities = Some(file(option)?),
                "client_certificate" => config.client_certificate = Some(file(option)?),
                "client_key" => config.client_key = Some(file(option)?),
                "clock_slack" => config.clock_slack = option.duration()?,
                "connections" => config.connections = option.number()?,
                "distribution" => {
                    let choices =
                        [("rendezvous", Distribution::Rendezvous), ("ketama", Distribution::Ketama)];
                    config.distribution = option.one_of(&choices)?;
                }
                "max_item_size" => config.max_item_size = option.number()?,
                "prefix" => option.text().clone_into(&mut config.prefix),
                "timeout" => config.timeout = option.duration()?,
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        Ok(config)
    }
}

/// The contents of the file that an option names.
fn file(option: &UrlOption<'_>) -> Result<Vec<u8>, StoreError> {
    std::fs::read(option.text()).map_err(|_| option.expected("the path of a file that can be read"))
}
