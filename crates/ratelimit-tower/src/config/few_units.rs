//! Warns of limits of a few units in sliding windows: they make clients wait for longer than a period.

use ratelimit_core::{Algorithm, Limit};

use super::Config;

/// The least quota without a warning. A client that has used such a limit up waits for a tenth of a period more than a
/// period, at most.
const ENOUGH: u64 = 10;

/// Warns of each such limit in `file`.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn warn(file: &str, config: &Config) {
    for (policy, limits) in &config.limits {
        for limit in limits.each().flat_map(|limits| limits.iter()).filter(|limit| is_of_few_units(limit)) {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                file,
                policy,
                %limit,
                "with so few units, clients may wait for longer than the period: add `log`, `bucket` or `fixed` to the limit"
            );
        }
    }
}

fn is_of_few_units(limit: &Limit) -> bool {
    limit.algorithm() == Algorithm::SlidingWindow && (1..ENOUGH).contains(&limit.quota())
}
