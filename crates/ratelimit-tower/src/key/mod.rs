//! What a request is counted by.

mod bytes;
mod extract;

use std::fmt;
use std::sync::Arc;

use crate::Head;
use http::HeaderName;

pub(crate) use bytes::KeyBytes;
pub(crate) use extract::Absent;

use crate::TrustedProxies;

type Extract = Arc<dyn Fn(&Head<'_>, &mut KeyBytes) -> bool + Send + Sync>;

/// What a request is counted by: where its key comes from.
///
/// Sources combine: [`and`](Self::and) counts by both (each user on each route), [`or`](Self::or) by the second where the
/// first is missing (the API key, else the address).
///
/// ```
/// use http::header::HeaderName;
/// use ratelimit_tower::{KeySource, TrustedProxies};
///
/// let by_key_else_address = KeySource::api_key(HeaderName::from_static("x-api-key"))
///     .or(KeySource::client_address(TrustedProxies::none()));
/// let by_user_and_path = KeySource::header(HeaderName::from_static("x-user")).and(KeySource::path());
/// # let _ = (by_key_else_address, by_user_and_path);
/// ```
///
/// # Any bytes
/// A key is any bytes; header values need not be ASCII. A part of more than 64 bytes is counted by its SHA-256, so keys of
/// megabytes become 33 bytes. Different parts are different keys, however they are put together.
///
/// # Pitfall
/// A value that the client chooses and nobody checks (a header, an API key before it was looked up, a path with an id in
/// it) makes as many keys as the client likes, each with a full quota. Use it beside a policy on the address.
#[derive(Clone)]
pub struct KeySource(Source);

#[derive(Clone)]
enum Source {
    Everybody,
    Client(TrustedProxies),
    Header(HeaderName),
    Secret(HeaderName),
    Bearer,
    Path,
    #[cfg(feature = "axum")]
    Template,
    Extension(Extract),
    Function(Extract),
    Both(Arc<(KeySource, KeySource)>),
    Either(Arc<(KeySource, KeySource)>),
}

impl KeySource {
    /// All requests together.
    pub fn everybody() -> Self {
        Self(Source::Everybody)
    }

    /// The client's address: the peer's, or what `proxies` say of it. See [`TrustedProxies`], also for how IPv6 addresses
    /// are grouped, and [`PeerAddress`](crate::PeerAddress) for where the peer's address comes from.
    pub fn client_address(proxies: TrustedProxies) -> Self {
        Self(Source::Client(proxies))
    }

    /// The value of a header: any bytes. One that is there more than once counts as missing, for it cannot be known which
    /// of them others will believe.
    pub fn header(name: HeaderName) -> Self {
        Self(Source::Header(name))
    }

    /// The value of a header that is a secret. As [`header`](Self::header), but only its SHA-256 reaches the store.
    pub fn api_key(name: HeaderName) -> Self {
        Self(Source::Secret(name))
    }

    /// The token of `Authorization: Bearer …`. Only its SHA-256 reaches the store.
    pub fn bearer_token() -> Self {
        Self(Source::Bearer)
    }

    /// The path as the client wrote it: for gRPC, and for services whose paths have no variables in them.
    pub fn path() -> Self {
        Self(Source::Path)
    }

    /// The template of the route that matched, as `/users/{id}`. Needs axum, and a layer inside of its router
    /// (`Router::layer` or `route_layer`): around the router no route has matched yet.
    #[cfg(feature = "axum")]
    pub fn path_template() -> Self {
        Self(Source::Template)
    }

    /// What earlier middleware has put into the request's extensions.
    pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: AsRef<[u8]>,
    {
        Self(Source::Extension(Arc::new(move |request, bytes| match request.extensions.get::<T>() {
            Some(value) => {
                bytes.part(key(value).as_ref());
                true
            }
            None => false,
        })))
    }

    /// What a closure makes of the request's head. `None` counts as missing.
    pub fn function<K: AsRef<[u8]>>(key: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static) -> Self {
        Self(Source::Function(Arc::new(move |request, bytes| match key(request) {
            Some(key) => {
                bytes.part(key.as_ref());
                true
            }
            None => false,
        })))
    }

    /// This and `other` together. Missing if one of them is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(Source::Both(Arc::new((self, other))))
    }

    /// This, or `other` if it is missing. A key of the one never equals a key of the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(Source::Either(Arc::new((self, other))))
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Everybody => f.write_str("everybody"),
            Source::Client(_) => f.write_str("client address"),
            Source::Header(name) => write!(f, "header {name}"),
            Source::Secret(name) => write!(f, "API key in {name}"),
            Source::Bearer => f.write_str("bearer token"),
            Source::Path => f.write_str("path"),
            #[cfg(feature = "axum")]
            Source::Template => f.write_str("path template"),
            Source::Extension(_) => f.write_str("extension"),
            Source::Function(_) => f.write_str("function"),
            Source::Both(both) => write!(f, "{:?} and {:?}", both.0, both.1),
            Source::Either(either) => write!(f, "{:?} or {:?}", either.0, either.1),
        }
    }
}
