//! Lists of clients to exempt or to refuse, which can be replaced while the service runs.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::IpNet;

use crate::absent::Absent;
use crate::client_address::{canonical_network, parse_network};
use crate::key::{KeyBytes, MISSING};
use crate::{Head, KeySource, ParseClientError};

/// A list of clients, identified by one [`KeySource`]: for [`Policies::deny`](crate::Policies::deny) and
/// [`Policies::allow`](crate::Policies::allow), or for the conditions of a policy. Clones share the list.
///
/// ```
/// use ratelimit_core::Limit;
/// use ratelimit_tower::{ClientList, KeySource, Policies, Policy, TrustedProxies};
///
/// let address = KeySource::client_address(TrustedProxies::none());
/// let denied = ClientList::new(address.clone(), ["203.0.113.0/24", "2001:db8::/32"])?;
/// let partners = ClientList::new(KeySource::api_key("x-api-key".parse()?), ["s3cret"])?;
///
/// let by_address = Policy::new("address", address, "100/min".parse::<Limit>()?)?;
/// let of_partners = partners.clone();
/// let policies = Policies::new([by_address.except(move |request| of_partners.contains(request))])?.deny(denied.clone());
///
/// // Later, from a file that has changed:
/// denied.replace("# scanners\n203.0.113.0/24\n198.51.100.7".lines())?;
/// # let _ = policies;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # How to write clients
/// One per line; empty lines and lines that start with `#` are skipped. For the client's address, write addresses and
/// networks. An address is that address alone, whatever the [grouping](crate::Grouping). For everything else, write what
/// [`Policy::key_of`](crate::Policy::key_of) takes: a header's value, a secret or its `sha256:` hash.
/// Write `literal:` before a value that looks like something else.
///
/// # Cost
/// Networks are merged and sorted, so a lookup is a binary search; other clients are in a hash table.
#[derive(Clone)]
pub struct ClientList(Arc<Shared>);

struct Shared {
    source: KeySource,
    clients: ArcSwap<Clients>,
}

#[derive(Default)]
struct Clients {
    /// Disjoint, in ascending order.
    networks: Vec<IpNet>,
    keys: HashSet<Box<[u8]>>,
}

/// A line of a [`ClientList`] that names no client. Does not quote the line, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseClientListError {
    line: usize,
    error: ParseClientError,
}

impl ParseClientListError {
    /// The number of the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What to write in that line.
    pub fn problem(&self) -> &ParseClientError {
        &self.error
    }
}

impl fmt::Display for ParseClientListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} names no client: {}", self.line, self.error)
    }
}

impl fmt::Debug for ParseClientListError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

/// The text contains that of the [`problem`](ParseClientListError::problem), so that is no source.
impl Error for ParseClientListError {}

impl ClientList {
    /// Creates a list of these clients.
    ///
    /// # Errors
    /// If a line does not name a client of this source.
    pub fn new<T: AsRef<str>>(
        source: KeySource,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<Self, ParseClientListError> {
        let clients = Clients::parse(&source, lines)?;
        Ok(Self(Arc::new(Shared { source, clients: ArcSwap::from_pointee(clients) })))
    }

    /// Replaces all clients, here and in the clones.
    ///
    /// # Errors
    /// If a line does not name a client of the list's source. The list stays as it is.
    pub fn replace<T: AsRef<str>>(
        &self,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<(), ParseClientListError> {
        self.0.clients.store(Arc::new(Clients::parse(&self.0.source, lines)?));
        Ok(())
    }

    /// Whether the request's client is in the list. `false` if the request does not have what the list identifies clients
    /// by, or has it several times.
    ///
    /// So nobody is exempt from a policy (`except`) by sending a key twice. But a client of the list can evade a policy
    /// for the list alone (`only`) in this way. Refuse such requests: [`Policies::deny`](crate::Policies::deny) with a list
    /// by the same header does so, and a policy that counts by it.
    pub fn contains(&self, request: &Head<'_>) -> bool {
        self.find(request).unwrap_or(false)
    }

    /// Whether the request's client is in the list, or why that is not known.
    pub(crate) fn find(&self, request: &Head<'_>) -> Result<bool, Absent> {
        let clients = self.0.clients.load();
        if let Some(address) = self.0.source.address(request) {
            return Ok(clients.contain_address(address?));
        }
        let mut key = KeyBytes::new();
        self.0.source.extract(request, &mut key)?;
        Ok(clients.keys.contains(key.as_ref()))
    }

    /// What the list identifies clients by.
    pub fn source(&self) -> &KeySource {
        &self.0.source
    }
}

impl fmt::Debug for ClientList {
    /// Clients are people: shows only how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.0.clients.load();
        f.debug_struct("ClientList")
            .field("by", &self.0.source)
            .field("networks", &clients.networks.len())
            .field("keys", &clients.keys.len())
            .finish()
    }
}

impl Clients {
    fn parse<T: AsRef<str>>(
        source: &KeySource,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<Self, ParseClientListError> {
        let mut clients = Self::default();
        for (line, text) in (1..).zip(lines) {
            let text = text.as_ref().trim();
            if !text.is_empty() && !text.starts_with('#') {
                clients.add(source, text).map_err(|error| ParseClientListError { line, error })?;
            }
        }
        clients.networks = IpNet::aggregate(&clients.networks);
        clients.networks.sort();
        Ok(clients)
    }

    fn add(&mut self, source: &KeySource, text: &str) -> Result<(), ParseClientError> {
        if source.is_address() {
            let network = parse_network(text).map_err(|_| ParseClientError::no_network())?;
            self.networks.push(canonical_network(network.trunc()));
        } else if text.as_bytes() == MISSING {
            return Err(ParseClientError::missing());
        } else {
            let mut key = KeyBytes::new();
            source.write_text(text.as_bytes(), &mut key)?;
            self.keys.insert(key.as_ref().into());
        }
        Ok(())
    }

    fn contain_address(&self, address: IpAddr) -> bool {
        // They are disjoint, so only the last one that begins at or before the address can contain it.
        let after = self.networks.partition_point(|network| network.network() <= address);
        after > 0 && self.networks[after - 1].contains(&address)
    }
}
