//! The text of a file, and what it says.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::document::Problem;
use super::{ConfigError, Provided, de, file, policies, toml, yaml};
use crate::Policies;

/// What a file says: policies and plans. See [the module](super) for how it is written.
///
/// ```
/// use ratelimit_tower::config::Config;
///
/// let config = Config::from_yaml("policies: [{name: address, key: address, limit: 100/min}]", "limits.yaml")?;
/// assert_eq!(config.policies().each().len(), 1);
/// # Ok::<(), ratelimit_tower::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    policies: Policies,
    plans: BTreeSet<Arc<str>>,
}

/// The plan that a request has, as an extension of it: put there by middleware around the layer.
///
/// It comes from [`Config::plan`] or [`ConfigFile::plan`](super::ConfigFile::plan), so a plan that the file does not know is
/// noticed where the client is looked up, and cannot silently mean "no limit".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanName(pub(super) Arc<str>);

impl PlanName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Toml,
    Yaml,
}

impl Config {
    /// Reads TOML. Errors name `file`.
    ///
    /// # Errors
    /// If the text is no TOML, or says what cannot be done.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ConfigError> {
        Self::from_toml_with(text, file, &Provided::default())
    }

    /// Reads TOML that can name what the program provides.
    ///
    /// # Errors
    /// As [`from_toml`](Self::from_toml).
    pub fn from_toml_with(text: &str, file: &str, provided: &Provided) -> Result<Self, ConfigError> {
        Self::read(text, Format::Toml, provided).map_err(|problem| ConfigError::wrong(file, problem))
    }

    /// Reads YAML. Errors name `file`.
    ///
    /// # Errors
    /// If the text is no YAML, or says what cannot be done.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, ConfigError> {
        Self::from_yaml_with(text, file, &Provided::default())
    }

    /// Reads YAML that can name what the program provides.
    ///
    /// # Errors
    /// As [`from_yaml`](Self::from_yaml).
    pub fn from_yaml_with(text: &str, file: &str, provided: &Provided) -> Result<Self, ConfigError> {
        Self::read(text, Format::Yaml, provided).map_err(|problem| ConfigError::wrong(file, problem))
    }

    /// The policies, for [`RateLimitLayer`](crate::RateLimitLayer).
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The plan of this name, to be put into a request's extensions; `None` if the file has no such plan.
    pub fn plan(&self, name: &str) -> Option<PlanName> {
        self.plans.get(name).cloned().map(PlanName)
    }

    pub(super) fn read(text: &str, format: Format, provided: &Provided) -> Result<Self, Problem> {
        let document = match format {
            Format::Toml => toml::read(text)?,
            Format::Yaml => yaml::read(text)?,
        };
        let file: file::File = de::from_node(&document)?;
        let policies = policies::build(&file, provided)?;
        Ok(Self { policies, plans: file.plans.into_keys().map(Into::into).collect() })
    }
}

impl Format {
    /// The format that a file's name says.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}
