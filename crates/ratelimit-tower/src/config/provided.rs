//! What the program provides for use in files.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{Cost, KeySource};

/// Names that a file can use in addition to the built-in ones.
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
    pub(super) costs: BTreeMap<String, Cost>,
    other_keys: Option<OtherKeys>,
}

/// What other words mean.
#[derive(Clone)]
struct OtherKeys(Arc<KeyOfWord>);

type KeyOfWord = dyn Fn(&str) -> Option<KeySource> + Send + Sync;

impl fmt::Debug for OtherKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtherKeys")
    }
}

impl Provided {
    /// Adds a key that a file can name. Built-in names take precedence. A source from [`KeySource::function`] or
    /// [`KeySource::extension`] is also [shown under this name](KeySource::named), and [`Policy::key_of`](crate::Policy::key_of) takes it:
    /// `tenant=7` of the key `"tenant or address"`.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>, source: KeySource) -> Self {
        let name = name.into();
        let source = source.named(&name);
        self.keys.insert(name, source);
        self
    }

    /// Sets what words mean that name no other key, if they can be any: a program that counts by the names that its clients
    /// choose. `None` is an error of the file. Sources are shown under the word, as with [`key`](Self::key). A later call
    /// replaces an earlier one.
    ///
    /// ```
    /// use ratelimit_tower::KeySource;
    /// use ratelimit_tower::config::{Config, Provided};
    ///
    /// let header = |word: &str| Some(KeySource::header(format!("x-{word}").parse().ok()?));
    /// let file = "policies: [{name: tenant, key: tenant, limit: 100/s}]";
    /// let config = Config::from_yaml_with(file, "limits.yaml", &Provided::default().other_keys(header))?;
    /// # let _ = config;
    /// # Ok::<(), ratelimit_tower::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn other_keys(mut self, key: impl Fn(&str) -> Option<KeySource> + Send + Sync + 'static) -> Self {
        self.other_keys = Some(OtherKeys(Arc::new(key)));
        self
    }

    /// The key that this word names.
    pub(super) fn key_of(&self, word: &str) -> Option<KeySource> {
        let other = || Some((self.other_keys.as_ref()?.0)(word)?.named(word));
        self.keys.get(word).cloned().or_else(other)
    }

    /// Adds a cost that a policy of a file can name: `cost = "rows"`.
    ///
    /// ```
    /// use ratelimit_tower::Cost;
    /// use ratelimit_tower::config::{Config, Provided};
    ///
    /// #[derive(Clone)]
    /// struct Rows(u64); // put into the request's extensions by middleware
    ///
    /// let rows = Cost::function(|request| request.extensions.get::<Rows>().map_or(1, |rows| rows.0));
    /// let file = "policies: [{name: rows, key: address, limit: 1000/min, cost: rows}]";
    /// let config = Config::from_yaml_with(file, "limits.yaml", &Provided::default().cost("rows", rows))?;
    /// # let _ = config;
    /// # Ok::<(), ratelimit_tower::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn cost(mut self, name: impl Into<String>, cost: Cost) -> Self {
        self.costs.insert(name.into(), cost);
        self
    }
}
