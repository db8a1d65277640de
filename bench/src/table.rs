//! Tables of figures, for the terminal, a page and the report.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table as Grid, presets};
use serde::{Deserialize, Serialize};

/// The median, the minimum and the maximum of several measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Sample {
    /// `None` if there is no figure.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.retain(|figure| figure.is_finite());
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = match figures.len() {
            0 => return None,
            even if even % 2 == 0 => f64::midpoint(figures[middle - 1], figures[middle]),
            _ => figures[middle],
        };
        Some(Self { median, min: figures[0], max: figures[figures.len() - 1] })
    }
}

/// One column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The position on the axis, if the columns are points of an axis.
    pub(crate) at: Option<u64>,
}

/// One contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    /// A sample for each column.
    pub(crate) samples: Vec<Option<Sample>>,
}

/// The results of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    /// The unit of the axis.
    pub(crate) axis: Option<String>,
    pub(crate) baseline: Option<String>,
    pub(crate) repeats: usize,
    /// The repeats of the columns with fewer repeats.
    pub(crate) fewest: usize,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// The sample of `contestant` in the column with this name.
    pub(crate) fn sample(&self, contestant: &str, column: &str) -> Option<Sample> {
        let row = self.rows.iter().find(|row| row.contestant == contestant)?;
        let column = self.columns.iter().position(|known| known.name == column)?;
        row.samples.get(column).copied().flatten()
    }

    /// The ratio to the median of the baseline.
    pub(crate) fn ratio(&self, sample: &Sample, column: &str) -> Option<f64> {
        let baseline = self.sample(self.baseline.as_deref()?, column)?;
        (baseline.median > 0.0).then(|| sample.median / baseline.median)
    }

    /// The table as text, or as Markdown for a page.
    pub(crate) fn text(&self, markdown: bool) -> String {
        let mut grid = Grid::new();
        grid.load_preset(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
        grid.set_content_arrangement(ContentArrangement::Disabled);
        let with_range = self.columns.len() <= 3;
        let mut header = vec![self.axis.clone().unwrap_or_default()];
        for column in &self.columns {
            header.push(column.name.clone());
            if with_range && self.repeats > 1 {
                header.push("min to max".to_owned());
            }
            if with_range && self.baseline.is_some() {
                header.push("ratio".to_owned());
            }
        }
        grid.set_header(header);
        for row in &self.rows {
            let mut cells = vec![Cell::new(&row.contestant)];
            for (column, sample) in self.columns.iter().zip(&row.samples) {
                cells.extend(self.cells(column, sample.as_ref(), with_range));
            }
            grid.add_row(cells);
        }
        grid.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        grid.to_string()
    }

    fn cells(&self, column: &Column, sample: Option<&Sample>, with_range: bool) -> Vec<Cell> {
        let mut cells = vec![Cell::new(sample.map_or_else(|| "-".to_owned(), |sample| shown(sample.median)))];
        if with_range && self.repeats > 1 {
            let range = sample.map(|sample| format!("{} to {}", shown(sample.min), shown(sample.max)));
            cells.push(Cell::new(range.unwrap_or_default()));
        }
        if with_range && self.baseline.is_some() {
            let ratio = sample.and_then(|sample| self.ratio(sample, &column.name));
            cells.push(Cell::new(ratio.map(|ratio| format!("{ratio:.2}x")).unwrap_or_default()));
        }
        cells
    }

    /// The baseline of the ratios, and other notes.
    pub(crate) fn caption(&self) -> String {
        let median = match self.repeats {
            1 => "one measurement".to_owned(),
            repeats if self.fewest < repeats => format!("median of {} to {repeats}", self.fewest),
            repeats => format!("median of {repeats}"),
        };
        let ratio = self.baseline.as_ref().filter(|_| self.columns.len() <= 3);
        let ratio = ratio.map(|baseline| format!("; ratios to {baseline}")).unwrap_or_default();
        format!("{}, {median}{ratio}", self.unit)
    }
}

/// Formats a figure with three significant digits and separated thousands.
pub(crate) fn shown(figure: f64) -> String {
    let size = figure.abs();
    if size < 10.0 {
        return if size == 0.0 { "0".to_owned() } else { format!("{figure:.2}") };
    }
    if size < 100.0 {
        return format!("{figure:.1}");
    }
    let digits = format!("{size:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if figure < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_and_ignores_nan() {
        let sample = Sample::of(vec![3.0, f64::NAN, 1.0, 10.0]).expect("figures");
        assert_eq!((sample.median, sample.min, sample.max), (3.0, 1.0, 10.0));
        assert_eq!(Sample::of(vec![4.0, 1.0]).expect("figures").median, 2.5);
        assert!(Sample::of(vec![f64::NAN]).is_none());
    }

    #[test]
    fn small_figures_are_shown_with_three_digits() {
        let texts: Vec<String> = [0.0, 1.234, 12.34, 123.4, 1_234_567.8].map(shown).into();
        assert_eq!(texts, ["0", "1.23", "12.3", "123", "1,234,568"]);
    }
}
