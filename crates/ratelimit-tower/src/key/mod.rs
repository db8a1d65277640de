//! What a request is counted by.

mod bytes;
mod extract;
mod text;

use std::fmt;
use std::sync::Arc;

use crate::Head;
use crate::absent::Absent;
use http::HeaderName;

pub(crate) use bytes::{KeyBytes, Part};
pub(crate) use text::MISSING;
pub use text::ParseClientError;

use crate::TrustedProxies;

type Extract = Arc<dyn Fn(&Head<'_>, &mut KeyBytes) -> Result<(), Absent> + Send + Sync>;

/// What a request is counted by: the source of its key, such as the client's address or a header.
///
/// You can combine sources: [`and`](Self::and) counts by both (each user on each route), [`or`](Self::or) by the second
/// if the first is missing (the API key, else the address).
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
/// A key is any bytes; header values need not be ASCII. A part of more than 64 bytes is stored as its SHA-256, so a header
/// of megabytes becomes a part of 33 bytes. Different parts are always different keys, however you combine them.
///
/// # Pitfall
/// If a client can choose a value that is not verified (a header, an API key that has not been looked up, a path that
/// contains an id), it can create any number of keys, each with a full quota. Add a second policy that counts by the
/// address.
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
    /// With its name.
    Provided(Arc<str>, Extract),
    Both(Arc<(KeySource, KeySource)>),
    Either(Arc<(KeySource, KeySource)>),
}

impl KeySource {
    /// All requests together.
    pub fn everybody() -> Self {
        Self(Source::Everybody)
    }

    /// The client's address: the peer's, or the one that `proxies` report. See [`TrustedProxies`], also for the
    /// grouping of IPv6 addresses, and [`PeerAddress`](crate::PeerAddress) for the source of the peer's address.
    pub fn client_address(proxies: TrustedProxies) -> Self {
        Self(Source::Client(proxies))
    }

    /// The value of a header: any bytes.
    ///
    /// If a header occurs more than once, it is not known which value other programs will use. The request is refused,
    /// except with [`Missing::Share`](crate::Missing::Share). [`or`](Self::or) does not replace the header, and a
    /// [deny list](crate::Policies::deny) denies the request.
    pub fn header(name: HeaderName) -> Self {
        Self(Source::Header(name))
    }

    /// The value of a header that is a secret. Like [`header`](Self::header), but only its SHA-256 reaches the store.
    pub fn api_key(name: HeaderName) -> Self {
        Self(Source::Secret(name))
    }

    /// The token of `Authorization: Bearer …`. Only its SHA-256 reaches the store.
    pub fn bearer_token() -> Self {
        Self(Source::Bearer)
    }

    /// The path that the service handles ([`Head::path`]): for gRPC, and for services whose paths contain no variables. If a
    /// middleware normalises paths, add the layer behind it, so that all spellings of a path have one count.
    pub fn path() -> Self {
        Self(Source::Path)
    }

    /// The template of the matched route, such as `/users/{id}`. Needs axum, and a layer that is added with
    /// `Router::route_layer`. A layer around the router sees no matched route yet. One that is added with `Router::layer`
    /// sees none in requests to unknown paths, and answers them with 500.
    #[cfg(feature = "axum")]
    pub fn path_template() -> Self {
        Self(Source::Template)
    }

    /// A key from an extension that earlier middleware has inserted into the request.
    pub fn extension<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: AsRef<[u8]>,
    {
        Self::provided(move |request, bytes| {
            let value = request.extensions.get::<T>().ok_or(Absent::Program(
                "the extension is missing: run the middleware that sets it before this layer",
            ))?;
            bytes.part(key(value).as_ref());
            Ok(())
        })
    }

    /// The result of a closure that gets the request's head. `None` counts as missing.
    pub fn function<K: AsRef<[u8]>>(key: impl Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static) -> Self {
        Self::provided(move |request, bytes| {
            bytes.part(key(request).ok_or(Absent::Client(None))?.as_ref());
            Ok(())
        })
    }

    fn provided(
        key: impl Fn(&Head<'_>, &mut KeyBytes) -> Result<(), Absent> + Send + Sync + 'static,
    ) -> Self {
        Self(Source::Provided("provided".into(), Arc::new(key)))
    }

    /// Gives a source from [`extension`](Self::extension) or [`function`](Self::function) a name, by which errors, tools and
    /// lists of clients tell it from others. Other sources keep theirs.
    ///
    /// ```
    /// use ratelimit_tower::KeySource;
    ///
    /// let user = KeySource::function(|request| request.headers.get("x-user").cloned()).named("user");
    /// assert_eq!(user.or(KeySource::everybody()).to_string(), "user or everybody");
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        match self.0 {
            Source::Provided(_, key) => Self(Source::Provided(name.into(), key)),
            _ => self,
        }
    }

    /// The words with which a configuration file names each source that this one counts by [together](Self::and), in their
    /// order: a value of each makes a key ([`Policy::key_of_values`](crate::Policy::key_of_values)).
    ///
    /// ```
    /// use ratelimit_tower::{KeySource, TrustedProxies};
    ///
    /// let by_both = KeySource::client_address(TrustedProxies::none()).and(KeySource::path());
    /// assert_eq!(by_both.names(), ["address", "path"]);
    /// ```
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.collect_names(&mut names);
        names
    }

    /// Whether requests are counted by the client's address alone.
    pub(crate) fn is_address(&self) -> bool {
        matches!(self.0, Source::Client(_))
    }

    /// Counts by this source and `other` together. The key is missing if one of them is.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(Source::Both(Arc::new((self, other))))
    }

    /// Counts by this source, or by `other` if this one is missing. A key of one never equals a key of the other. A
    /// [header](Self::header) that occurs more than once is not replaced by `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(Source::Either(Arc::new((self, other))))
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
