//! What the program provides, for files to name.

use std::collections::BTreeMap;

use crate::{Fallback, KeySource};

/// What a file can name besides what is built in.
///
/// ```
/// use ratelimit_tower::KeySource;
/// use ratelimit_tower::config::{Config, Provided};
///
/// #[derive(Clone)]
/// struct Tenant(String); // put into the request's extensions by the middleware that authenticates
///
/// let provided = Provided::default().key("tenant", KeySource::extension(|tenant: &Tenant| tenant.0.clone()));
/// let file = r#"
///     [[policies]]
///     name = "tenant"
///     key = "tenant"
///     limit = "100/s"
/// "#;
/// let config = Config::from_toml_with(file, "limits.toml", &provided)?;
/// # let _ = config;
/// # Ok::<(), ratelimit_tower::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Provided {
    pub(super) keys: BTreeMap<String, KeySource>,
    pub(super) fallback: Option<Fallback>,
}

impl Provided {
    /// A key that a file can name. Where the name is one of those built in, that one is meant.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>, source: KeySource) -> Self {
        self.keys.insert(name.into(), source);
        self
    }

    /// The limiter that `on_store_failure = "fallback"` means.
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = Some(fallback);
        self
    }
}
