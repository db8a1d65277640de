//! A view of a request's head.

use std::borrow::Cow;

use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request, from which policies, keys, costs and plans are determined. A view: nothing is copied.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request's target. For its path, call [`path`](Self::path) or [`any_path`](Self::any_path).
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

    /// The path that the service handles, after everything that has rewritten it. In a nested router of axum (with the
    /// feature `axum`) it has the prefix, which [`uri`](Self::uri) lacks.
    ///
    /// To decide which requests a policy is for, use [`any_path`](Self::any_path) and [`every_path`](Self::every_path).
    pub fn path(&self) -> Cow<'a, str> {
        #[cfg(feature = "axum")]
        if let Some(nested) = self.extensions.get::<axum::extract::NestedPath>() {
            return whole(nested.as_str(), self.sent_path(), self.uri.path());
        }
        Cow::Borrowed(self.uri.path())
    }

    /// The path that the client sent, as axum's outermost router has received it (with the feature `axum`); otherwise that
    /// of [`uri`](Self::uri).
    pub fn sent_path(&self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(original) = self.extensions.get::<axum::extract::OriginalUri>() {
            return original.0.path();
        }
        self.uri.path()
    }

    /// Whether this holds for any of the request's paths: as the client [sent](Self::sent_path) it, as the service
    /// [handles](Self::path) it, and that of [`uri`](Self::uri). For what is limited
    /// ([`Policy::only`](crate::Policy::only)): no spelling that a middleware normalises evades the policy.
    pub fn any_path(&self, holds: impl Fn(&str) -> bool) -> bool {
        let (here, sent) = (self.uri.path(), self.sent_path());
        holds(here) || (sent != here && (holds(sent) || holds(&self.path())))
    }

    /// Whether this holds for the path as the client [sent](Self::sent_path) it and as the service [handles](Self::path) it.
    /// For what is exempt ([`Policy::except`](crate::Policy::except)): a path that is exempt does not exempt another one
    /// that it is rewritten to.
    pub fn every_path(&self, holds: impl Fn(&str) -> bool) -> bool {
        let sent = self.sent_path();
        holds(sent) && (sent == self.uri.path() || holds(&self.path()))
    }
}

/// The whole path: `here` lacks the prefix of the nested router.
#[cfg(feature = "axum")]
fn whole<'a>(nested: &str, sent: &'a str, here: &str) -> Cow<'a, str> {
    let prefix = prefix(nested, sent);
    match sent.strip_prefix(&*prefix) {
        Some(rest) if rest == here || (rest.is_empty() && here == "/") => Cow::Borrowed(sent),
        _ => Cow::Owned(format!("{prefix}{here}")),
    }
}

/// The prefix of a nested router, with what the client sent in place of its variables.
#[cfg(feature = "axum")]
fn prefix<'n>(nested: &'n str, sent: &str) -> Cow<'n, str> {
    let nested = nested.trim_end_matches('/');
    if !nested.contains('{') {
        return Cow::Borrowed(nested);
    }
    let segments = |path| str::split(path, '/').filter(|segment| !segment.is_empty());
    let mut sent = segments(sent);
    let filled = segments(nested).flat_map(|segment| {
        let value = sent.next().filter(|_| segment.contains('{'));
        ["/", value.unwrap_or(segment)]
    });
    Cow::Owned(filled.collect())
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
