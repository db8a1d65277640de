//! The dashboard and the alerts know the metrics that the crates publish, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// All words of a text that are names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let names = words.filter(|word| word.starts_with("ratelimit_"));
    // A histogram is queried by its buckets.
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

/// The metrics that the crates publish: each name is a literal of its own.
fn published() -> BTreeSet<String> {
    let mut literals = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "tests" && name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(path).unwrap();
                let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
                let quoted = code.flat_map(|line| line.split('"').skip(1).step_by(2));
                let quoted = quoted.filter(|text| text.starts_with("ratelimit_")).map(str::to_owned);
                literals.extend(quoted.filter(|text| names(text).contains(text)));
            }
        }
    }
    literals
}

/// The metrics of the tables in the crates' documentation, with their labels as Prometheus writes them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let tables = [
        "crates/ratelimit-core/src/layers/mod.rs",
        "crates/ratelimit-tower/src/lib.rs",
        "crates/ratelimit-server/src/lib.rs",
    ];
    let text = tables.map(read).concat();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | `ratelimit_"));
    let row = |row: &str| {
        let (name, rest) = row.split_once('`').unwrap();
        let labels = rest.split('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        (format!("ratelimit_{name}"), labels.map(|label| label.replace('.', "_")).collect())
    };
    rows.map(row).collect()
}

/// The queries of the dashboard.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
fn every_metric_is_in_a_table_of_the_documentation() {
    let documented: BTreeSet<String> = documented().into_keys().collect();
    assert!(documented.contains("ratelimit_checks_total"));
    assert_eq!(published(), documented);
}

#[test]
fn the_dashboard_shows_every_metric() {
    let dashboard: Value = serde_json::from_str(&read("docs/monitoring/dashboard.json")).unwrap();
    let shown = names(&queries(&dashboard).join("\n"));
    assert_eq!(shown, published());
}

#[test]
fn queries_group_and_select_by_labels_that_their_metrics_have() {
    let dashboard: Value = serde_json::from_str(&read("docs/monitoring/dashboard.json")).unwrap();
    let alerts = read("docs/monitoring/alerts.yml");
    let rules = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let documented = documented();
    let mut checked = 0;
    for query in queries(&dashboard).into_iter().chain(rules) {
        let names = names(query);
        assert!(!names.is_empty(), "{query}");
        let mut known: BTreeSet<&str> = ["job", "le"].into();
        for name in &names {
            let labels = documented.get(name).unwrap_or_else(|| panic!("no crate publishes {name}: {query}"));
            known.extend(labels.iter().map(String::as_str));
        }
        let grouped = query.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
        let grouped = grouped.flat_map(|labels| labels.split(", "));
        let selected = query.split('{').skip(1).map(|rest| rest.split('}').next().unwrap());
        let selected =
            selected.flat_map(|pairs| pairs.split(", ")).map(|pair| pair.split(['=', '!']).next().unwrap());
        for label in grouped.chain(selected) {
            assert!(known.contains(label), "{label} in {query}: the metric has the labels {known:?}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn the_pages_for_operators_name_every_metric() {
    let pages = [read("docs/operations.md"), read("docs/when-the-store-is-away.md")].concat();
    let named = names(&pages);
    let missing: Vec<String> = published().into_iter().filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_panel_of_the_dashboard_lies_over_another() {
    let dashboard: Value = serde_json::from_str(&read("docs/monitoring/dashboard.json")).unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(x < 24 && places.insert((x, y)), "{}", panel["title"]);
        }
    }
}
