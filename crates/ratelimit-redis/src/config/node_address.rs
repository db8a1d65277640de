//! The address of a server, as servers report it: always with a port, and with IPv6 also without brackets.

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The name that the node announces, which its certificate contains; `None` if it announces none besides the host, or
    /// none is known.
    pub(crate) name: Option<String>,
}

impl NodeAddress {
    /// Parses host and port; the host may be an IPv6 address.
    pub(crate) fn of_address(address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(Self { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()?, name: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let place = |host: &str| Some(NodeAddress { host: host.to_owned(), port: 7000, name: None });
        assert_eq!(NodeAddress::of_address("host:7000"), place("host"));
        assert_eq!(NodeAddress::of_address("::1:7000"), place("::1"));
        assert_eq!(NodeAddress::of_address("[::1]:7000"), place("::1"));
        assert_eq!(NodeAddress::of_address("host"), None);
    }
}
