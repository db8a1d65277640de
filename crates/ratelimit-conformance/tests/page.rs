//! `docs/internals/conformance-cases.md` lists exactly the cases and the broken stores that exist.
//!
//! `RATELIMIT_WRITE_PAGE=1 cargo test -p ratelimit-conformance --test page` writes both lists anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use ratelimit_conformance::{Subject, Suite};

/// Kinds of limit, which the page abbreviates to a star.
const KINDS: [&str; 12] = [
    "fixed",
    "sliding",
    "segmented",
    "strict",
    "log",
    "bucket",
    "leaky",
    "queue",
    "first",
    "steps",
    "permits",
    "total",
];

const CASES: &str = "<!-- all cases: written by the test -->";
const STORES: &str = "<!-- broken stores: written by the test -->";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/conformance-cases.md")
}

/// The names as on the page, in the order of the suite, and what each case tests.
fn cases() -> Vec<(String, &'static str)> {
    let cases = Suite::default().cases();
    let stem = |name: &str| {
        let (stem, kind) = name.rsplit_once('-')?;
        KINDS.contains(&kind).then(|| stem.to_owned())
    };
    let mut siblings: BTreeMap<String, usize> = BTreeMap::new();
    cases.iter().filter_map(|(name, _)| stem(name)).for_each(|stem| *siblings.entry(stem).or_default() += 1);
    let mut names: Vec<(String, &'static str)> = Vec::new();
    for (name, about) in cases {
        let shown = match stem(&name).filter(|stem| siblings[stem] > 1) {
            Some(stem) => format!("{stem}-*"),
            None => name,
        };
        if names.iter().all(|(other, _)| *other != shown) {
            names.push((shown, about));
        }
    }
    names
}

fn list_of_cases() -> String {
    let mut list = String::from("| case | what it proves |\n|---|---|\n");
    for (name, about) in cases() {
        writeln!(list, "| `{name}` | {about} |").unwrap();
    }
    list
}

fn list_of_stores() -> String {
    let mut list = String::from("| store | what it does wrong | caught by |\n|---|---|---|\n");
    for store in ratelimit_broken_stores::all() {
        writeln!(list, "| {} | {} | `{}` |", store.name(), store.deviation(), store.caught_by()).unwrap();
    }
    list
}

/// The page with this list between its mark and the next heading.
fn with_list(page: &str, mark: &str, list: &str) -> String {
    let (before, after) = page.split_once(mark).unwrap_or_else(|| panic!("the page has no {mark}"));
    let rest = after.find("\n## ").map(|at| &after[at..]).unwrap_or_default();
    format!("{before}{mark}\n\n{list}{rest}")
}

#[test]
fn the_page_lists_all_cases_and_broken_stores() {
    let page = std::fs::read_to_string(path()).unwrap();
    let expected = with_list(&with_list(&page, CASES, &list_of_cases()), STORES, &list_of_stores());
    if std::env::var_os("RATELIMIT_WRITE_PAGE").is_some() {
        // Other tests read the page concurrently.
        std::fs::write(path().with_extension("new"), &expected).unwrap();
        std::fs::rename(path().with_extension("new"), path()).unwrap();
        return;
    }
    assert!(
        page == expected,
        "docs/internals/conformance-cases.md is stale: RATELIMIT_WRITE_PAGE=1 writes its lists anew"
    );
}

#[test]
fn the_tables_name_only_existing_cases() {
    let page = std::fs::read_to_string(path()).unwrap();
    let (tables, _) = page.split_once(CASES).unwrap();
    let known: BTreeSet<String> = cases().into_iter().map(|(name, _)| name).collect();
    let named: BTreeSet<&str> = tables
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('/') && !name.contains('.'))
        .collect();
    assert!(named.len() > 100, "{named:?}");
    let unknown: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "the page names cases that do not exist: {unknown:?}");
}

/// Every cell of a clause or circumstance and an operation names a case.
#[test]
fn every_table_cell_names_a_case() {
    let page = std::fs::read_to_string(path()).unwrap();
    let (tables, _) = page.split_once("## States").unwrap();
    let rows: Vec<&str> = tables.lines().filter(|line| line.starts_with("| **")).collect();
    assert_eq!(rows.len(), 18);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 8, "{row}");
        assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "{row}");
    }
}
