//! Tables and numbers for people.

use std::borrow::Cow;
use std::fmt;

use comfy_table::{CellAlignment, presets};
use console::{Term, measure_text_width, truncate_str};
use indicatif::HumanCount;

/// A table whose first columns, `text_columns` of them, are aligned to the left, and the others to the right.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) text_columns: usize,
    /// The headings, in capitals, as a terminal shows them.
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

pub(crate) fn table(
    text_columns: usize,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Table {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    Table { text_columns, header, rows: rows.into_iter().collect() }
}

impl Table {
    /// The length to which texts are cut, so that the table fits into this width; `None` if it does.
    fn longest_text(&self, width: usize) -> Option<usize> {
        let length = |column: usize| {
            let texts = self.rows.iter().filter_map(|row| row.get(column)).chain(self.header.get(column));
            texts.map(|text| measure_text_width(text)).max().unwrap_or(0) + GAP
        };
        let lengths: Vec<usize> = (0..self.header.len()).map(length).collect();
        let (texts, others) = lengths.split_at(self.text_columns.min(lengths.len()));
        let room = (width + GAP).saturating_sub(others.iter().sum());
        let fits =
            |longest: usize| texts.iter().map(|text| (*text).min(longest + GAP)).sum::<usize>() <= room;
        let all = texts.iter().max().copied().unwrap_or(0);
        (!fits(all)).then(|| (SHORTEST..all).rev().find(|longest| fits(*longest)).unwrap_or(SHORTEST))
    }
}

/// The space between columns.
const GAP: usize = 2;

/// No text becomes shorter than this: it has room for the network of an address of IPv6.
const SHORTEST: usize = 20;

/// The width of the terminal, if the output is one, or what the variable `COLUMNS` says.
fn terminal_width() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    set.or_else(|| Term::stdout().size_checked().map(|(_, columns)| columns.into()))
}

/// The text without its middle, if it is longer than this.
fn shortened(text: &str, longest: usize) -> Cow<'_, str> {
    if measure_text_width(text) <= longest {
        return Cow::Borrowed(text);
    }
    let end_length = longest / 3;
    let begin = truncate_str(text, longest - end_length, "…");
    let end: String = text.chars().rev().take(end_length).collect();
    let mut end: String = end.chars().rev().collect();
    while measure_text_width(&end) > end_length {
        end.remove(0);
    }
    Cow::Owned(format!("{begin}{end}"))
}

/// The table as text for a terminal. Where long texts would make it wider than that, their middles are left out.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_header(&self.header);
        let longest = terminal_width().and_then(|width| self.longest_text(width));
        table.add_rows(self.rows.iter().map(|row| {
            row.iter().enumerate().map(|(column, text)| match longest {
                Some(longest) if column < self.text_columns => shortened(text, longest),
                _ => Cow::Borrowed(&**text),
            })
        }));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_cell_alignment(if index < self.text_columns {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            });
        }
        f.write_str(&table.trim_fmt())
    }
}

/// A whole number with a comma before each three digits.
pub(crate) fn number(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A number of things, such as `1 key` or `2,000 keys`.
pub(crate) fn count(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", number(count), if count == 1 { "" } else { "s" })
}

/// A share as percent, with more decimals if it is small.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        _ if percent < 0.01 => format!("{percent:.5} %"),
        _ if percent < 1.0 => format!("{percent:.3} %"),
        _ => format!("{percent:.2} %"),
    }
}

/// A length of time, given in seconds, in a unit that suits it; `-` for `None`.
pub(crate) fn seconds(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    let tenths = |number: f64, unit: &str| {
        let text = format!("{number:.1}");
        format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match seconds {
        0.0 => "0".to_owned(),
        _ if seconds < 1e-3 => tenths(seconds * 1e6, "µs"),
        _ if seconds < 1.0 => tenths(seconds * 1e3, "ms"),
        _ if seconds < 120.0 => tenths(seconds, "s"),
        _ if seconds < 7_200.0 => tenths(seconds / 60.0, "min"),
        _ => tenths(seconds / 3_600.0, "h"),
    }
}

/// The date and time of an instant, given in nanoseconds since 1970, in UTC.
pub(crate) fn date(nanos: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap_or(jiff::Timestamp::MAX);
    time.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_in_the_middle_to_fit() {
        let row = |key: &str| vec![key.to_owned(), "1,000".to_owned()];
        let long = format!("/{}/end", "x".repeat(300));
        let table = table(1, &["KEY", "REQUESTS"], [row("192.0.2.1"), row(&long)]);
        assert_eq!(
            [400, 315, 314, 80, 10].map(|width| table.longest_text(width)),
            [None, None, Some(304), Some(70), Some(20)]
        );
        assert_eq!(shortened("192.0.2.1", 20), "192.0.2.1");
        assert_eq!(shortened(&long, 20), "/xxxxxxxxxxxx…xx/end");
        let wide = "文".repeat(100);
        assert!(measure_text_width(&shortened(&wide, 21)) <= 21);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 1, 2_000].map(|number| count(number, "key")), ["0 keys", "1 key", "2,000 keys"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.000_03, 0.001_234, 0.5, 1.0].map(percent),
            ["0 %", "0.00300 %", "0.123 %", "50.00 %", "100.00 %"]
        );
        let spans = [None, Some(0.0), Some(0.000_012), Some(0.25), Some(59.94), Some(600.0), Some(86_400.0)]
            .map(seconds);
        assert_eq!(spans, ["-", "0", "12 µs", "250 ms", "59.9 s", "10 min", "24 h"]);
        assert_eq!(date(1_767_571_200_500_000_000), "2026-01-05T00:00:00.5Z");
    }
}
