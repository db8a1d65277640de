//! The client's address: that of the peer, or the one that trusted proxies report.

mod entry;
mod network;
mod walk;

use std::net::IpAddr;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::observe;

pub use network::{ClientNetwork, Grouping, ParseNetworkError};
pub(crate) use network::{canonical as canonical_network, parse as parse_network};

/// Which proxies may report the client's address, in which header, and how much of the address identifies a client.
///
/// Without proxies ([`none`](Self::none), the default), the client is the peer of the connection. No header is read,
/// because any client can write one.
///
/// With proxies, the header is read if the peer is one of them. All lines of the header are joined in their order and
/// read from the right, where the nearest proxy wrote: past addresses that are themselves trusted, up to the first one
/// that is not, which is the client. Everything to the left of it came from the client and is ignored, so it can never
/// create a new key.
///
/// Reading also stops at an entry that is not an address (`unknown`, `_hidden`, an empty or malformed one): the client
/// is then the proxy that wrote it. If every address is trusted, the client is the leftmost one. IPv4 addresses written
/// as IPv6 (`::ffff:192.0.2.1`) count as IPv4 addresses everywhere.
///
/// ```
/// use http::HeaderMap;
/// use ratelimit_tower::TrustedProxies;
///
/// let proxies = TrustedProxies::parse(["10.0.0.0/8", "2001:db8:1::7"])?;
/// let mut headers = HeaderMap::new();
/// headers.append("x-forwarded-for", "1.1.1.1, 192.0.2.9".parse()?); // the client wrote 1.1.1.1, the first proxy the rest
/// headers.append("x-forwarded-for", "10.0.0.2".parse()?);
///
/// let client = proxies.client("10.0.0.1".parse()?, &headers);
/// assert_eq!(client.to_string(), "192.0.2.9");
///
/// // Who is no proxy is not believed:
/// let client = proxies.client("203.0.113.5".parse()?, &headers);
/// assert_eq!(client.to_string(), "203.0.113.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Bounds
/// At most 64 entries are read, and an entry of more than 1,024 bytes counts as malformed, so a long header does not
/// take longer. Nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ForwardedHeader,
    grouping: Grouping,
}

/// The header in which trusted proxies report the client's address.
///
/// Only this header is read. A proxy that writes one of these headers usually passes on the others as the client sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses separated by commas; each proxy appends its peer on the right. An entry may have a
    /// port, brackets and quotes.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239: the same, with the parameter `for` of each element.
    Forwarded,
    /// One address, which the proxy sets whatever the client sent: `CF-Connecting-IP`, `True-Client-IP`, `X-Real-IP`.
    ///
    /// If it is missing, malformed or occurs more than once, the client is the peer. An IPv6 address with a port needs
    /// brackets, so `CloudFront-Viewer-Address`, which has none, cannot be used.
    Single(HeaderName),
}

impl TrustedProxies {
    /// Trusts no proxy: the client is the peer.
    pub fn none() -> Self {
        Self::default()
    }

    /// Trusts these networks and addresses: `10.0.0.0/8`, `192.0.2.1`, `2001:db8::/32`.
    ///
    /// # Errors
    /// If one of them is neither a network nor an address.
    pub fn parse<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, ParseNetworkError> {
        networks.into_iter().map(|network| network::parse(network.as_ref())).collect()
    }

    /// Sets the header to read the client's address from; by default `X-Forwarded-For`.
    #[must_use]
    pub fn with_header(mut self, header: ForwardedHeader) -> Self {
        self.header = header;
        self
    }

    /// Sets how much of an address identifies a client; by default all of an IPv4 address, and the /64 of an IPv6 address.
    #[must_use]
    pub fn with_grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Returns the address of the client that sent a request with these headers over a connection from `peer`.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.find(peer, headers).client
    }

    /// [`client`](Self::client), for a request that is counted by it.
    #[inline]
    pub(crate) fn counted_client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.networks.is_empty() {
            return peer.to_canonical();
        }
        let found = self.find(peer, headers);
        if found.is_malformed {
            observe::unresolved("malformed");
        } else if self.trusts(found.client) {
            observe::unresolved("proxy");
        }
        found.client
    }

    fn find(&self, peer: IpAddr, headers: &HeaderMap) -> walk::Found {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return walk::Found { client: peer, is_malformed: false };
        }
        let trusts = |address| self.trusts(address);
        match &self.header {
            ForwardedHeader::XForwardedFor => walk::x_forwarded_for(trusts, peer, headers),
            ForwardedHeader::Forwarded => walk::forwarded(trusts, peer, headers),
            ForwardedHeader::Single(name) => walk::single(name, peer, headers),
        }
    }

    /// Returns the network that counts as one client: by default the address itself for IPv4, and its /64 for IPv6.
    pub fn group(&self, address: IpAddr) -> ClientNetwork {
        self.grouping.of(address)
    }

    /// Whether `address` is one of the trusted proxies.
    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

impl FromIterator<IpNet> for TrustedProxies {
    /// Trusts these networks.
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self { networks: networks.into_iter().map(network::canonical).collect(), ..Self::default() }
    }
}

impl FromStr for ForwardedHeader {
    type Err = http::header::InvalidHeaderName;

    /// Parses a header's name. `X-Forwarded-For` and `Forwarded` are lists; any other header is [`Single`](Self::Single).
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let name: HeaderName = name.parse()?;
        Ok(match name.as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Single(name),
        })
    }
}
