//! Parses a configuration from an address.

use ratelimit_core::StoreError;
use ratelimit_core::layers::BatchConfig;
use ratelimit_core::store::StoreUrl;
use ratelimit_core::store::Time;
use ratelimit_store_kit::options;

use crate::config::RedisConfig;
use crate::config::addresses::Servers;
use crate::error::ERRORS;

/// The names of the options.
const OPTIONS: &[&str] = &[
    "authorities",
    "batch",
    "client_certificate",
    "client_key",
    "clock_slack",
    "connections",
    "prefix",
    "time",
    "timeout",
];

/// Options that the client library or the parser of sentinel addresses reads. They would not read others at this address.
fn of_servers(address: &str) -> &'static [&'static str] {
    match address.split(':').next() {
        Some("redis+sentinel" | "rediss+sentinel") => &["sentinel_password", "sentinel_user"],
        Some("redis+unix" | "valkey+unix" | "unix") => &["db", "pass", "protocol", "user"],
        _ => &["protocol"],
    }
}

impl RedisConfig {
    /// Parses the configuration from `url`. The scheme says what to connect to:
    ///
    /// | address | servers |
    /// |---|---|
    /// | `redis://[user][:password@]host[:port][/database]`, also `valkey://` | one server |
    /// | `redis+unix:///path/to/socket` | one server, over its Unix socket |
    /// | `redis+cluster://[user][:password@]host[:port][,host[:port]…]` | a cluster, given some of its nodes |
    /// | `redis+sentinel://[user][:password@]host[:port][,host[:port]…]/name[/database]` | the primary that these sentinels watch under this name |
    ///
    /// With `rediss` instead of `redis`, connections are encrypted (feature `tls`). User, password and the path of
    /// a socket are percent-decoded: write `@` as `%40`, `/` in a password as `%2F`, `#` as `%23`, `?` as `%3F`. The query
    /// contains options:
    ///
    /// | option | value | sets |
    /// |---|---|---|
    /// | `authorities` | the path of a file | [`authorities`](Self::authorities) |
    /// | `batch` | `true` or `false` | [`batch`](Self::batch); `true` by default |
    /// | `client_certificate` | the path of a file | [`client_certificate`](Self::client_certificate) |
    /// | `client_key` | the path of a file | [`client_key`](Self::client_key) |
    /// | `clock_slack` | a duration: `10s` | [`clock_slack`](Self::clock_slack); 10 s by default |
    /// | `connections` | a number | [`connections`](Self::connections); 1 by default |
    /// | `prefix` | text | [`prefix`](Self::prefix); `rl:` by default |
    /// | `time` | `caller` or `server` | [`time`](Self::time); the caller's by default |
    /// | `timeout` | a duration: `200ms` | [`timeout`](Self::timeout); 500 ms by default |
    ///
    /// Further options depend on what you connect to:
    ///
    /// - one server or a cluster: `protocol`, which is `resp2` (the default) or `resp3`;
    /// - a Unix socket: also `db`, `user` and `pass`, which are part of the other addresses;
    /// - sentinels: only `sentinel_user` and `sentinel_password`. The user and password before the `@` are those of the
    ///   servers that the sentinels watch.
    ///
    /// ```
    /// use ratelimit_redis::{RedisConfig, Time};
    ///
    /// let config = RedisConfig::from_url("redis://cache.internal/?timeout=100ms&time=server&prefix=api:")?;
    /// assert_eq!((config.timeout.as_millis(), config.time), (100, Time::Server));
    ///
    /// let error = RedisConfig::from_url("redis://cache.internal/?timout=100ms").unwrap_err();
    /// assert!(error.to_string().contains("there is no option `timout`; the options are `authorities`"));
    /// # Ok::<(), ratelimit_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](ratelimit_core::ErrorKind::Misconfigured) if the address is not valid, if an option is
    /// unknown or its value is not valid, or if a file cannot be read. No error quotes the address.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let url = StoreUrl::parse(ERRORS.store(), url)?;
        let of_servers = of_servers(url.base());
        let servers = Servers::parse(&url.base_with(of_servers))?;
        let mut config = Self::of(servers);
        for option in url.options() {
            match option.name() {
                "authorities" => config.authorities = Some(options::file(option)?),
                "batch" => config.batch = option.flag()?.then(BatchConfig::default),
                "client_certificate" => config.client_certificate = Some(options::file(option)?),
                "client_key" => config.client_key = Some(options::file(option)?),
                "clock_slack" => config.clock_slack = option.duration()?,
                "connections" => config.connections = option.number()?,
                "prefix" => option.text().clone_into(&mut config.prefix),
                "time" => config.time = Time::from_option(option)?,
                "timeout" => config.timeout = options::time_limit(option)?,
                name if of_servers.contains(&name) => {}
                name @ ("db" | "pass" | "user") => {
                    return Err(ERRORS.misconfigured(format!(
                        "the option `{name}` is only for a Unix socket; for other servers, write it as in \
                         redis://user:password@host/database"
                    )));
                }
                _ => return Err(option.unknown(&[OPTIONS, of_servers].concat())),
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_would_have_no_effect_are_errors() {
        for (wrong, reported) in [
            ("redis://a/?db=2", "redis://user:password@host/database"),
            ("redis://a/?user=u&pass=s3cret", "redis://user:password@host/database"),
            ("redis+cluster://a/?pass=s3cret", "redis://user:password@host/database"),
            ("redis+cluster://a/?sentinel_password=s3cret", "no option `sentinel_password`"),
            ("redis+unix:///a?sentinel_user=u", "`pass`, `protocol`, `user`"),
            ("redis+sentinel://a/name?protocol=resp3", "`sentinel_password`, `sentinel_user`"),
        ] {
            let error = RedisConfig::from_url(wrong).expect_err(wrong).to_string();
            assert!(error.contains(reported) && !error.contains("s3cret"), "{wrong}: {error}");
        }
        for right in [
            "redis://a/2?protocol=resp3",
            "redis+cluster://a,b?protocol=resp3",
            "redis+unix:///a%40b?db=2&user=u&pass=p&protocol=resp3",
            "unix:///a?db=2",
            "redis+sentinel://a/name?sentinel_user=u&sentinel_password=p",
        ] {
            assert!(RedisConfig::from_url(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn a_plus_in_the_password_for_a_socket_stays_a_plus() {
        for url in ["redis+unix:///a?pass=a+b%2Bc&user=d+e", "unix:///a?user=d+e&pass=a%2Bb+c"] {
            let Servers::One(info) = RedisConfig::from_url(url).unwrap().servers else { panic!("{url}") };
            let settings = info.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("d+e"), Some("a+b+c")), "{url}");
        }
    }

    #[test]
    fn each_option_is_known() {
        let value = |name| match name {
            "authorities" | "client_certificate" | "client_key" => {
                concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
            }
            "batch" => "false",
            "clock_slack" | "timeout" => "3s",
            "connections" => "7",
            "time" => "server",
            _ => "x",
        };
        let query: Vec<_> = OPTIONS.iter().map(|name| format!("{name}={}", value(*name))).collect();
        let config = RedisConfig::from_url(&format!("redis://a/?{}", query.join("&"))).unwrap();
        assert!(config.batch.is_none());
        assert_eq!((config.timeout, config.clock_slack), (std::time::Duration::from_secs(3), config.timeout));
        assert!(
            config.authorities.is_some()
                && config.client_certificate.is_some()
                && config.client_key.is_some()
        );
        assert_eq!((config.connections, config.prefix.as_str(), config.time), (7, "x", Time::Server));
    }
}
