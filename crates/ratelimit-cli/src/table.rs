//! Tables with aligned columns.

use std::fmt;

use comfy_table::{CellAlignment, presets};

/// A table: the first column is aligned to the left, and so is the last one if it is free text; the others to the right.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_header(headings);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
        }
        Self(table)
    }

    /// Aligns the last column to the left.
    pub(crate) fn with_text_last(mut self) -> Self {
        if let Some(last) = self.0.column_iter_mut().last() {
            last.set_cell_alignment(CellAlignment::Left);
        }
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.0.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["LIMIT", "USED", "KEY"]).with_text_last();
        table.row(["10/s".into(), "7".into(), "ä".into()]);
        table.row(["1000/min".into(), "12345".into(), "user:7".into()]);
        assert_eq!(table.to_string(), "LIMIT      USED  KEY\n10/s          7  ä\n1000/min  12345  user:7\n");
    }
}
