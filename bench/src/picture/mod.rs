//! Tables as pictures: bars, or lines where the columns are points of an axis.

mod axis;
mod bars;
mod lines;

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::{Sample, Table};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Point = (i32, i32);

const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);

/// Colours that people who see fewer of them can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// Where the title and what stands under it end.
const TOP: i32 = 70;

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

/// The few things that are drawn.
#[derive(Clone, Copy)]
struct Canvas<'a, 'b>(&'a Area<'b>);

impl Canvas<'_, '_> {
    /// Centred on the height of `at`.
    fn text(self, text: &str, at: Point, size: i32, side: HPos) -> Result<()> {
        let style = ("sans-serif", size).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
        self.0.draw(&Text::new(text.to_owned(), at, style)).map_err(|error| anyhow!("{error}"))
    }

    fn line(self, points: Vec<Point>, colour: RGBColor, width: u32) -> Result<()> {
        self.0.draw(&PathElement::new(points, colour.stroke_width(width))).map_err(|error| anyhow!("{error}"))
    }

    fn block(self, from: Point, to: Point, colour: RGBColor) -> Result<()> {
        self.0.draw(&Rectangle::new([from, to], colour.filled())).map_err(|error| anyhow!("{error}"))
    }

    fn dot(self, at: Point, colour: RGBColor) -> Result<()> {
        self.0.draw(&Circle::new(at, 3, colour.filled())).map_err(|error| anyhow!("{error}"))
    }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// All samples of a table.
fn samples(table: &Table) -> impl Iterator<Item = &Sample> + Clone {
    table.rows.iter().flat_map(|row| row.samples.iter().flatten())
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
    fn bars_and_lines_say_what_they_show() {
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
