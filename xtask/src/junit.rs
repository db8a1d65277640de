//! Merges the JUnit files of several crates.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Writes the content of `files` to `into`: a single file as it is, several as one list of suites.
pub(crate) fn merge(files: &[PathBuf], into: &Path) -> Result<()> {
    let mut suites = Vec::new();
    for file in files {
        let content = fs::read_to_string(file).with_context(|| format!("the report {}", file.display()))?;
        suites.push(content);
    }
    let merged = match suites.as_slice() {
        [one] => one.clone(),
        several => {
            let inner: String = several.iter().map(|suite| inner(suite)).collect();
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{inner}</testsuites>\n")
        }
    };
    fs::write(into, merged).with_context(|| format!("writing {}", into.display()))
}

/// The text between `<testsuites …>` and `</testsuites>`.
fn inner(suites: &str) -> &str {
    let from = suites.find("<testsuites").and_then(|at| suites[at..].find('>').map(|end| at + end + 1));
    let to = suites.rfind("</testsuites>");
    match (from, to) {
        (Some(from), Some(to)) if from <= to => suites[from..to].trim_start_matches('\n'),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::inner;

    #[test]
    fn suites_are_extracted_from_their_list() {
        let xml = "<?xml version=\"1.0\"?>\n<testsuites name=\"a\">\n<testsuite/>\n</testsuites>\n";
        assert_eq!(inner(xml), "<testsuite/>\n");
        assert_eq!(inner("<testsuites/>"), "");
    }
}
