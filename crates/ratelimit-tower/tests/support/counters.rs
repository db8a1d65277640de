//! What a test has counted.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, Snapshotter};

/// The counters, and the number of values of histograms.
pub(crate) fn counted(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let number = match value {
            DebugValue::Counter(number) => number,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => 0,
        };
        counted.insert(format!("{} {}", key.name(), labels.join(" ")).trim().to_owned(), number);
    }
    counted
}
