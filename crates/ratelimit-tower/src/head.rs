//! A view of a request's head.

use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request, from which policies, keys, costs and plans are determined. A view: nothing is copied.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request's target. For its path, call [`path`](Self::path).
    pub uri: &'a Uri,
    /// The HTTP version.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The extensions that earlier middleware and the server have inserted.
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

    /// The path, as axum's outermost router has received it (with the feature `axum`). Inside `Router::nest`, that of
    /// [`uri`](Self::uri) lacks the prefix.
    pub fn path(&self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(original) = self.extensions.get::<axum::extract::OriginalUri>() {
            return original.0.path();
        }
        self.uri.path()
    }
}

impl std::fmt::Debug for Head<'_> {
    /// Does not show header fields or the URI, which contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head")
            .field("method", self.method)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
