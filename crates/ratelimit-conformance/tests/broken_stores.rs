//! Each store that is broken on purpose is caught by the case that it names, and the sound one passes everything.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use ratelimit_conformance::broken_stores::{self, BrokenStore, Model, ModelByServer};
use ratelimit_conformance::{Outcome, Subject, Suite};

async fn passes_everything(model: impl Subject + 'static, at_least: usize) {
    let report = Suite::default().run(&[Arc::new(model)]).await;
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
async fn the_sound_store_passes_everything_and_skips_nothing() {
    passes_everything(Model, 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sound_store_with_a_clock_of_its_own_passes_everything() {
    passes_everything(ModelByServer, 100).await;
}

/// Long enough for every case on a busy machine; a store that hangs is caught when it is over.
const CASE_LIMIT: Duration = Duration::from_secs(60);

async fn outcome(store: BrokenStore) -> Outcome {
    let filters = vec![store.caught_by().to_owned()];
    let suite = Suite { filters, exact: true, case_limit: CASE_LIMIT, ..Suite::default() };
    let report = suite.run(&[Arc::new(store)]).await;
    assert_eq!(report.cases.len(), 1, "no case is called {:?}", store.caught_by());
    report.cases[0].outcome.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_broken_store_is_caught_by_the_case_it_names() {
    let stores = broken_stores::all();
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
async fn a_case_that_does_not_end_hangs_and_fails() {
    let latch = broken_stores::all().into_iter().find(|store| store.name() == "latch").unwrap();
    let case_limit = Duration::from_secs(1);
    let filters = vec!["cancelled/others-go-on".to_owned()];
    let report = Suite { filters, exact: true, case_limit, ..Suite::default() }.run(&[Arc::new(latch)]).await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default();
    assert!(reason.starts_with("hung"), "{reason}");
    assert!(!report.is_success_but_for_skips());
}
