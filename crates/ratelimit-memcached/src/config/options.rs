//! Parses a configuration from an address.

use percent_encoding::percent_decode_str;
use ratelimit_core::StoreError;
use ratelimit_core::store::StoreUrl;
use ratelimit_store_kit::options;

use crate::config::MemcachedConfig;
use crate::config::distribution::Distribution;
use crate::error::ERRORS;

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
        let url = StoreUrl::parse(ERRORS.store(), url)?;
        let mut config = Self::of(url.base());
        for option in url.options() {
            match option.name() {
                "authorities" => config.authorities = Some(options::file(option)?),
                "client_certificate" => config.client_certificate = Some(options::file(option)?),
                "client_key" => config.client_key = Some(options::file(option)?),
                "clock_slack" => config.clock_slack = option.duration()?,
                "connections" => config.connections = option.number()?,
                "distribution" => {
                    let choices =
                        [("rendezvous", Distribution::Rendezvous), ("ketama", Distribution::Ketama)];
                    config.distribution = option.one_of(&choices)?;
                }
                "max_item_size" => config.max_item_size = option.number()?,
                "prefix" => option.text().clone_into(&mut config.prefix),
                "timeout" => config.timeout = options::time_limit(option)?,
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        Ok(config)
    }

    /// The defaults for the servers in an address without options. Validates nothing: an invalid part ends up in `servers`,
    /// where it is not a valid address.
    pub(crate) fn of(url: &str) -> Self {
        let (tls, is_socket, rest) = if let Some(rest) = url.strip_prefix("memcacheds://") {
            (true, false, rest)
        } else if let Some(rest) = url.strip_prefix("memcached+unix://") {
            (false, true, rest)
        } else {
            (false, false, url.strip_prefix("memcached://").unwrap_or(url))
        };
        let log_in = rest.split_once('@').map(|(log_in, rest)| (parse_log_in(log_in), rest));
        let ((user, password), rest) = match log_in {
            Some((Some(log_in), rest)) => (log_in, rest),
            _ => ((None, None), rest),
        };
        let servers = if is_socket {
            // An invalid path must not be taken for a host.
            let path = rest.starts_with('/').then(|| decode(rest)).flatten();
            vec![path.unwrap_or_else(|| url.to_owned())]
        } else {
            rest.trim_end_matches('/').split(',').map(|server| server.trim().to_owned()).collect()
        };
        Self { servers, tls, user, password, ..Self::default() }
    }
}

/// `user:password`, percent-encoded. `None` if that cannot be decoded.
fn parse_log_in(text: &str) -> Option<(Option<String>, Option<String>)> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Some((Some(decode(user)?), Some(decode(password)?)))
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::address::Address;

    fn servers(url: &str) -> Vec<Option<String>> {
        MemcachedConfig::of(url)
            .servers
            .iter()
            .map(|server| Address::parse(server).map(|address| address.text()))
            .collect()
    }

    #[test]
    fn addresses_are_read() {
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(servers("memcached://a:1,b:2/"), some(&["a:1", "b:2"]));
        assert_eq!(servers("memcacheds://me:x@a:1,b:2/"), some(&["a:1", "b:2"]));
        assert_eq!(servers("a, b"), some(&["a:11211", "b:11211"]));
        assert_eq!(servers("[::1]:5,[::2]"), some(&["[::1]:5", "[::2]:11211"]));
        assert_eq!(servers("memcached+unix:///run/a%20b,c"), some(&["/run/a b,c"]));
        assert_eq!(servers("/run/a,/run/b"), some(&["/run/a", "/run/b"]));
        for wrong in [
            "",
            "memcached://",
            "a:x",
            "a:99999",
            "a b:1",
            "::1",
            "[a]:1",
            "redis://a",
            "a://b",
            "memcached+unix://host",
            "memcached+unix://host/path",
            "user:%ff@a",
            "u:p@x@a",
            "memcached+unix:///a%00b",
        ] {
            assert_eq!(servers(wrong), [None], "{wrong}");
        }
    }

    #[test]
    fn users_and_passwords_are_read() {
        for (url, user, password) in [
            ("memcached://me:secret@a,b:1", Some("me"), Some("secret")),
            ("me:se%40c%2cr:et@a", Some("me"), Some("se@c,r:et")),
            ("memcacheds://m%65@a", Some("me"), Some("")),
            ("memcached+unix://me:secret@/run/socket", Some("me"), Some("secret")),
            ("memcached://a", None, None),
        ] {
            let parsed = MemcachedConfig::of(url);
            assert_eq!((parsed.user.as_deref(), parsed.password.as_deref()), (user, password), "{url}");
        }
        assert!(MemcachedConfig::of("memcacheds://a").tls && !MemcachedConfig::of("memcached://a").tls);
    }
}
