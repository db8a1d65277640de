//! The suite as a library: what to run, and how.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

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
    /// No cases whose name contains one of these.
    pub skip: Vec<String>,
    /// Filters and skips are whole names and not parts of names.
    pub exact: bool,
    /// How many cases run side by side.
    pub jobs: usize,
    /// How many random claims are compared with the model, over all cases and for each subject.
    pub random: u64,
    /// What the random numbers begin with. The same seed gives the same claims.
    pub seed: u64,
    /// A case that takes longer has hung, and fails. Cases of random claims get more when there are more than usual, and
    /// all get less, though 10 s at least, on a target that has hung before.
    pub case_limit: Duration,
    /// Start no further case when one has failed.
    pub fail_fast: bool,
}

impl Default for Suite {
    fn default() -> Self {
        Self {
            filters: Vec::new(),
            skip: Vec::new(),
            exact: false,
            jobs: 8,
            random: 20_000,
            seed: 1,
            case_limit: Duration::from_secs(120),
            fail_fast: false,
        }
    }
}

impl Suite {
    /// The cases that would be run: their names, and what each of them proves.
    pub fn cases(&self) -> Vec<(String, &'static str)> {
        let selected = cases::all().into_iter().filter(|case| self.selects(&case.name));
        selected.map(|case| (case.name, case.about)).collect()
    }

    /// Runs the cases on these subjects. It has threads of its own, so it can be awaited in any test; a store that blocks
    /// or spins stops its own case and no other.
    ///
    /// # Panics
    /// If this machine has no thread left.
    pub async fn run(&self, subjects: &[Arc<dyn Subject>]) -> Report {
        let (suite, subjects) = (self.clone(), subjects.to_vec());
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || tell.send(run(&suite, &subjects, &mut Silent)));
        told.await.expect("the run ends by itself")
    }

    pub(crate) fn selects(&self, name: &str) -> bool {
        let is_named = |text: &String| if self.exact { name == text } else { name.contains(text.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(is_named)) && !self.skip.iter().any(is_named)
    }
}
