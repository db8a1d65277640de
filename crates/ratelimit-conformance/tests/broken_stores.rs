//! Each store that is broken on purpose is caught by the case that it names, and the sound one passes everything.

use std::sync::Arc;

use ratelimit_conformance::broken_stores::{self, BrokenStore, Model};
use ratelimit_conformance::{Outcome, Subject, Suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sound_store_passes_everything_and_skips_nothing() {
    let report = Suite::default().run(&[Arc::new(Model)]).await;
    for case in &report.cases {
        assert!(
            matches!(case.outcome, Outcome::Passed | Outcome::NotApplicable(_)),
            "{}: {:?}",
            case.case,
            case.outcome
        );
    }
    assert!(report.is_success());
    assert!(report.totals().passed >= 90, "{:?}", report.totals());
}

async fn outcome(store: BrokenStore) -> Outcome {
    let suite = Suite { filters: vec![store.caught_by().to_owned()], exact: true, ..Suite::default() };
    let report = suite.run(&[Arc::new(store)]).await;
    assert_eq!(report.cases.len(), 1, "no case is called {:?}", store.caught_by());
    report.cases[0].outcome.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_broken_store_is_caught_by_the_case_it_names() {
    let stores = broken_stores::all();
    assert!(stores.len() >= 14);
    let caught = futures::future::join_all(stores.iter().map(|store| outcome(*store))).await;
    let missed: Vec<_> = stores
        .iter()
        .zip(caught)
        .inspect(|(store, outcome)| println!("{}: {outcome:?}", store.name()))
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Failed(_)))
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_case_that_does_not_end_hangs_and_fails() {
    let latch = broken_stores::all().into_iter().find(|store| store.name() == "latch").unwrap();
    let case_limit = std::time::Duration::from_secs(1);
    let filters = vec!["cancelled/others-go-on".to_owned()];
    let report = Suite { filters, exact: true, case_limit, ..Suite::default() }.run(&[Arc::new(latch)]).await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default();
    assert!(reason.starts_with("hung"), "{reason}");
    assert!(!report.is_success_but_for_skips());
}
