//! Parses URLs and addresses of servers.

use percent_encoding::percent_decode_str;

/// The default port.
pub(crate) const PORT: u16 = 11_211;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) tls: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) servers: Vec<String>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name or an IP address, IPv6 without brackets.
    Tcp { host: String, port: u16 },
    /// The path of a Unix socket.
    Unix(String),
}

impl Url {
    /// Splits a URL. Validates nothing: an invalid part ends up in `servers`, where it is not a valid address.
    pub(crate) fn parse(url: &str) -> Self {
        let (tls, is_socket, rest) = if let Some(rest) = url.strip_prefix("memcacheds://") {
            (true, false, rest)
        } else if let Some(rest) = url.strip_prefix("memcached+unix://") {
            (false, true, rest)
        } else {
            (false, false, url.strip_prefix("memcached://").unwrap_or(url))
        };
        let (log_in, rest) = match rest.split_once('@').map(|(log_in, rest)| (parse_log_in(log_in), rest)) {
            Some((Some(log_in), rest)) => (log_in, rest),
            _ => ((None, None), rest),
        };
        let (user, password) = log_in;
        let servers = if is_socket {
            // An invalid path must not be taken for a host.
            let path = rest.starts_with('/').then(|| decode(rest)).flatten();
            vec![path.unwrap_or_else(|| url.to_owned())]
        } else {
            rest.trim_end_matches('/').split(',').map(|server| server.trim().to_owned()).collect()
        };
        Self { tls, user, password, servers }
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

/// An address without a user and password that may be part of it.
pub(crate) fn without_log_in(server: &str) -> &str {
    server.rsplit_once('@').map_or(server, |(_, rest)| rest)
}

impl Address {
    /// Parses `host`, `host:port`, `[v6]:port` or `/path`.
    pub(crate) fn parse(server: &str) -> Option<Self> {
        if server.starts_with('/') {
            return (!server.contains('\0')).then(|| Self::Unix(server.to_owned()));
        }
        let (host, port) = if let Some(rest) = server.strip_prefix('[') {
            let (v6, port) = rest.split_once(']')?;
            v6.contains(':').then_some(())?;
            (v6, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        } else {
            match server.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (server, None),
            }
        };
        let clean = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte));
        let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
        (clean && !host.is_empty()).then(|| Self::Tcp { host: host.to_owned(), port })
    }

    /// With its port, as in messages.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Tcp { port, .. } => format!("{}:{port}", self.host()),
            Self::Unix(path) => path.clone(),
        }
    }

    /// The host without the port, IPv6 in brackets; or the path.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Tcp { host, .. } if host.contains(':') => format!("[{host}]"),
            Self::Tcp { host, .. } => host.clone(),
            Self::Unix(path) => path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<Option<String>> {
        Url::parse(url)
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
            let parsed = Url::parse(url);
            assert_eq!((parsed.user.as_deref(), parsed.password.as_deref()), (user, password), "{url}");
        }
        assert!(Url::parse("memcacheds://a").tls && !Url::parse("memcached://a").tls);
    }

    #[test]
    fn log_ins_are_removed_from_addresses() {
        for (server, shown) in [("a:1", "a:1"), ("me:secret@a:1", "a:1"), ("x://m:se@cret@/p", "/p")] {
            assert_eq!(without_log_in(server), shown);
        }
    }
}
