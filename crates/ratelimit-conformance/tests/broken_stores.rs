//! Each broken store fails the case that it names. Without a flaw it passes all cases.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use ratelimit_broken_stores::{BrokenStore, Call, Flaw};
use ratelimit_conformance::{Outcome, Subject, Suite};
use ratelimit_core::store::Time;
use ratelimit_core::{Clock, SystemClock, Timestamp};

#[derive(Debug, Default)]
struct NoFlaw;

impl Flaw for NoFlaw {}

#[derive(Debug, Default)]
struct NoFlawOnAServer;

impl Flaw for NoFlawOnAServer {
    const TIME: Time = Time::Server;

    fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
        SystemClock::new().now()
    }
}

async fn passes_everything<F: Flaw>(at_least: usize) {
    let store = BrokenStore::new::<F>("no-flaw", "nothing", "none");
    let report = Suite::default().run(&[Arc::new(store)]).await;
    for case in &report.cases {
        assert!(
            matches!(case.outcome, Outcome::Passed | Outcome::NotApplicable(_)),
            "{}: {:?}",
            case.case,
            case.outcome
        );
    }
    assert!(report.is_success());
    assert!(report.totals().passed >= at_least, "{:?}", report.totals());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_without_flaws_passes_every_case() {
    passes_everything::<NoFlaw>(400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_without_flaws_passes_every_case_on_its_own_clock() {
    passes_everything::<NoFlawOnAServer>(100).await;
}

/// Long enough for every case on a busy machine, also for those that wait for more than a minute. A store that hangs fails
/// after it.
const CASE_LIMIT: Duration = Duration::from_secs(150);

async fn outcome(store: BrokenStore) -> Outcome {
    let suite = Suite::default().filters([store.caught_by()]).exact(true).case_limit(CASE_LIMIT);
    let report = suite.run(&[Arc::new(store)]).await;
    assert_eq!(report.cases.len(), 1, "no case is called {:?}", store.caught_by());
    report.cases[0].outcome.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_broken_store_is_caught_by_the_case_it_names() {
    let stores = ratelimit_broken_stores::all();
    assert!(stores.len() >= 100, "{}", stores.len());
    let names: HashSet<_> = stores.iter().map(Subject::name).collect();
    assert_eq!(names.len(), stores.len(), "two stores have one name");
    let missed: Vec<_> = stream::iter(&stores)
        .map(|store| async move { (store, outcome(*store).await) })
        .buffered(16)
        .inspect(|(store, outcome)| println!("{}: {outcome:?}", store.name()))
        .filter(|(_, outcome)| std::future::ready(!matches!(outcome, Outcome::Failed(_))))
        .collect()
        .await;
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_case_that_never_ends_is_reported_as_hung() {
    let latch = ratelimit_broken_stores::all().into_iter().find(|store| store.name() == "latch").unwrap();
    let case_limit = Duration::from_secs(1);
    let report = Suite::default()
        .filters(["cancelled/others-go-on"])
        .exact(true)
        .case_limit(case_limit)
        .run(&[Arc::new(latch)])
        .await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default();
    assert!(reason.starts_with("hung"), "{reason}");
    assert!(!report.is_success_but_for_skips());
}
