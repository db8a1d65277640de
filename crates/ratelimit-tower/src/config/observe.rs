//! Events and metrics of configuration files that change.

use super::ConfigError;

/// Exports a zero for each result: from a counter that begins at one, Prometheus does not see an increase.
pub(super) fn no_reloads() {
    #[cfg(feature = "metrics")]
    for result in ["replaced", "failed"] {
        metrics::counter!("ratelimit_config_reloads_total", "result" => result).increment(0);
    }
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
