//! Tables as pictures: lines if the columns are points of an axis, bars otherwise.

mod axis;
mod bars;
mod canvas;
mod lines;

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::table::Table;
use canvas::{Area, Canvas};

/// Draws a table into an SVG file.
pub(crate) fn draw(table: &Table, file: &Path) -> Result<()> {
    let (width, height) = if table.axis.is_some() { lines::SIZE } else { bars::size(table) };
    let root = SVGBackend::new(file, (width, height)).into_drawing_area();
    let outcome = sheet(&root, table).and_then(|canvas| match table.axis {
        Some(_) => lines::draw(&canvas, table),
        None => bars::draw(&canvas, table),
    });
    outcome.and_then(|()| present(&root)).with_context(|| format!("the picture {}", file.display()))
}

fn present(root: &Area<'_>) -> Result<()> {
    root.present().map_err(|error| anyhow!("{error}"))
}

/// A white sheet with a title.
fn sheet<'a, 'b>(root: &'a Area<'b>, table: &Table) -> Result<Canvas<'a, 'b>> {
    let canvas = Canvas(root);
    root.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    canvas.text(&table.title, (20, 24), 20, HPos::Left)?;
    Ok(canvas)
}

#[cfg(test)]
mod tests {
    use crate::table::{Column, Row, Sample, Table};

    fn table(axis: Option<&str>) -> Table {
        let column = |(name, at): (&str, u64)| Column { name: name.to_owned(), at: axis.map(|_| at) };
        let sample = |figure: f64| Sample::of(vec![figure, figure * 2.0]);
        let samples = vec![sample(3.0), sample(4_000.0)];
        Table {
            name: "name".to_owned(),
            title: "The title".to_owned(),
            unit: "ns".to_owned(),
            axis: axis.map(str::to_owned),
            baseline: None,
            repeats: 2,
            fewest: 2,
            columns: [("one", 1), ("ten", 10)].map(column).into(),
            rows: vec![Row { contestant: "somebody".to_owned(), samples }],
        }
    }

    #[test]
    fn bar_and_line_pictures_contain_their_labels() {
        for axis in [None, Some("keys")] {
            let file = std::env::temp_dir().join(format!("picture-{}-{axis:?}.svg", std::process::id()));
            super::draw(&table(axis), &file).expect("a picture");
            let text = std::fs::read_to_string(&file).expect("a picture");
            let _ = std::fs::remove_file(&file);
            for word in ["The title", "somebody", "one", "ns"].iter().chain(&axis) {
                assert!(text.contains(word), "{axis:?} lacks {word:?}");
            }
        }
    }
}
