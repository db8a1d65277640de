//! Parses a configuration from an address.

use ratelimit_core::StoreError;
use ratelimit_core::store::StoreUrl;
use ratelimit_core::store::Time;
use ratelimit_store_kit::options;
use sqlx::postgres::PgConnectOptions;

use crate::config::{Logged, PostgresConfig};
use crate::error::ERRORS;

/// The names of the options.
const OPTIONS: &[&str] = &[
    "clock_slack",
    "connections",
    "logged",
    "migrate",
    "pooler",
    "prefix",
    "prune_every",
    "schema",
    "time",
    "timeout",
];

/// Options that the client library reads, as `psql` does.
const OF_THE_CLIENT: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Names of the same option of the client library, which would take the last of them.
const SYNONYMS: &[&[&str]] = &[
    &["sslmode", "ssl-mode"],
    &["sslrootcert", "ssl-root-cert", "ssl-ca"],
    &["sslcert", "ssl-cert"],
    &["sslkey", "ssl-key"],
];

impl PostgresConfig {
    /// Parses the configuration from `url`: `postgres://[user][:password@]host[:port][/database]`. The query contains
    /// options:
    ///
    /// | option | value | sets |
    /// |---|---|---|
    /// | `clock_slack` | a duration: `10s` | [`clock_slack`](Self::clock_slack) |
    /// | `connections` | a number | [`connections`](Self::connections) |
    /// | `logged` | `true` or `false` | [`logged`](Self::logged) |
    /// | `migrate` | `true` or `false` | [`migrate`](Self::migrate) |
    /// | `pooler` | `true` or `false` | [`pooler`](Self::pooler) |
    /// | `prefix` | text | [`prefix`](Self::prefix) |
    /// | `prune_every` | a duration: `1min`; `0s` for never | [`prune_every`](Self::prune_every) |
    /// | `schema` | text | [`schema`](Self::schema) |
    /// | `time` | `caller` or `server` | [`time`](Self::time) |
    /// | `timeout` | a duration: `500ms` | [`timeout`](Self::timeout) |
    ///
    /// The client library's own options (`host`, `sslmode`, `sslrootcert`, `options`, …) are passed on to it.
    ///
    /// ```
    /// use ratelimit_postgres::{PostgresConfig, Time};
    ///
    /// let config = PostgresConfig::from_url("postgres://app@db.internal/app?timeout=500ms&time=server&sslmode=require")?;
    /// assert_eq!((config.timeout.as_millis(), config.time), (500, Time::Server));
    ///
    /// let error = PostgresConfig::from_url("postgres://db.internal/app?timout=500ms").unwrap_err();
    /// assert!(error.to_string().contains("there is no option `timout`; the options are `clock_slack`"));
    /// # Ok::<(), ratelimit_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// If the address is not valid, if an option is unknown or given twice, or if its value is not valid. Percent-encode
    /// special characters in a user or a password: `@` as `%40`, `/` as `%2F`, `?` as `%3F`, `#` as `%23`, `%` as `%25`.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let url = StoreUrl::parse(ERRORS.store(), url)?;
        for names in SYNONYMS {
            let mut synonyms = url.options().iter().filter(|option| names.contains(&option.name()));
            if let (Some(one), Some(other)) = (synonyms.next(), synonyms.next()) {
                let (one, other) = (one.name(), other.name());
                return Err(ERRORS.misconfigured(format!(
                    "the options `{one}` and `{other}` are the same: give one of them"
                )));
            }
        }
        let mut config = Self { server: server_of(&url)?, ..Self::default() };
        for option in url.options() {
            match option.name() {
                "clock_slack" => config.clock_slack = option.duration()?,
                "connections" => config.connections = option.number()?,
                "logged" => config.logged = if option.flag()? { Logged::Logged } else { Logged::Unlogged },
                "migrate" => config.migrate = option.flag()?,
                "pooler" => config.pooler = option.flag()?,
                "prefix" => option.text().clone_into(&mut config.prefix),
                "prune_every" => {
                    config.prune_every = Some(option.duration()?).filter(|every| !every.is_zero());
                }
                "schema" => option.text().clone_into(&mut config.schema),
                "time" => config.time = Time::from_option(option)?,
                "timeout" => config.timeout = options::time_limit(option)?,
                name if OF_THE_CLIENT.contains(&name) => {}
                _ => return Err(option.unknown(OPTIONS)),
            }
        }
        Ok(config)
    }
}

/// The options for the client library.
fn server_of(url: &StoreUrl<'_>) -> Result<PgConnectOptions, StoreError> {
    // The original error may quote the address, and with it the password. So may a database's name: the client library takes
    // all of an address without `://` for one.
    let parsed = |names: &[&str]| url.base_with(names).parse::<PgConnectOptions>().ok();
    if !url.base().contains("://") || parsed(&[]).is_none() {
        return Err(ERRORS.misconfigured(
            "the address is not valid; it looks like postgres://user:password@host:5432/database",
        ));
    }
    parsed(OF_THE_CLIENT).ok_or_else(|| {
        let mut options = url.options().iter().filter(|option| OF_THE_CLIENT.contains(&option.name()));
        let wrong = options.find(|option| parsed(&[option.name()]).is_none());
        wrong.map_or_else(
            || ERRORS.misconfigured("the options of the address are not valid"),
            |option| {
                option.expected(match option.name() {
                    "sslmode" | "ssl-mode" => {
                        "`disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`"
                    }
                    "hostaddr" => "an IP address",
                    _ => "a whole number that is not too large",
                })
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use ratelimit_core::ErrorKind;

    use super::*;

    #[test]
    fn each_option_is_known() {
        let value = |name| match name {
            "clock_slack" | "prune_every" | "timeout" => "3s",
            "connections" => "7",
            "logged" | "pooler" => "true",
            "migrate" => "false",
            "time" => "server",
            _ => "x",
        };
        let query: Vec<_> = OPTIONS.iter().map(|name| format!("{name}={}", value(*name))).collect();
        let config = PostgresConfig::from_url(&format!("postgres://a/?{}", query.join("&"))).unwrap();
        let three = std::time::Duration::from_secs(3);
        assert_eq!((config.timeout, config.clock_slack, config.prune_every), (three, three, Some(three)));
        assert_eq!((config.logged, config.time), (Logged::Logged, Time::Server));
        assert!(config.pooler && !config.migrate);
        assert_eq!((config.connections, config.prefix.as_str(), config.schema.as_str()), (7, "x", "x"));
    }

    #[test]
    fn an_option_is_given_only_once_by_all_of_its_names() {
        for query in ["sslmode=require&ssl-mode=disable", "ssl-ca=a&sslrootcert=b", "ssl-key=a&sslkey=a"] {
            let error = PostgresConfig::from_url(&format!("postgres://a/?{query}")).expect_err(query);
            assert!(error.to_string().contains("are the same"), "{error}");
        }
        assert!(PostgresConfig::from_url("postgres://a/?ssl-mode=require&sslcert=a&sslkey=b").is_ok());
    }

    #[test]
    fn addresses_are_shown_as_they_are_written() {
        for (url, shown) in [
            ("postgres://a@[::1]:7/b", "[::1]:7/b"),
            ("postgres://a@h/b?hostaddr=::1", "[::1]:5432/b"),
            ("postgres://a@db.internal:7/b", "db.internal:7/b"),
            ("postgres://a@%2Frun/b", "/run:5432/b"),
        ] {
            let config = PostgresConfig::from_url(url).unwrap();
            assert_eq!(crate::config::address_of(&config.server), shown);
        }
    }

    #[test]
    fn an_invalid_value_of_a_client_option_is_named() {
        for (option, name) in [
            ("sslmode=s3cret", "sslmode"),
            ("port=s3cret&sslmode=require", "port"),
            ("sslmode=require&hostaddr=s3cret", "hostaddr"),
        ] {
            let error = PostgresConfig::from_url(&format!("postgres://a/b?{option}")).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")) && !text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn no_error_quotes_the_password() {
        for url in [
            "postgres://a:s3cret@b:x/",
            "postgres://a:s3cret@b/?x=1",
            "postgres://b/?password=s3cret&timeout=1",
            "postgres://a:/s3cret@b/",
            "postgres://a:12/s3cret@b/",
            "postgres://a:12#s3cret@b/",
            "postgres:///a:s3cret@b/",
            "postgres:a:s3cret@b/",
        ] {
            let error = PostgresConfig::from_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}
