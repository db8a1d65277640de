//! The settings for finding and starting servers.

use std::collections::BTreeMap;
use std::env;

/// A way to start a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A container.
    Docker,
    /// A private process of a program that is installed or may be.
    Process,
}

/// The settings for finding and starting servers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The addresses to use as they are, by variable: `RATELIMIT_REDIS_URL`, …
    pub addresses: BTreeMap<String, String>,
    /// The images to use instead of the official ones, by server: `redis`, …
    pub images: BTreeMap<String, String>,
    /// Whether the Debian package may be installed.
    pub install: bool,
    /// The only way of starting a server that is tried if there is no address; with `None` the first that works.
    pub only: Option<Way>,
}

impl Settings {
    /// The settings in this process's environment. Values of `RATELIMIT_ONLY` other than `docker` and `process` are
    /// ignored.
    pub fn from_env() -> Self {
        let mut settings = Self::from_variables(env::vars());
        settings.install = flag("RATELIMIT_INSTALL").unwrap_or_else(|| flag("CI").unwrap_or(false));
        settings.only = match env::var("RATELIMIT_ONLY").as_deref() {
            Ok("docker") => Some(Way::Docker),
            Ok("process") => Some(Way::Process),
            _ => None,
        };
        settings
    }

    /// The addresses and images in these variables.
    fn from_variables(variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut settings = Self::default();
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            let Some(rest) = name.strip_prefix("RATELIMIT_") else { continue };
            if rest.ends_with("_URL") {
                settings.addresses.insert(name, value);
            } else if let Some(server) = rest.strip_suffix("_IMAGE") {
                settings.images.insert(server.to_lowercase(), value);
            }
        }
        settings
    }

    /// The image of the server of this name. Variables cannot contain `-` and `.`, and have `_` instead.
    pub(crate) fn image(&self, server: &str) -> Option<&String> {
        let plain = |name: &str| name.replace(['-', '.'], "_");
        self.images.iter().find(|(name, _)| plain(name) == plain(server)).map(|(_, image)| image)
    }
}

/// The value of a boolean variable, `None` if it is not set.
fn flag(name: &str) -> Option<bool> {
    let value = env::var(name).ok()?;
    Some(matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn images_are_found_by_the_names_of_their_variables() {
        let variables = ["REDIS", "REDIS_6_2", "VALKEY_9", "POSTGRES-16"]
            .map(|server| (format!("RATELIMIT_{server}_IMAGE"), format!("of {server}")));
        let settings = Settings::from_variables(variables.into_iter());
        for (server, image) in [
            ("redis", Some("of REDIS")),
            ("redis-6.2", Some("of REDIS_6_2")),
            ("valkey-9", Some("of VALKEY_9")),
            ("postgres-16", Some("of POSTGRES-16")),
            ("postgres", None),
        ] {
            assert_eq!(settings.image(server).map(String::as_str), image, "{server}");
        }
    }
}
