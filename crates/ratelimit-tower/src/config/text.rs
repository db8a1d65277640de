//! Parses the text of a file.

use std::path::Path;

use ratelimit_core::Limits;

use super::document::Problem;
use super::plan_name::PlanName;
use super::policies::{self, Config, PolicyLimits};
use super::{ConfigError, Provided, de, toml, yaml};
use crate::Policies;

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
        Self::read(text, Format::Toml, provided, Path::new(""))
            .map_err(|problem| ConfigError::wrong(file, problem))
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
        Self::read(text, Format::Yaml, provided, Path::new(""))
            .map_err(|problem| ConfigError::wrong(file, problem))
    }

    /// The policies, for [`RateLimitLayer`](crate::RateLimitLayer).
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Returns the plan of this name, to put into a request's extensions; `None` if the file has no such plan.
    pub fn plan(&self, name: &str) -> Option<PlanName> {
        self.plans.get(name).cloned().map(PlanName)
    }

    /// The names of the plans.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &str> {
        self.plans.iter().map(|plan| &**plan)
    }

    /// The limits under which a policy counts requests with this plan, or without one. `None` if the policy does not apply to
    /// them: the plan is unlimited, or neither has a limit.
    ///
    /// ```
    /// use ratelimit_tower::config::Config;
    ///
    /// let file = "policies: [{name: requests, key: path, limit: 1/s}]\nplans: {paid: {requests: 9/s}}";
    /// let config = Config::from_yaml(file, "limits.yaml")?;
    /// let text = |plan| config.limits("requests", plan).map(ToString::to_string);
    /// assert_eq!((text(None), text(Some("paid"))), (Some("1/s".to_owned()), Some("9/s".to_owned())));
    /// # Ok::<(), ratelimit_tower::config::ConfigError>(())
    /// ```
    pub fn limits(&self, policy: &str, plan: Option<&str>) -> Option<&Limits> {
        let PolicyLimits { default_limits, plans } = self.limits.get(policy)?;
        plan.and_then(|plan| plans.get(plan)).unwrap_or(default_limits).as_ref()
    }

    /// Relative paths in `text` start from `folder`.
    pub(super) fn read(
        text: &str,
        format: Format,
        provided: &Provided,
        folder: &Path,
    ) -> Result<Self, Problem> {
        let document = match format {
            Format::Toml => toml::read(text)?,
            Format::Yaml => yaml::read(text)?,
        };
        policies::build(&de::from_node(&document)?, provided, folder)
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
