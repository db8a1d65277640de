//! Tables with aligned columns.

/// A table: the first column is aligned to the left, and so is the last one if it is free text; the others to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    last_is_text: bool,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()],
            last_is_text: false,
        }
    }

    /// Aligns the last column to the left.
    pub(crate) fn with_text_last(self) -> Self {
        Self { last_is_text: true, ..self }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = |cell: &String| cell.chars().count();
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column| self.rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let space = " ".repeat(width - length(cell));
                let is_text = column == 0 || (self.last_is_text && column + 1 == columns);
                let gap = if column == 0 { "" } else { "  " };
                line += &if is_text { format!("{gap}{cell}{space}") } else { format!("{gap}{space}{cell}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
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
