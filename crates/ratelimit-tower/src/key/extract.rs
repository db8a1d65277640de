//! Extracts a key from a request.

use std::net::IpAddr;

use crate::Head;
use http::HeaderName;
use http::header::AUTHORIZATION;

use super::{KeyBytes, KeySource, Source};
use crate::absent::Absent;
use crate::peer;

impl KeySource {
    /// Appends the key of `request` to `key`. On an error, `key` is unchanged.
    #[inline]
    pub(crate) fn extract(&self, request: &Head<'_>, key: &mut KeyBytes) -> Result<(), Absent> {
        match &self.0 {
            Source::Client(proxies) => {
                let peer = peer_of(request)?;
                key.network(&proxies.group(proxies.counted_client(peer, request.headers)));
                Ok(())
            }
            _ => self.extract_other(request, key),
        }
    }

    /// The client's whole address; `None` if requests are counted by something else.
    pub(crate) fn address(&self, request: &Head<'_>) -> Option<Result<IpAddr, Absent>> {
        let Source::Client(proxies) = &self.0 else { return None };
        Some(peer_of(request).map(|peer| proxies.client(peer, request.headers)))
    }

    /// [`extract`](Self::extract) for keys other than the client's address, which is the most common one.
    fn extract_other(&self, request: &Head<'_>, key: &mut KeyBytes) -> Result<(), Absent> {
        match &self.0 {
            Source::Everybody | Source::Client(_) => Ok(()),
            Source::Header(name) => only(request, name).map(|value| key.part(value)),
            Source::Secret(name) => only(request, name).map(|value| key.secret(value)),
            Source::Bearer => {
                let value = only(request, &AUTHORIZATION)?;
                key.secret(bearer(value).ok_or(Absent::Client(None))?);
                Ok(())
            }
            Source::Path => {
                key.part(request.path().as_bytes());
                Ok(())
            }
            #[cfg(feature = "axum")]
            Source::Template => {
                let matched = request.extensions.get::<axum::extract::MatchedPath>();
                let matched = matched
                    .ok_or(Absent::Program("no route has matched: add the layer with Router::route_layer"))?;
                key.part(matched.as_str().as_bytes());
                Ok(())
            }
            Source::Provided(_, extract) => extract(request, key),
            Source::Both(both) => {
                let length = key.len();
                let extracted = both.0.extract(request, key).and_then(|()| both.1.extract(request, key));
                extracted.inspect_err(|_| key.truncate(length))
            }
            Source::Either(either) => {
                let length = key.len();
                key.choice(0);
                let extracted = match either.0.extract(request, key) {
                    Err(Absent::Client(_) | Absent::Program(_)) => {
                        key.truncate(length);
                        key.choice(1);
                        // No single header is to blame.
                        either.1.extract(request, key).map_err(|absent| match absent {
                            Absent::Client(_) => Absent::Client(None),
                            absent => absent,
                        })
                    }
                    extracted => extracted,
                };
                extracted.inspect_err(|_| key.truncate(length))
            }
        }
    }
}

/// The address of the peer.
#[inline]
fn peer_of(request: &Head<'_>) -> Result<IpAddr, Absent> {
    peer::address(request.extensions).ok_or(Absent::Program(peer::ABSENT))
}

/// The value of a header that occurs once. Whitespace around it is no part of it (RFC 9110, section 5.5), but servers leave it
/// there in HTTP/2.
fn only<'r>(request: &Head<'r>, name: &HeaderName) -> Result<&'r [u8], Absent> {
    let mut values = request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.as_bytes().trim_ascii()),
        (None, _) => Err(Absent::Client(Some(name.clone()))),
        (Some(_), Some(_)) => Err(Absent::Several(name.clone())),
    }
}

/// The token of `Bearer token`. The scheme is not case-sensitive.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}
