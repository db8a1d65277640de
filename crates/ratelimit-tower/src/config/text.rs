//! Parses the text of a file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::document::Problem;
use super::plan_name::PlanName;
use super::{ConfigError, Provided, de, file, policies, toml, yaml};
use crate::Policies;

/// The contents of a file: policies and plans. See [the module](super) for the format.
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

#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Toml,
    Yaml,
}

impl Config {
    /// Parses TOML. Errors contain the name `file`.
    ///
    /// # Errors
    /// If the text is not TOML, or not a valid configuration.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ConfigError> {
        Self::from_toml_with(text, file, &Provided::default())
    }

    /// Parses TOML that can use names that the program provides.
    ///
    /// # Errors
    /// Like [`from_toml`](Self::from_toml).
    pub fn from_toml_with(text: &str, file: &str, provided: &Provided) -> Result<Self, ConfigError> {
        Self::read(text, Format::Toml, provided).map_err(|problem| ConfigError::wrong(file, problem))
    }

    /// Parses YAML. Errors contain the name `file`.
    ///
    /// # Errors
    /// If the text is not YAML, or not a valid configuration.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, ConfigError> {
        Self::from_yaml_with(text, file, &Provided::default())
    }

    /// Parses YAML that can use names that the program provides.
    ///
    /// # Errors
    /// Like [`from_yaml`](Self::from_yaml).
    pub fn from_yaml_with(text: &str, file: &str, provided: &Provided) -> Result<Self, ConfigError> {
        Self::read(text, Format::Yaml, provided).map_err(|problem| ConfigError::wrong(file, problem))
    }

    /// The policies, for [`RateLimitLayer`](crate::RateLimitLayer).
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Returns the plan of this name, to put into a request's extensions; `None` if the file has no such plan.
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
    /// The format according to a file's name.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}
