//! The head of a request, to be looked at.

use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request: what policies, keys, costs and plans are found out from. A view, nothing is copied.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// Where it goes.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// What earlier middleware and the server have put there.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of this request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl std::fmt::Debug for Head<'_> {
    /// Without the header fields and the address, which have secrets in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head")
            .field("method", self.method)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
