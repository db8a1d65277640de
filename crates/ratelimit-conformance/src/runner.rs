//! Runs cases concurrently, each in its own space and with a time limit. Cases that stop the server or load it heavily run
//! last, one at a time.
//!
//! The thread that calls [`run`] starts the cases, waits for them and enforces their limits. It runs no code of a store, so
//! no store can stop it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::case::Case;
use crate::cases;
use crate::control::Control;
use crate::failure::with_sources;
use crate::job::Job;
use crate::journal::Journal;
use crate::lane::{Ended, Lane, Running};
use crate::progress::{Progress, Silent};
use crate::report::{CaseReport, Outcome, Report};
use crate::subject::Subject;
use crate::suite::Suite;

/// The number of random claims that fit into the usual time limit.
const USUAL_CLAIMS: u64 = 100_000;

/// The minimum time limit of a case, unless the usual limit is shorter.
const LEAST: Duration = Duration::from_secs(10);

/// The time limit for restoring the server after a case.
const RESTORE: Duration = Duration::from_secs(60);

/// The time limit for background tasks of stores after the last case.
const CLOSE: Duration = Duration::from_secs(1);

/// The interval of progress ticks.
const TICK: Duration = Duration::from_secs(1);

/// A run in progress.
struct Run<'a> {
    suite: Arc<Suite>,
    progress: &'a mut dyn Progress,
    lanes: Vec<Lane>,
    tickets: u64,
    ends: (Sender<Ended>, Receiver<Ended>),
    done: Vec<(usize, CaseReport)>,
    /// The number of hung cases of each target.
    hung: HashMap<String, u32>,
    /// Whether to start no more cases.
    stopped: bool,
}

impl Suite {
    /// The selected cases: the name of each, and what it tests.
    pub fn cases(&self) -> Vec<(String, &'static str)> {
        self.selected().map(|case| (case.name, case.about)).collect()
    }

    /// Runs the cases on a subject, and panics unless they pass: the body of an ordinary test.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use ratelimit_conformance::{BoxError, Space, Subject, Suite};
    /// # struct MyStore;
    /// # #[async_trait::async_trait]
    /// # impl Subject for MyStore {
    /// #     fn name(&self) -> &str { "mine" }
    /// #     async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> { Err("none".into()) }
    /// # }
    /// # async fn test() {
    /// Suite::default().check(MyStore).await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If [`Report::is_success`] is false: a case fails or is skipped, no case applies, or the subject is unavailable. The
    /// message is the report. Use [`run`](Self::run) to decide otherwise.
    pub async fn check(&self, subject: impl Subject + 'static) {
        let report = self.run(&[Arc::new(subject)]).await;
        assert!(report.is_success(), "the store does not pass the conformance suite\n{report}");
    }

    /// Runs the cases on these subjects.
    ///
    /// The run has its own threads, so any runtime can await it. A store that blocks or spins stops only its own case.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub async fn run(&self, subjects: &[Arc<dyn Subject>]) -> Report {
        let (suite, subjects) = (self.clone(), subjects.to_vec());
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            let report = run(&suite, &subjects, &mut Silent);
            // The caller drops the last reference: a subject may need the caller's runtime for it.
            drop(subjects);
            sender.send(report)
        });
        receiver.await.expect("the run sends its report")
    }

    fn selected(&self) -> impl Iterator<Item = Case> {
        cases::all().into_iter().filter(|case| self.selects(&case.name))
    }
}

/// Runs the suite on these subjects, and returns when it has ended.
pub(crate) fn run(suite: &Suite, subjects: &[Arc<dyn Subject>], progress: &mut dyn Progress) -> Report {
    let unavailable: Vec<_> = subjects
        .iter()
        .filter_map(|subject| Some((subject.name().to_owned(), subject.unavailable()?)))
        .collect();
    let is_there = |subject: &&Arc<dyn Subject>| !unavailable.iter().any(|(name, _)| name == subject.name());
    let subjects: Vec<_> = subjects.iter().filter(is_there).cloned().collect();
    let jobs = jobs(suite, &subjects);
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
    run.all(in_turn(together), suite.jobs.max(1));
    run.all(alone, 1);
    Report { unavailable, ..run.end(total) }
}

/// The order in which cases start: a quarter of the short ones, among them those about names, so that a mistake in these is
/// found at once; then those that wait for long, so that at the end nothing waits for them alone; then the rest.
fn in_turn(jobs: Vec<(usize, Job)>) -> Vec<(usize, Job)> {
    let (waiting, mut short): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(_, job)| job.case.waits());
    let rest = short.split_off(short.len() / 4);
    short.into_iter().chain(waiting).chain(rest).collect()
}

fn jobs(suite: &Suite, subjects: &[Arc<dyn Subject>]) -> Vec<Job> {
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
    suite.selected().flat_map(of_case).collect()
}

impl Run<'_> {
    /// Runs these jobs, at most `most` of them concurrently.
    fn all(&mut self, jobs: Vec<(usize, Job)>, most: usize) {
        let mut waiting = jobs.into_iter();
        loop {
            while !self.stopped && self.running() < most {
                let Some((place, job)) = waiting.next() else { break };
                self.start(place, job);
            }
            if self.stopped {
                self.abandon();
            }
            if self.running() == 0 {
                return;
            }
            self.wait();
        }
    }

    /// Ends the running cases without a result.
    fn abandon(&mut self) {
        for lane in &mut self.lanes {
            if lane.take().is_some() {
                std::mem::replace(lane, Lane::new()).abandon();
            }
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

    /// The time limit of a case. It shrinks with each hung case of the target: otherwise the run on a store that always
    /// hangs would take hours.
    fn limit(&self, job: &Job) -> Duration {
        let usual = self.suite.case_limit;
        let many =
            if cases::is_random(&job.case) { self.suite.random.div_ceil(USUAL_CLAIMS).max(1) } else { 1 };
        let hung = self.hung.get(job.subject.name()).copied().unwrap_or(0);
        let limit = usual.saturating_mul(u32::try_from(many).unwrap_or(u32::MAX));
        (limit / hung.saturating_add(1)).max(LEAST.min(usual))
    }

    /// Waits until a case ends, a deadline passes, or the next tick.
    fn wait(&mut self) {
        let now = Instant::now();
        let deadline = self.lanes.iter().filter_map(Lane::deadline).min().unwrap_or(now);
        let ended = self.ends.1.recv_timeout(deadline.saturating_duration_since(now).min(TICK));
        if let Ok((ticket, outcome)) = ended
            // A case may still end after its limit. It has failed by then.
            && let Some(lane) = self.lanes.iter().position(|lane| lane.runs(ticket))
            && let Some(running) = self.lanes[lane].take()
        {
            self.finish(lane, running, outcome);
        }
        self.end_late();
        self.progress.tick();
    }

    /// Fails the cases that have exceeded their limit.
    fn end_late(&mut self) {
        let now = Instant::now();
        let is_late = |lane: &Lane| lane.deadline().is_some_and(|deadline| deadline <= now);
        while let Some(lane) = self.lanes.iter().position(is_late) {
            let mut late = std::mem::replace(&mut self.lanes[lane], Lane::new());
            let running = late.take();
            // Read first: an abandoned call is one that was dropped by the caller.
            let texts =
                running.as_ref().map(|running| (running.journal.unanswered(), running.journal.reported()));
            late.abandon();
            if let Some((running, (waiting, reported))) = running.zip(texts) {
                *self.hung.entry(running.job.subject.name().to_owned()).or_default() += 1;
                let outcome =
                    Outcome::Failed(format!("hung: no end after {:?}, {waiting}{reported}", running.limit));
                self.finish(lane, running, outcome);
            }
        }
    }

    /// Restores the server, and records the result of the case. The lane is free.
    fn finish(&mut self, lane: usize, running: Running, outcome: Outcome) {
        let Running { place, job, began, .. } = running;
        let took = began.elapsed();
        let restored = self.restore(lane, &job);
        let outcome = restored.err().map_or(outcome, Outcome::Failed);
        self.stopped |= self.suite.fail_fast && matches!(outcome, Outcome::Failed(_));
        let (target, about) = (job.subject.name().to_owned(), job.case.about);
        let report = CaseReport { target, case: job.case.name, about, outcome, took };
        self.progress.done(&report);
        self.done.push((place, report));
    }

    fn restore(&self, lane: usize, job: &Job) -> Result<(), String> {
        let Some(control) = job.control.clone().filter(|_| job.case.runs_alone()) else { return Ok(()) };
        let work = async move { control.restore().await.map_err(|error| with_sources(&*error)) };
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
        let report = Report { not_run: total - cases.len(), cases, unavailable: Vec::new() };
        self.progress.end();
        report
    }
}
