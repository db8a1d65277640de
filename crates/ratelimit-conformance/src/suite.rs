//! The suite as a library: what to run, and how.

use std::sync::Arc;
use std::time::Duration;

use crate::cases;
use crate::progress::Silent;
use crate::report::Report;
use crate::runner::run;
use crate::subject::Subject;

/// What to run, and how.
///
/// ```
/// use ratelimit_conformance::Suite;
///
/// let suite = Suite { filters: vec!["worked-examples/".into()], ..Suite::default() };
/// assert!(suite.cases().len() > 10);
/// ```
#[derive(Clone, Debug)]
pub struct Suite {
    /// Only cases whose name contains one of these; all if empty.
    pub filters: Vec<String>,
    /// The one case with exactly this name.
    pub exactly: Option<String>,
    /// How many cases run side by side.
    pub jobs: usize,
    /// How many random claims are compared with the model, over all cases and for each subject.
    pub random: u64,
    /// What the random numbers begin with. The same seed gives the same claims.
    pub seed: u64,
    /// A case that takes longer hangs. Cases of random claims get more when there are more than usual.
    pub case_limit: Duration,
}

impl Default for Suite {
    fn default() -> Self {
        Self {
            filters: Vec::new(),
            exactly: None,
            jobs: 8,
            random: 20_000,
            seed: 1,
            case_limit: Duration::from_secs(120),
        }
    }
}

impl Suite {
    /// The cases that would be run: their names, and what each of them proves.
    pub fn cases(&self) -> Vec<(String, &'static str)> {
        let selected = cases::all().into_iter().filter(|case| self.selects(&case.name));
        selected.map(|case| (case.name, case.about)).collect()
    }

    /// Runs the cases on these subjects, on the tokio runtime of the caller, which must have several threads: a store
    /// that blocks one would otherwise stop everything.
    pub async fn run(&self, subjects: &[Arc<dyn Subject>]) -> Report {
        run(self, subjects, &Silent).await
    }

    pub(crate) fn selects(&self, name: &str) -> bool {
        self.exactly.as_deref().is_none_or(|exactly| exactly == name)
            && (self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str())))
    }
}
