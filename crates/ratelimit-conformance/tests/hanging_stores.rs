//! Stores that make a run hang: it ends all the same, in its time, and its report names the cases.
//!
//! Without a harness: the program also runs itself as the command line of a suite on such a store, which must end as a
//! process although a thread of it never does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::broken_stores::{Flaw, ModelStore, TableStore};
use ratelimit_conformance::{BoxError, Outcome, Report, Space, Subject, Suite};
use ratelimit_core::{
    Answer, Claims, CounterStore, DynCounterStore, Mode, Promises, Refund, State, StoreError, Timestamp,
    decide,
};
use serde_json::Value;
use tokio::time::Instant;

/// In the environment of a program that is to be the command line of a suite.
const CHILD: &str = "CONFORMANCE_HANGING_CHILD";

/// A case that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(3);

/// Refusals tell to come at once.
#[derive(Debug, Default)]
struct AtOnce;

impl Flaw for AtOnce {
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        earlier(claims, states, Duration::MAX)
    }
}

/// Refusals tell to come a nanosecond too early.
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

/// What the thread does that is to decide a forced charge.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    Blocks,
    Spins,
}

/// Right but for forced charges, of which no thread comes back.
#[derive(Debug)]
struct NeverBack(Stopped, Arc<ModelStore>);

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

/// Runs the cases with these texts in their names, as a test with one thread would.
fn run(subject: Hanging, filters: &[&str], most: Duration) -> Report {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    let suite = Suite { filters, case_limit: LIMIT, ..Suite::default() };
    let total = suite.cases().len();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tell.send(runtime.block_on(suite.run(&[Arc::new(subject)])))
    });
    let report = told.recv_timeout(most).expect("the run ends in its time");
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

/// Whoever believes it asks again and again, without end.
fn told_to_come_at_once() {
    let report = run(at_once(), &["waiting/", "boundaries/"], LIMIT * 6);
    assert!(reason(&report, "waiting/exactly-as-told-log").contains("come at once"));
    assert!(!reason(&report, "waiting/acquire-many").is_empty());
    assert!(reason(&report, "boundaries/bucket-token").is_empty(), "one that does not wait");
}

/// Whoever believes it comes again a tick too early, for ever.
fn told_to_come_a_tick_early() {
    let report = run(tick_early(), &["waiting/", "boundaries/"], LIMIT * 6);
    assert!(!reason(&report, "waiting/exactly-as-told-bucket").is_empty());
    assert!(reason(&report, "boundaries/the-quota-and-not-one-more-fixed").is_empty());
}

/// Others go on, and each case that needs a forced charge is named.
fn threads_that_never_come_back() {
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

/// The command line of the suite on these stores, with these arguments.
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

/// The process ends although a thread of it spins, with both files and a status that says so.
fn the_process_ends() {
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

/// What had ended is in the report of a run that is killed while a case hangs.
fn a_killed_run_leaves_what_it_had() {
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

/// After a failure nothing more is started, and the report says how much is missing.
fn fail_fast() {
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

/// `--exact` and `--skip` do what they do on other tests, and what a declaration leaves out is told.
fn names() {
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

fn main() -> ExitCode {
    if env::var_os(CHILD).is_some() {
        let subjects = [at_once(), tick_early(), blocks(), spins()];
        let subjects = subjects.map(|subject| Box::new(subject) as Box<dyn Subject>);
        return ratelimit_conformance::main(Vec::from(subjects));
    }
    let tests: [(&str, fn()); 7] = [
        ("told_to_come_at_once", told_to_come_at_once),
        ("told_to_come_a_tick_early", told_to_come_a_tick_early),
        ("the_process_ends", the_process_ends),
        ("a_killed_run_leaves_what_it_had", a_killed_run_leaves_what_it_had),
        ("fail_fast", fail_fast),
        ("names", names),
        // Its threads spin until this process ends.
        ("threads_that_never_come_back", threads_that_never_come_back),
    ];
    for (name, test) in tests {
        println!("{name}");
        test();
    }
    println!("{} passed, 0 failed, 0 skipped", tests.len());
    ExitCode::SUCCESS
}
