//! The guides stay short: what is not needed to answer a reader's question belongs into `docs/internals`.

use std::fs;
use std::path::Path;

use super::{has_extension, read};
use crate::workspace::root;

/// The maximum number of words of all guides together.
const MOST_WORDS: usize = 40_000;

/// The folders with guides. What is in their other folders, such as `docs/internals`, is not a guide.
const FOLDERS: [&str; 3] = ["docs", "docs/migrating", "docs/recipes"];

/// The list of all pages, and the pages for who changes the code.
const NO_GUIDES: [&str; 3] = ["docs/SUMMARY.md", "docs/architecture.md", "docs/how-a-check-works.md"];

/// How many pages the error names.
const NAMED: usize = 10;

#[test]
fn the_guides_are_short() {
    let mut pages: Vec<(usize, String)> = FOLDERS.into_iter().flat_map(pages).collect();
    assert!(pages.len() > 30, "only {} pages", pages.len());
    let words: usize = pages.iter().map(|(words, _)| words).sum();
    pages.sort_unstable_by(|one, other| other.cmp(one));
    let largest: Vec<String> =
        pages.iter().take(NAMED).map(|(words, name)| format!("{words:>6} {name}")).collect();
    assert!(
        words <= MOST_WORDS,
        "the guides have {words} words, {MOST_WORDS} at most: shorten them, or move proofs, lists and results into \
         docs/internals. The largest:\n{}",
        largest.join("\n")
    );
}

/// The pages directly in this folder, with their words.
fn pages(folder: &str) -> impl Iterator<Item = (usize, String)> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let is_page =
        |path: &Path| has_extension(path, "md") && !NO_GUIDES.iter().any(|page| path.ends_with(page));
    let paths = entries.flatten().map(|entry| entry.path()).filter(move |path| is_page(path));
    paths.map(|path| {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        (read(&path).split_whitespace().count(), name)
    })
}
