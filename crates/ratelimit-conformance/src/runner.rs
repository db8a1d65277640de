//! Runs cases: side by side, each in a space of its own and bounded in time; those that stop the server last.
//!
//! The thread that calls [`run`] starts the cases, waits for their ends and keeps their time. It runs nothing of a store's
//! itself, so no store can stop it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::time::Instant;

use crate::bench::Bench;
use crate::case::Case;
use crate::cases;
use crate::control::Control;
use crate::failure::{CaseResult, Failure};
use crate::journal::Journal;
use crate::lane::{Ended, Lane, Running};
use crate::progress::Progress;
use crate::random;
use crate::report::{CaseReport, Outcome, Report};
use crate::subject::Subject;
use crate::suite::Suite;

/// Random claims that fit into a case's usual time.
const USUAL_CLAIMS: u64 = 100_000;

/// A case gets so long in any case, unless the usual limit is shorter still.
const LEAST: Duration = Duration::from_secs(10);

/// How long the server may take to run again after a case.
const RESTORE: Duration = Duration::from_secs(60);

/// How long what stores do in the background may take to end after the last case.
const CLOSE: Duration = Duration::from_secs(1);

/// How often progress is told that time passes.
const TICK: Duration = Duration::from_secs(1);

/// One case on one subject.
#[derive(Clone)]
pub(crate) struct Job {
    case: Case,
    subject: Arc<dyn Subject>,
    control: Option<Arc<Control>>,
}

/// A run on its way.
struct Run<'a> {
    suite: Arc<Suite>,
    progress: &'a mut dyn Progress,
    lanes: Vec<Lane>,
    tickets: u64,
    ends: (Sender<Ended>, Receiver<Ended>),
    done: Vec<(usize, CaseReport)>,
    /// How many cases of each target have hung.
    hung: HashMap<String, u32>,
    /// Whether no further case is started.
    stopped: bool,
}

/// Runs the suite on these subjects, and comes back when it has ended.
pub(crate) fn run(suite: &Suite, subjects: &[Arc<dyn Subject>], progress: &mut dyn Progress) -> Report {
    let jobs = jobs(suite, subjects);
    let total = jobs.len();
    progress.begin(total);
    let (alone, together): (Vec<_>, Vec<_>) =
        jobs.into_iter().enumerate().partition(|(_, job)| job.case.runs_alone());
    let mut run = Run {
        suite: Arc::new(suite.clone()),
        progress,
        lanes: Vec::new(),
        tickets: 0,
        ends: channel(),
        done: Vec::new(),
        hung: HashMap::new(),
        stopped: false,
    };
    run.all(together, suite.jobs.max(1));
    run.all(alone, 1);
    run.end(total)
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

impl Run<'_> {
    /// Runs these jobs, at most `most` of them side by side.
    fn all(&mut self, jobs: Vec<(usize, Job)>, most: usize) {
        let mut waiting = jobs.into_iter();
        loop {
            while !self.stopped && self.running() < most {
                let Some((place, job)) = waiting.next() else { break };
                self.start(place, job);
            }
            if self.running() == 0 {
                return;
            }
            self.wait();
        }
    }

    fn running(&self) -> usize {
        self.lanes.iter().filter(|lane| !lane.is_free()).count()
    }

    fn start(&mut self, place: usize, job: Job) {
        let lane = self.lanes.iter().position(Lane::is_free).unwrap_or_else(|| {
            self.lanes.push(Lane::new());
            self.lanes.len() - 1
        });
        self.tickets += 1;
        let limit = self.limit(&job);
        let journal = Arc::new(Journal::default());
        let case = job.clone().in_fresh_space(self.suite.clone(), journal.clone());
        let running = Running { ticket: self.tickets, place, job, journal, began: Instant::now(), limit };
        self.lanes[lane].start(running, case, self.ends.0.clone());
    }

    /// How long the case may take. Once a target has hung, its further cases get less: a store that hangs whenever it is
    /// asked would otherwise take hours to be told so.
    fn limit(&self, job: &Job) -> Duration {
        let usual = self.suite.case_limit;
        let many =
            if cases::is_random(&job.case) { self.suite.random.div_ceil(USUAL_CLAIMS).max(1) } else { 1 };
        let hung = self.hung.get(job.subject.name()).copied().unwrap_or(0);
        let limit = usual.saturating_mul(u32::try_from(many).unwrap_or(u32::MAX));
        (limit / hung.saturating_add(1)).max(LEAST.min(usual))
    }

    /// Waits until a case ends, one has had its time, or a little time has passed.
    fn wait(&mut self) {
        let now = Instant::now();
        let deadline = self.lanes.iter().filter_map(Lane::deadline).min().unwrap_or(now);
        let ended = self.ends.1.recv_timeout(deadline.saturating_duration_since(now).min(TICK));
        if let Ok((ticket, outcome)) = ended
            // A case that has had its time may still end; it has failed by then.
            && let Some(lane) = self.lanes.iter().position(|lane| lane.runs(ticket))
            && let Some(running) = self.lanes[lane].take()
        {
            self.finish(lane, running, outcome);
        }
        self.end_late();
        self.progress.tick();
    }

    /// Ends the cases that have had their time.
    fn end_late(&mut self) {
        let now = Instant::now();
        let is_late = |lane: &Lane| lane.deadline().is_some_and(|deadline| deadline <= now);
        while let Some(lane) = self.lanes.iter().position(is_late) {
            let mut late = std::mem::replace(&mut self.lanes[lane], Lane::new());
            let running = late.take();
            late.abandon();
            if let Some(running) = running {
                *self.hung.entry(running.job.subject.name().to_owned()).or_default() += 1;
                let told = running.journal.told();
                let outcome = Outcome::Failed(format!("hung: no end after {:?}{told}", running.limit));
                self.finish(lane, running, outcome);
            }
        }
    }

    /// Puts the server right again, and notes what came of the case. The lane is free.
    fn finish(&mut self, lane: usize, running: Running, outcome: Outcome) {
        let Running { place, job, began, .. } = running;
        let took = began.elapsed();
        let restored = self.restore(lane, &job);
        let outcome = restored.err().map_or(outcome, Outcome::Failed);
        self.stopped |= self.suite.fail_fast && matches!(outcome, Outcome::Failed(_));
        let report = CaseReport { target: job.subject.name().to_owned(), case: job.case.name, outcome, took };
        self.progress.done(&report);
        self.done.push((place, report));
    }

    fn restore(&self, lane: usize, job: &Job) -> Result<(), String> {
        let Some(control) = job.control.clone().filter(|_| job.case.runs_alone()) else { return Ok(()) };
        let work = async move { control.restore().await.map_err(|error| error.to_string()) };
        let restored = self.lanes[lane].wait_for(work, RESTORE);
        let restored = restored.unwrap_or_else(|| Err(format!("no end after {RESTORE:?}")));
        restored.map_err(|error| format!("the server could not be restored: {error}"))
    }

    fn end(self, total: usize) -> Report {
        let by = Instant::now() + CLOSE;
        for lane in self.lanes {
            lane.close(by);
        }
        let mut done = self.done;
        done.sort_by_key(|(place, _)| *place);
        let cases: Vec<_> = done.into_iter().map(|(_, report)| report).collect();
        let report = Report { not_run: total - cases.len(), cases };
        self.progress.end();
        report
    }
}

impl Job {
    async fn in_fresh_space(self, suite: Arc<Suite>, journal: Arc<Journal>) -> CaseResult {
        let space = self.subject.fresh().await.map_err(|error| cannot("make a space", &*error))?;
        let store = space.open().await.map_err(|error| cannot("open a store", &*error))?;
        let seed = suite.seed ^ random::hash(&self.case.name);
        let control = self.control.filter(|_| self.case.runs_alone());
        let bench = Bench { space, control, store, suite, journal: journal.clone(), seed };
        self.case.run(bench).await.map_err(|failure| failure.followed_by(|| journal.told()))
    }
}

fn cannot(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(format!("cannot {what}: {error}"))
}
