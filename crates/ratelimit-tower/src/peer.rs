//! The address of the peer that a request came from.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address of the connection's peer, as an extension of the request.
///
/// axum (`into_make_service_with_connect_info::<SocketAddr>()`) and tonic add their own extension to each request; with
/// the features of these names, the layer finds it. If you serve with hyper directly, insert this type or a
/// [`SocketAddr`]:
///
/// ```
/// use ratelimit_tower::PeerAddress;
///
/// # let peer = "192.0.2.1:4711".parse::<std::net::SocketAddr>().unwrap();
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddress(peer.ip()));
/// ```
///
/// A request without any of them is handled according to the policy's [`Missing`](crate::Missing): by default it is
/// answered with 500, and logged as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

/// The message if there is none.
pub(crate) const ABSENT: &str = "the peer's address is missing: serve with into_make_service_with_connect_info::<SocketAddr>() \
     and the feature axum, with tonic and the feature tonic, or insert a PeerAddress";

/// The peer's address, from the first extension that has it.
#[inline]
pub(crate) fn address(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(peer) = extensions.get::<PeerAddress>() {
        return Some(peer.0);
    }
    #[cfg(feature = "axum")]
    if let Some(info) = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(info.0.ip());
    }
    #[cfg(feature = "tonic")]
    if let Some(info) = extensions.get::<tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr().map(|peer| peer.ip());
    }
    extensions.get::<SocketAddr>().map(SocketAddr::ip)
}
