//! Networks: those of trusted proxies, and those that count as one client.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// How much of an address identifies a client.
///
/// A single household has a whole IPv6 /64, so counting single IPv6 addresses limits nobody. If IPv4 clients connect
/// through a translator (as `64:ff9b::192.0.2.1`), all of them are in one /64: use a prefix of 128 in that case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grouping {
    /// Leading bits of an IPv4 address that count: 32 by default. More than 32 means 32; 0 makes all of them one client.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that count: 64 by default. More than 128 means 128.
    pub ipv6_prefix: u8,
}

impl Default for Grouping {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64 }
    }
}

impl Grouping {
    ratelimit_core::kit::setters! {
        ipv4_prefix: u8,
        ipv6_prefix: u8,
    }

    /// Returns the network of `address`.
    ///
    /// ```
    /// use ratelimit_tower::Grouping;
    ///
    /// let grouping = Grouping::default();
    /// assert_eq!(grouping.of("2001:db8::1".parse()?).to_string(), "2001:db8::/64");
    /// assert_eq!(grouping.of("2001:db8::1".parse()?), grouping.of("2001:db8::ffff:2".parse()?));
    /// assert_eq!(grouping.of("::ffff:192.0.2.1".parse()?).to_string(), "192.0.2.1/32");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn of(&self, address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix = self.ipv4_prefix.min(32);
                let kept = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                ClientNetwork::new(&(address.to_bits() & kept).to_be_bytes(), prefix)
            }
            IpAddr::V6(address) => {
                let prefix = self.ipv6_prefix.min(128);
                let kept = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                ClientNetwork::new(&(address.to_bits() & kept).to_be_bytes(), prefix)
            }
        }
    }
}

/// The network that counts as one client; it may be a single address.
///
/// As bytes ([`AsRef`]), the first address and then the prefix length: 5 bytes or 17.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNetwork {
    bytes: [u8; 17],
    length: u8,
}

impl ClientNetwork {
    #[inline]
    fn new(address: &[u8], prefix: u8) -> Self {
        let mut bytes = [0; 17];
        bytes[..address.len()].copy_from_slice(address);
        bytes[address.len()] = prefix;
        Self { bytes, length: if address.len() == 4 { 5 } else { 17 } }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        match self.as_ref() {
            [a, b, c, d, _] => [*a, *b, *c, *d].into(),
            bytes => bytes.first_chunk::<16>().copied().unwrap_or_default().into(),
        }
    }

    /// The prefix length: how many leading bits of the address count.
    pub fn prefix(&self) -> u8 {
        self.bytes[usize::from(self.length) - 1]
    }
}

impl AsRef<[u8]> for ClientNetwork {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.prefix())
    }
}

impl fmt::Debug for ClientNetwork {
    /// Addresses identify people: shows only the kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.length == 5 { "IPv4" } else { "IPv6" };
        write!(f, "ClientNetwork({kind}, /{})", self.prefix())
    }
}

/// A text that is neither a network nor an address.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseNetworkError {
    text: String,
}

impl fmt::Display for ParseNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a network: write an address (192.0.2.1) or a network (10.0.0.0/8, 2001:db8::/32)",
            self.text
        )
    }
}

impl fmt::Debug for ParseNetworkError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

impl Error for ParseNetworkError {}

/// Parses a network, or an address as the network of that address alone.
pub(crate) fn parse(text: &str) -> Result<IpNet, ParseNetworkError> {
    let text = text.trim();
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| ParseNetworkError { text: text.to_owned() })
}

/// Converts a network of IPv4 addresses written as IPv6 to one of IPv4 addresses, as is done with addresses.
pub(crate) fn canonical(network: IpNet) -> IpNet {
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(prefix) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = Ipv4Net::new(v4, prefix)
    {
        return v4.into();
    }
    network
}
