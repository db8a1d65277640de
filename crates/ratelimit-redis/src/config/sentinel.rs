//! Parses `redis+sentinel://[user:password@]host:26379[,host:26379…]/name[/database]`.

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use ratelimit_core::StoreError;

use crate::config::address::info;
use crate::config::node_address::NodeAddress;
use crate::error::ERRORS;

const PORT: u16 = 26_379;

/// Sentinels, and the settings for them and for the servers that they watch.
#[derive(Clone)]
pub(crate) struct Address {
    /// An address of the right kind (TCP or TLS), and the addresses of the sentinels.
    pub(crate) sentinels: (ConnectionAddr, Vec<NodeAddress>),
    /// The sentinels' name for the primary.
    pub(crate) name: String,
    /// Log-in and database of the servers.
    pub(crate) settings: RedisConnectionInfo,
    /// The log-in of the sentinels.
    pub(crate) sentinel_settings: RedisConnectionInfo,
}

impl Address {
    pub(crate) fn read(url: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("+sentinel://").ok_or_else(not_valid)?;
        if !matches!(scheme, "redis" | "rediss") || rest.contains('#') {
            return Err(not_valid());
        }
        // Without the feature `tls`, this is the error.
        let kind = info(&format!("{scheme}://localhost"))?.addr().clone();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').ok_or_else(not_valid)?;
        let (log_in, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        let name = decoded(name)?;
        if name.is_empty() || !database.chars().all(|digit| digit.is_ascii_digit()) {
            return Err(not_valid());
        }
        let sentinels = hosts.split(',').map(sentinel).collect::<Result<_, _>>()?;
        let server = parse(&format!("redis://{log_in}@localhost/{database}"))?;
        Ok(Self {
            sentinels: (kind, sentinels),
            name,
            settings: server.redis_settings().clone(),
            sentinel_settings: sentinel_settings(query)?,
        })
    }
}

fn sentinel(host: &str) -> Result<NodeAddress, StoreError> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { format!("redis://{host}") } else { format!("redis://{host}:{PORT}") };
    match parse(&address)?.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(NodeAddress { host: host.clone(), port: *port, name: None }),
        _ => Err(not_valid()),
    }
}

fn sentinel_settings(query: &str) -> Result<RedisConnectionInfo, StoreError> {
    let mut settings = RedisConnectionInfo::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        settings = match pair.split_once('=') {
            Some(("sentinel_user", user)) => settings.set_username(decoded(user)?),
            Some(("sentinel_password", password)) => settings.set_password(decoded(password)?),
            _ => return Err(not_valid()),
        };
    }
    Ok(settings)
}

fn parse(url: &str) -> Result<ConnectionInfo, StoreError> {
    info(url).map_err(|_| not_valid())
}

fn decoded(text: &str) -> Result<String, StoreError> {
    Ok(percent_decode_str(text).decode_utf8().map_err(|_| not_valid())?.into_owned())
}

/// Does not quote the address, which may contain a password.
fn not_valid() -> StoreError {
    ERRORS.misconfigured(
        "the address is not valid; it looks like \
         redis+sentinel://user:password@host:26379,host:26379/name/0?sentinel_password=password",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Address {
        Address::read(url).unwrap_or_else(|failure| panic!("{url}: {failure:?}"))
    }

    #[test]
    fn every_part_of_an_address_is_parsed() {
        let address = read(
            "redis+sentinel://me:p%40ss%2F@one:1,two,[::1],[::1]:7/my%20name/3?sentinel_user=u&sentinel_password=a%26b",
        );
        let places: Vec<_> =
            address.sentinels.1.iter().map(|place| (place.host.as_str(), place.port)).collect();
        assert_eq!(places, [("one", 1), ("two", PORT), ("::1", PORT), ("::1", 7)]);
        assert_eq!(address.name, "my name");
        let log_in = |settings: &RedisConnectionInfo| {
            [settings.username(), settings.password()].map(|text| text.unwrap_or_default().to_owned())
        };
        assert_eq!(log_in(&address.settings), ["me", "p@ss/"]);
        assert_eq!(address.settings.db(), 3);
        assert_eq!(log_in(&address.sentinel_settings), ["u", "a&b"]);
    }

    #[test]
    fn missing_parts_have_defaults() {
        let address = read("redis+sentinel://:secret@host/name");
        assert_eq!((address.settings.password(), address.settings.username()), (Some("secret"), None));
        assert_eq!((address.settings.db(), address.sentinel_settings.password()), (0, None));
        assert_eq!(read("redis+sentinel://host/name/").settings.password(), None);
        let read = Address::read("rediss+sentinel://host/name");
        assert_eq!(read.is_ok(), cfg!(feature = "tls"));
        assert!(
            read.is_ok_and(|read| matches!(read.sentinels.0, ConnectionAddr::TcpTls { .. }))
                == cfg!(feature = "tls")
        );
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for wrong in [
            "redis://:secret@host/name",
            "http+sentinel://:secret@host/name",
            "redis+sentinel://:secret@host",
            "redis+sentinel://:secret@host/",
            "redis+sentinel://:secret@host/name/x",
            "redis+sentinel://:secret@host/name/-1",
            "redis+sentinel://:secret@host/name/0/0",
            "redis+sentinel://:secret@/name",
            "redis+sentinel://:secret@host,/name",
            "redis+sentinel://:secret@::1/name",
            "redis+sentinel://:secret@host:x/name",
            "redis+sentinel://:secret@host/%ff",
            "redis+sentinel://:secret@host/name?password=secret",
            "redis+sentinel://:secret@host/name#insecure",
            "",
        ] {
            let failure = Address::read(wrong).err().unwrap_or_else(|| panic!("{wrong} is read"));
            assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
        }
    }
}
