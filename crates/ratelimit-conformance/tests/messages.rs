//! Messages of failures: the limit, the key and the step, the differing figures, and the preceding calls.

use std::sync::Arc;

use ratelimit_conformance::broken_stores;
use ratelimit_conformance::{Subject, Suite};

/// The reason of this case's failure on the broken store with this name.
async fn reason(store: &str, case: &str) -> String {
    let store = broken_stores::all().into_iter().find(|other| other.name() == store).unwrap();
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
    let latch = broken_stores::all().into_iter().find(|store| store.name() == "latch").unwrap();
    let suite =
        Suite::default().filters(["cancelled/others-go-on"]).case_limit(std::time::Duration::from_secs(1));
    let report = suite.run(&[Arc::new(latch)]).await;
    let reason = report.cases[0].outcome.reason().unwrap_or_default();
    assert!(reason.starts_with("hung: no end after 1s"), "{reason}");
    assert!(reason.contains("on key \"other 0\" -> no answer"), "{reason}");
}
