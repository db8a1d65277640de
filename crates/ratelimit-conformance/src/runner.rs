//! Runs cases: side by side, each in a space and a task of its own, bounded in time; those that stop the server last.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use crate::bench::{Bench, panic_message};
use crate::case::Case;
use crate::cases;
use crate::control::Control;
use crate::failure::{CaseResult, Failure};
use crate::progress::Progress;
use crate::random;
use crate::report::{CaseReport, Outcome, Report};
use crate::subject::Subject;
use crate::suite::Suite;

/// Random claims that fit into a case's usual time.
const USUAL_CLAIMS: u64 = 100_000;

/// One case on one subject.
struct Job {
    case: Case,
    subject: Arc<dyn Subject>,
    control: Option<Arc<Control>>,
}

/// Runs the suite on these subjects.
pub(crate) async fn run(suite: &Suite, subjects: &[Arc<dyn Subject>], progress: &dyn Progress) -> Report {
    let shared = Arc::new(suite.clone());
    let jobs = jobs(suite, subjects);
    progress.begin(jobs.len());
    let (alone, together): (Vec<_>, Vec<_>) =
        jobs.into_iter().enumerate().partition(|(_, job)| job.case.runs_alone());
    let mut done: Vec<(usize, CaseReport)> = stream::iter(together)
        .map(|(place, job)| {
            let suite = shared.clone();
            async move {
                let report = job.run(suite).await;
                progress.done(&report);
                (place, report)
            }
        })
        .buffer_unordered(suite.jobs.max(1))
        .collect()
        .await;
    for (place, job) in alone {
        let mut report = job.run(shared.clone()).await;
        if let Some(Err(error)) = job.restore().await {
            report.outcome = Outcome::Failed(format!("the server could not be restored: {error}"));
        }
        progress.done(&report);
        done.push((place, report));
    }
    progress.end();
    done.sort_by_key(|(place, _)| *place);
    Report { cases: done.into_iter().map(|(_, report)| report).collect() }
}

fn jobs(suite: &Suite, subjects: &[Arc<dyn Subject>]) -> Vec<Job> {
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| suite.selects(&case.name)).collect();
    let controls: Vec<_> = subjects
        .iter()
        .map(|subject| subject.server().map(|server| Arc::new(Control::new(server))))
        .collect();
    let of_case = |case: Case| {
        let job = |(subject, control): (&Arc<dyn Subject>, &Option<Arc<Control>>)| Job {
            case: case.clone(),
            subject: subject.clone(),
            control: control.clone(),
        };
        subjects.iter().zip(&controls).map(job).collect::<Vec<_>>()
    };
    cases.into_iter().flat_map(of_case).collect()
}

impl Job {
    async fn run(&self, suite: Arc<Suite>) -> CaseReport {
        let began = tokio::time::Instant::now();
        let limit = self.limit(&suite);
        let task = tokio::spawn(in_fresh_space(
            self.case.clone(),
            self.subject.clone(),
            self.control.clone().filter(|_| self.case.runs_alone()),
            suite,
        ));
        let stop = task.abort_handle();
        let outcome = match tokio::time::timeout(limit, task).await {
            Ok(Ok(Ok(()))) => Outcome::Passed,
            Ok(Ok(Err(failure))) => failure.into_outcome(),
            Ok(Err(error)) => Outcome::Failed(panic_message(error)),
            Err(_) => {
                stop.abort();
                Outcome::Failed(format!("hung: no end after {limit:?}"))
            }
        };
        CaseReport {
            target: self.subject.name().to_owned(),
            case: self.case.name.clone(),
            outcome,
            took: began.elapsed(),
        }
    }

    fn limit(&self, suite: &Suite) -> Duration {
        if !cases::is_random(&self.case) || suite.random <= USUAL_CLAIMS {
            return suite.case_limit;
        }
        suite
            .case_limit
            .saturating_mul(u32::try_from(suite.random.div_ceil(USUAL_CLAIMS)).unwrap_or(u32::MAX))
    }

    async fn restore(&self) -> Option<Result<(), crate::BoxError>> {
        let control = self.control.as_ref()?;
        let bounded = tokio::time::timeout(Duration::from_secs(60), control.restore()).await;
        Some(bounded.unwrap_or_else(|_| Err("no end after 60 s".into())))
    }
}

async fn in_fresh_space(
    case: Case,
    subject: Arc<dyn Subject>,
    control: Option<Arc<Control>>,
    suite: Arc<Suite>,
) -> CaseResult {
    let space = subject.fresh().await.map_err(|error| cannot("make a space", &*error))?;
    let store = space.open().await.map_err(|error| cannot("open a store", &*error))?;
    let seed = suite.seed ^ random::hash(&case.name);
    case.run(Bench { space, control, store, suite, seed }).await
}

fn cannot(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(format!("cannot {what}: {error}"))
}
