//! Messages of failures: the limit, the key and the step, the differing figures, and the preceding calls.

use std::sync::Arc;

use ratelimit_conformance::{Subject, Suite};

/// The reason of this case's failure on the broken store with this name.
async fn reason(store: &str, case: &str) -> String {
    let store = ratelimit_broken_stores::all().into_iter().find(|other| other.name() == store).unwrap();
    let suite = Suite::default().filters([case]).exact(true);
    let report = suite.run(&[Arc::new(store)]).await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default().to_owned();
    println!("{reason}\n");
    reason
}

#[tokio::test]
async fn failures_name_limit_key_and_step_and_list_earlier_steps() {
    let reason = reason("forgets-on-change", "changes/raised-log").await;
    assert!(
        reason.starts_with(
            "units left of `100/min log name plan` on key \"k\" at +0ns: expected 90, found 100"
        )
    );
    assert!(
        reason.contains("1 +0ns take 10 of `10/min log name plan` on key \"k\" -> admitted: 0 of 10 left")
    );
    assert!(reason.contains("3 +0ns peek at 0 of `100/min log name plan`"));
}

#[tokio::test]
async fn failures_list_only_steps_on_the_same_meter() {
    let reason = reason("partial-slices", "all-or-nothing/two-keys").await;
    let steps: Vec<&str> = reason.lines().filter(|line| line.contains(" -> ")).collect();
    assert!(!steps.is_empty());
    let last = steps[steps.len() - 1];
    let key = last.split(" on key ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(steps.iter().all(|step| step.contains(&format!("on key {key}"))), "{key}: {steps:#?}");
}

#[tokio::test]
async fn panics_are_reported_with_the_call() {
    let reason = reason("panics", "keys/lengths").await;
    assert!(reason.starts_with("panicked: the key is empty"));
    assert!(reason.contains("on key \"\" -> no answer"), "{reason}");
}

/// A sequence of 250 steps is reduced to the few that matter, and the message contains only the differing figures.
#[tokio::test]
async fn random_failures_are_shortened() {
    for (store, case, most) in [
        ("ignores-refunds", "same-decisions/random-fixed", 3),
        ("forgets-early", "same-decisions/random-slices", 3),
        ("charges-refusals", "same-decisions/random-sliding", 4),
    ] {
        let reason = reason(store, case).await;
        assert!(reason.starts_with("sequence ") && reason.contains("of --seed 1, step "), "{reason}");
        assert!(reason.contains("shortened from"), "{reason}");
        let steps = reason.lines().filter(|line| line.starts_with("       ")).count();
        assert!((1..=most).contains(&steps), "{store}: {steps} steps");
        let figures: Vec<&str> = reason.lines().take_while(|line| !line.contains("the steps")).collect();
        assert!(figures.iter().any(|line| line.contains("expected ")), "{reason}");
        let differ = figures.iter().flat_map(|line| line.split("expected ").skip(1));
        for figure in differ {
            let (expected, found) = figure.split_once(", found ").unwrap();
            assert_ne!(expected, found.split(';').next().unwrap(), "a figure that does not differ");
        }
    }
}

/// The message of a hung case names the call.
#[tokio::test]
async fn hung_cases_name_the_unanswered_call() {
    let latch = ratelimit_broken_stores::all().into_iter().find(|store| store.name() == "latch").unwrap();
    let suite =
        Suite::default().filters(["cancelled/others-go-on"]).case_limit(std::time::Duration::from_secs(1));
    let report = suite.run(&[Arc::new(latch)]).await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default();
    assert!(reason.starts_with("hung: no end after 1s, no answer to take 3 of "), "{reason}");
    assert!(reason.contains("on key \"other 0\" -> no answer"), "{reason}");
}

/// The report says what a failed case tests, and which of several failures to look at first.
#[tokio::test]
async fn reports_name_the_clause_and_the_first_failure() {
    let store =
        ratelimit_broken_stores::all().into_iter().find(|other| other.name() == "ignores-refunds").unwrap();
    let report =
        Suite::default().filters(["refunds/give-back-", "refunds/settle-"]).run(&[Arc::new(store)]).await;
    let text = report.to_string();
    assert!(text.contains(
        "FAIL ignores-refunds refunds/give-back-log\n     tests: Refunded units can be taken again, once.\n"
    ));
    let failed = report.totals().failed;
    assert!(
        text.contains(&format!("START WITH ignores-refunds refunds/give-back-fixed: of the {failed} cases")),
        "{text}"
    );
    assert_eq!(report.first_failures()[0].1.case, "refunds/give-back-fixed");
}

/// The message of a storm names the limit, the calls and the handles.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn storms_name_calls_and_handles() {
    let reason = reason("lost-updates", "atomic/burst-of-many-fixed").await;
    assert!(
        reason.contains("of 200 calls of one unit through 4 handles, `80/h fixed` on key \"k\""),
        "{reason}"
    );
    let steps: Vec<&str> = reason.lines().filter(|line| line.contains(" -> ")).collect();
    assert!(steps.iter().all(|step| step.contains("`80/h fixed` on key")), "{reason}");
}

/// Of two keys that share a meter the message names both.
#[tokio::test]
async fn keys_that_share_a_meter_are_named() {
    let reason = reason("lossy-names-at-its-time", "keys/no-text").await;
    assert!(
        reason.contains("the first unit of key \"\\xfe\" was refused: key \"\\xff\" shares its meter"),
        "{reason}"
    );
}

/// After a failure, `fail_fast` waits for no case that is still running.
#[tokio::test]
async fn a_failure_ends_a_run_that_shall_fail_fast() {
    let store = ratelimit_broken_stores::all()
        .into_iter()
        .find(|other| other.name() == "lossy-names-at-its-time")
        .unwrap();
    let suite = Suite::default()
        .filters(["lifetimes/counts-after-a-minute", "keys/no-text", "worked-examples/"])
        .fail_fast(true);
    let began = tokio::time::Instant::now();
    let report = suite.run(&[Arc::new(store)]).await;
    assert_eq!(report.totals().failed, 1);
    assert!(report.not_run >= 1, "{report}");
    assert!(began.elapsed() < std::time::Duration::from_secs(50), "it waited for a minute");
}
