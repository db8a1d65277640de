//! The options of a run.

use std::time::Duration;

/// The options of a run.
///
/// ```
/// use ratelimit_conformance::Suite;
///
/// let suite = Suite::default().filters(["worked-examples/"]);
/// assert!(suite.cases().len() > 10);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suite {
    /// Run only cases whose name contains one of these. Empty for all cases.
    pub filters: Vec<String>,
    /// Skip cases whose name contains one of these.
    pub skip: Vec<String>,
    /// Filters and skips match whole names.
    pub exact: bool,
    /// The number of cases that run concurrently.
    pub jobs: usize,
    /// The number of random claims to compare with the model, over all cases and for each subject.
    pub random: u64,
    /// The seed of the random claims.
    pub seed: u64,
    /// The time limit of a case. It grows with [`random`](Self::random) for cases of random claims. It shrinks, down to 10
    /// s, on a target with hung cases.
    pub case_limit: Duration,
    /// End the run at the first failure: no more cases start, and those that are running are not waited for.
    pub fail_fast: bool,
}

impl Default for Suite {
    fn default() -> Self {
        Self {
            filters: Vec::new(),
            skip: Vec::new(),
            exact: false,
            jobs: 8,
            random: 26_000,
            seed: 1,
            case_limit: Duration::from_secs(120),
            fail_fast: false,
        }
    }
}

impl Suite {
    /// Sets [`filters`](Self#structfield.filters).
    #[must_use]
    pub fn filters(mut self, filters: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets [`skip`](Self#structfield.skip).
    #[must_use]
    pub fn skip(mut self, skip: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.skip = skip.into_iter().map(Into::into).collect();
        self
    }

    ratelimit_core::kit::setters! {
        exact: bool,
        jobs: usize,
        random: u64,
        seed: u64,
        case_limit: Duration,
        fail_fast: bool,
    }

    pub(crate) fn selects(&self, name: &str) -> bool {
        let is_named = |text: &String| if self.exact { name == text } else { name.contains(text.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(is_named)) && !self.skip.iter().any(is_named)
    }
}
