//! The results in the documentation: between two markers, with pictures in a folder beside it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::report::Report;

const BEGIN: &str = "<!-- results: written by `cargo xtask bench --write-docs` -->";
const END: &str = "<!-- end of results -->";

/// The folder with the documentation of this repository.
fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The folder with the pictures of the page.
pub(crate) fn pictures() -> PathBuf {
    docs().join("benchmarks")
}

/// Writes the results into the page.
pub(crate) fn write(report: &Report) -> Result<()> {
    let path = docs().join("internals/benchmarks.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, replaced(&page, &results(report))?).with_context(|| path.display().to_string())
}

fn replaced(page: &str, results: &str) -> Result<String> {
    let begin = page.find(BEGIN).map(|at| at + BEGIN.len());
    let end = page.find(END);
    let (Some(begin), Some(end)) = (begin, end) else { anyhow::bail!("the page has no markers for results") };
    ensure!(begin <= end, "the page's markers are in the wrong order");
    Ok(format!("{}\n\n{results}\n{}", &page[..begin], &page[end..]))
}

fn results(report: &Report) -> String {
    let mut text = format!("A {} run.\n\n", report.scale);
    text.extend(report.machine.lines().iter().map(|line| format!("- {line}\n")));
    if !report.goals.is_empty() {
        text.push_str("\n### Goals\n\n| goal | |\n|---|---|\n");
        for goal in &report.goals {
            let (what, how) = goal.text.rsplit_once(": ").unwrap_or((&goal.text, ""));
            text.push_str(&format!("| {} | {how} |\n", what.trim_start_matches("goal ")));
        }
    }
    for table in &report.tables {
        text.push_str(&format!("\n### {}\n\n{}.\n\n", table.title, table.caption()));
        text.push_str(&format!(
            "{}\n\n![{}](../benchmarks/{}.svg)\n",
            table.text(true),
            table.title,
            table.name
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replaced(&page, "new\n").expect("it has markers");
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replaced(&once, "new\n").expect("it has markers"), once);
        assert!(replaced("no markers", "new").is_err());
    }
}
