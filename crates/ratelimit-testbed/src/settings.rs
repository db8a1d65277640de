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
        let mut settings = Self::default();
        for (name, value) in env::vars().filter(|(_, value)| !value.is_empty()) {
            let Some(rest) = name.strip_prefix("RATELIMIT_") else { continue };
            if rest.ends_with("_URL") {
                settings.addresses.insert(name, value);
            } else if let Some(server) = rest.strip_suffix("_IMAGE") {
                settings.images.insert(server.to_lowercase().replace('_', "-"), value);
            }
        }
        settings.install = flag("RATELIMIT_INSTALL").unwrap_or_else(|| flag("CI").unwrap_or(false));
        settings.only = match env::var("RATELIMIT_ONLY").as_deref() {
            Ok("docker") => Some(Way::Docker),
            Ok("process") => Some(Way::Process),
            _ => None,
        };
        settings
    }
}

/// The value of a boolean variable, `None` if it is not set.
fn flag(name: &str) -> Option<bool> {
    let value = env::var(name).ok()?;
    Some(matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}
