//! Stores that hang: the run ends in time nevertheless, and its report names the cases.
//!
//! Has no harness: the program also runs itself as the command line of a suite on such a store. The process must end although one
//! of its threads never does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_broken_stores::{Flaw, TableStore};
use ratelimit_conformance::{BoxError, Outcome, ReferenceStore, Report, Space, Subject, Suite};
use ratelimit_core::meter::{State, decide};
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, DynCounterStore, StoreError, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

/// The environment variable that makes this program the command line of a suite.
const CHILD: &str = "CONFORMANCE_HANGING_CHILD";

/// Its value for a suite without subjects.
const NOBODY: &str = "nobody";

/// The time limit of a case.
const LIMIT: Duration = Duration::from_secs(3);

/// Refusals have a retry-after of zero.
#[derive(Debug, Default)]
struct AtOnce;

impl Flaw for AtOnce {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        earlier(claims, states, Duration::MAX)
    }
}

/// Refusals have a retry-after that is a nanosecond too short.
#[derive(Debug, Default)]
struct TickEarly;

impl Flaw for TickEarly {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        earlier(claims, states, Duration::from_nanos(1))
    }
}

fn earlier(claims: &Claims<'_>, states: &mut [Option<State>], by: Duration) -> Answer {
    let mut answer = decide(claims, states);
    for verdict in answer.verdicts.iter_mut().filter(|verdict| !verdict.fits) {
        verdict.fits_at = verdict.fits_at.map(|fits_at| {
            let wait = fits_at.since(claims.now());
            claims.now() + wait.saturating_sub(by)
        });
    }
    answer
}

/// How a forced charge stops its thread.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    Blocks,
    Spins,
}

/// Correct, except that forced charges never return.
#[derive(Debug)]
struct NeverBack(Stopped, Arc<ReferenceStore>);

impl CounterStore for NeverBack {
    fn promises(&self) -> Promises {
        self.1.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        while claims.mode() == Mode::Force {
            match self.0 {
                Stopped::Blocks => thread::park(),
                Stopped::Spins => std::hint::spin_loop(),
            }
        }
        self.1.claim(claims).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.1.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.1.reset(claims).await
    }
}

type Open = fn() -> Arc<dyn DynCounterStore>;

struct Hanging(&'static str, Open);
struct OneStore(Arc<dyn DynCounterStore>);

#[async_trait]
impl Subject for Hanging {
    fn name(&self) -> &str {
        self.0
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(OneStore((self.1)())))
    }
}

#[async_trait]
impl Space for OneStore {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.0.clone())
    }
}

fn at_once() -> Hanging {
    Hanging("at-once", || Arc::new(TableStore::<AtOnce>::default()))
}

fn tick_early() -> Hanging {
    Hanging("tick-early", || Arc::new(TableStore::<TickEarly>::default()))
}

fn blocks() -> Hanging {
    Hanging("blocks", || Arc::new(NeverBack(Stopped::Blocks, Arc::default())))
}

fn spins() -> Hanging {
    Hanging("spins", || Arc::new(NeverBack(Stopped::Spins, Arc::default())))
}

/// Runs the cases with these texts in their names, on one thread.
fn run(subject: Hanging, filters: &[&str], most: Duration) -> Report {
    let suite = Suite::default().filters(filters.iter().copied()).case_limit(LIMIT);
    let total = suite.cases().len();
    let (tell, reported) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tell.send(runtime.block_on(suite.run(&[Arc::new(subject)])))
    });
    let report = reported.recv_timeout(most).expect("the run ends in its time");
    assert_eq!(report.cases.len(), total);
    report
}

fn reason<'a>(report: &'a Report, name: &str) -> &'a str {
    let case = report.cases.iter().find(|case| case.case == name).expect("the case is in the report");
    println!("  {} {}: {:?}", case.target, case.case, case.outcome);
    case.outcome.reason().unwrap_or_default()
}

fn failed(report: &Report) -> Vec<&str> {
    let failed = report.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_)));
    failed.map(|case| case.case.as_str()).collect()
}

/// A caller that believes it retries forever.
fn a_zero_retry_after_does_not_hang_the_run() {
    let report = run(at_once(), &["waiting/", "boundaries/"], LIMIT * 6);
    assert!(reason(&report, "waiting/exactly-as-told-log").contains("come at once"));
    assert!(!reason(&report, "waiting/acquire-many").is_empty());
    assert!(reason(&report, "boundaries/bucket-token").is_empty(), "one that does not wait");
}

/// A caller that believes it always retries a nanosecond too early.
fn a_retry_after_a_nanosecond_too_short_does_not_hang_the_run() {
    let report = run(tick_early(), &["waiting/", "boundaries/"], LIMIT * 6);
    assert!(!reason(&report, "waiting/exactly-as-told-bucket").is_empty());
    assert!(reason(&report, "boundaries/the-quota-and-not-one-more-fixed").is_empty());
}

/// Other cases go on, and the report names each case with a forced charge.
fn cases_whose_threads_never_return_are_reported_as_hung() {
    for subject in [blocks(), spins()] {
        let report = run(subject, &["numbers/", "atomic/forced-charges"], LIMIT * 10);
        for name in ["atomic/forced-charges", "numbers/forced-beyond-everything"] {
            assert!(reason(&report, name).starts_with(&format!("hung: no end after {LIMIT:?}")));
        }
        let failed = failed(&report);
        assert!(failed.len() < report.cases.len() / 2, "{failed:?}");
        assert!(reason(&report, "numbers/largest-quota").is_empty());
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("conformance-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the command line of the suite on these stores, with these arguments.
fn command(arguments: &[&str], json: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments).arg("--report").arg(json).env(CHILD, "1").stdout(Stdio::piped());
    command
}

fn lines(json: &Path) -> Vec<(String, String)> {
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |line: &Value| (text(&line["case"]), text(&line["outcome"]));
    report["cases"].as_array().unwrap().iter().map(line).collect()
}

fn wait(child: &mut Child, most: Duration) -> Option<i32> {
    let began = Instant::now();
    while began.elapsed() < most {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    panic!("the process does not end");
}

/// The process ends although one of its threads spins, with both files and a failure status.
fn the_process_ends_although_a_thread_spins() {
    let folder = Folder::new("ends");
    let (json, xml) = (folder.file("report.json"), folder.file("report.xml"));
    let arguments = ["spins", "--exact", "--filter", "atomic/forced-charges", "--filter", "atomic/batches"];
    let mut command = command(&arguments, &json);
    command.args(["--case-limit", "1.5"]).arg("--junit").arg(&xml);
    assert_eq!(wait(&mut command.spawn().unwrap(), LIMIT * 4), Some(1));
    let line = |name: &str, outcome: &str| (name.to_owned(), outcome.to_owned());
    assert_eq!(lines(&json), [line("atomic/forced-charges", "failed"), line("atomic/batches", "passed")]);
    assert!(std::fs::read_to_string(xml).unwrap().contains("hung: no end after 1.5s"));
}

/// The report of a run that is killed while a case hangs contains the finished cases.
fn a_killed_run_leaves_a_report_of_the_finished_cases() {
    let folder = Folder::new("killed");
    let json = folder.file("report.json");
    let mut child =
        command(&["blocks", "--filter", "atomic/forced-charges", "--filter", "boundaries/"], &json)
            .spawn()
            .unwrap();
    let began = Instant::now();
    let mut ended = 0;
    while ended < 10 {
        assert!(began.elapsed() < LIMIT * 4, "only {ended} cases are in the report");
        thread::sleep(Duration::from_millis(50));
        ended = if json.exists() { lines(&json).len() } else { 0 };
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(report["not_run"].as_u64() >= Some(1), "{report}");
    assert!(!lines(&json).iter().any(|(case, _)| case == "atomic/forced-charges"));
}

/// After a failure no more cases start, and the report says how many are missing.
fn no_case_starts_after_a_failure_with_fail_fast() {
    let folder = Folder::new("fail-fast");
    let json = folder.file("report.json");
    let arguments =
        ["at-once", "waiting/", "--skip", "acquire", "--skip", "overtaken", "--jobs", "1", "--fail-fast"];
    let output = command(&arguments, &json).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let lines = lines(&json);
    assert_eq!(lines, [("waiting/exactly-as-told-fixed".to_owned(), "failed".to_owned())]);
    assert!(printed.contains("cases were not run after a failure"), "{printed}");
    assert!(printed.trim_end().ends_with("0 passed, 1 failed, 0 skipped"), "{printed}");
}

/// `--exact` and `--skip` work as on other tests, and the output says which cases do not apply.
fn exact_and_skip_select_cases_by_name() {
    let folder = Folder::new("names");
    let json = folder.file("report.json");
    let run = |arguments: &[&str]| {
        let output = command(arguments, &json).output().unwrap();
        (
            output.status.code(),
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()),
        )
    };
    let (status, _) = run(&["blocks", "--exact", "trips/one-for-a-batch", "boundaries/offset"]);
    assert_eq!((status, lines(&json).len()), (Some(0), 2));
    let (status, [printed, _]) =
        run(&["blocks", "server-time/", "boundaries/", "--skip", "boundaries/the-quota"]);
    assert_eq!(status, Some(0), "{printed}");
    assert!(!printed.contains("the-quota"), "{printed}");
    assert!(printed.contains("cases do not apply to blocks because the store declares"), "{printed}");
    let (status, _) = run(&["blocks", "--exact", "boundaries/"]);
    assert_eq!(status, Some(2), "a part of a name is no name");
    let (status, _) = run(&["blokcs"]);
    assert_eq!(status, Some(2), "neither a target nor a case");
    let (status, _) = run(&["blocks", "boundaries/", "--case-limit", "0"]);
    assert_eq!(status, Some(2), "no case ends in no time");
}

/// A run without a store is no success.
fn a_run_without_subjects_fails() {
    let folder = Folder::new("nobody");
    let output = command(&[], &folder.file("report.json")).env(CHILD, NOBODY).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("nothing was executed"), "{printed}");
}

fn main() -> ExitCode {
    if env::var(CHILD).is_ok_and(|value| value == NOBODY) {
        return ratelimit_conformance::main(Vec::new());
    }
    if env::var_os(CHILD).is_some() {
        let subjects = [at_once(), tick_early(), blocks(), spins()];
        let subjects = subjects.map(|subject| Box::new(subject) as Box<dyn Subject>);
        return ratelimit_conformance::main(Vec::from(subjects));
    }
    let tests: [(&str, fn()); 8] = [
        ("a_run_without_subjects_fails", a_run_without_subjects_fails),
        ("a_zero_retry_after_does_not_hang_the_run", a_zero_retry_after_does_not_hang_the_run),
        (
            "a_retry_after_a_nanosecond_too_short_does_not_hang_the_run",
            a_retry_after_a_nanosecond_too_short_does_not_hang_the_run,
        ),
        ("the_process_ends_although_a_thread_spins", the_process_ends_although_a_thread_spins),
        (
            "a_killed_run_leaves_a_report_of_the_finished_cases",
            a_killed_run_leaves_a_report_of_the_finished_cases,
        ),
        ("no_case_starts_after_a_failure_with_fail_fast", no_case_starts_after_a_failure_with_fail_fast),
        ("exact_and_skip_select_cases_by_name", exact_and_skip_select_cases_by_name),
        // Its threads spin until this process ends.
        (
            "cases_whose_threads_never_return_are_reported_as_hung",
            cases_whose_threads_never_return_are_reported_as_hung,
        ),
    ];
    for (name, test) in tests {
        println!("{name}");
        test();
    }
    println!("{} passed, 0 failed, 0 skipped", tests.len());
    ExitCode::SUCCESS
}
