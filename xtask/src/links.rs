//! The links of a Markdown document.

use std::ops::Range;

/// The places of the targets: between `](` and `)`, outside of code blocks.
pub(crate) fn targets(document: &str) -> Vec<Range<usize>> {
    let (mut start, mut in_code) = (0, false);
    let mut targets = Vec::new();
    for line in document.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        for (place, mark) in line.match_indices("](").filter(|_| !in_code) {
            let first = place + mark.len();
            if let Some(length) = line[first..].find(')') {
                targets.push(start + first..start + first + length);
            }
        }
        start += line.len();
    }
    targets
}
