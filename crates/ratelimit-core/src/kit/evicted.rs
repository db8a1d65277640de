//! The figure of evictions, which all stores that evict publish under one name.

/// Counts meters that a store has evicted although they still counted: adds to the metric `ratelimit_evicted_total`, with
/// the store's name as its label `store`, if the feature `metrics` is enabled.
///
/// Call it with zero when a store is created that can evict. From a counter that begins at one, Prometheus does not see an
/// increase.
#[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
pub fn count_evicted(store: &'static str, meters: u64) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratelimit_evicted_total", "store" => store).increment(meters);
}
