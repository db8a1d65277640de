//! Events and metrics of configuration files that change.

use super::ConfigError;

/// Exports a zero for each result: from a counter that begins at one, Prometheus does not see an increase.
pub(super) fn no_reloads() {
    #[cfg(feature = "metrics")]
    for result in ["replaced", "failed"] {
        metrics::counter!("ratelimit_config_reloads_total", "result" => result).increment(0);
    }
}

/// Records which content of a file is in force, since now, and which was before.
#[cfg_attr(not(all(feature = "metrics", feature = "tracing")), allow(unused_variables))]
pub(super) fn in_force(file: &str, hash: &str, before: Option<&str>) {
    #[cfg(feature = "metrics")]
    {
        use ratelimit_core::{Clock as _, SystemClock};

        let info = |hash: &str, value| {
            let labels = [("file", file.to_owned()), ("hash", hash.to_owned())];
            metrics::gauge!("ratelimit_config_info", &labels).set(value);
        };
        if let Some(before) = before {
            info(before, 0.0);
        }
        info(hash, 1.0);
        let now = std::time::Duration::from_nanos(SystemClock::new().now().as_nanos()).as_secs_f64();
        metrics::gauge!("ratelimit_config_loaded_timestamp_seconds", "file" => file.to_owned()).set(now);
    }
    #[cfg(feature = "tracing")]
    tracing::info!(file, hash, "this configuration is in force");
}

/// Records that the policies of `file` were replaced.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn replaced(file: &str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_config_reloads_total", "result" => "replaced").increment(1);
    #[cfg(feature = "tracing")]
    tracing::info!(file, "the policies were replaced");
}

/// Records that a file has changed and cannot be used.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn failed(error: &ConfigError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_config_reloads_total", "result" => "failed").increment(1);
    #[cfg(feature = "tracing")]
    tracing::warn!(%error, "the policies stay as they are: the new file cannot be used");
}
