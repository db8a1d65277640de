//! Parses addresses of servers, as people write them: the port may be missing, and mistakes are told.

/// The default port.
pub(crate) const PORT: u16 = 11_211;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name or an IP address, IPv6 without brackets.
    Tcp { host: String, port: u16 },
    /// The path of a Unix socket.
    Unix(String),
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

    #[test]
    fn log_ins_are_removed_from_addresses() {
        for (server, shown) in [("a:1", "a:1"), ("me:secret@a:1", "a:1"), ("x://m:se@cret@/p", "/p")] {
            assert_eq!(without_log_in(server), shown);
        }
    }
}
