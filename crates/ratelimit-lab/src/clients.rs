//! Who a client is, if a log has addresses that proxies report.

use std::net::IpAddr;

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use ratelimit_tower::TrustedProxies;

use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

const HEADER: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Finds the client of a request in what proxies report, as the layer does.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    proxies: TrustedProxies,
    /// The address of one of them.
    proxy: IpAddr,
    /// The field with the list of addresses.
    forwarded: Option<usize>,
}

impl Clients {
    /// Adds the field with the list to `wanted`. `None` if no proxy is trusted.
    ///
    /// # Errors
    /// If a network is wrong.
    pub(crate) fn new(
        wanted: &mut Wanted,
        trusted: &[String],
        forwarded: Option<&str>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(first) = trusted.first() else { return Ok(None) };
        let proxies = TrustedProxies::parse(trusted.iter().map(String::as_str));
        let proxies = proxies.map_err(|error| anyhow::anyhow!("--trusted-proxies: {error}"))?;
        let network = first.parse::<IpNet>().map(|network| network.network());
        let proxy =
            network.or_else(|_| first.parse()).with_context(|| format!("--trusted-proxies {first}"))?;
        let forwarded = forwarded.map(|name| wanted.add(Field::of_name(name)));
        Ok(Some(Self { proxies, proxy, forwarded }))
    }

    /// The client of a request whose field for the address has this value: the peer, or a list that a proxy has written. `None`
    /// if it is neither.
    pub(crate) fn client(&self, value: &[u8], record: &Record) -> Option<IpAddr> {
        let (peer, list) = match value.contains(&b',') {
            // Who has written it is not in it.
            true => (self.proxy, Some(value)),
            false => (address(value)?, self.forwarded.and_then(|index| record.get(index))),
        };
        let mut headers = HeaderMap::new();
        if let Some(list) = list.and_then(|list| HeaderValue::from_bytes(list).ok()) {
            headers.insert(HEADER, list);
        }
        Some(self.proxies.client(peer, &headers))
    }
}
