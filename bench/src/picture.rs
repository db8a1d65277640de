//! Tables as pictures: lines if the columns are points of an axis, bars otherwise.

use std::path::Path;

use anyhow::Result;
use ratelimit_plot::{Axis, Colour, Panel, Picture, Shape};

use crate::contestants::OURS;
use crate::session::figure;
use crate::table::{Sample, Table, shown};

/// Draws a table into an SVG file.
pub(crate) fn draw(table: &Table, file: &Path) -> Result<()> {
    if table.axis.is_some() { lines(table) } else { bars(table) }.write(file)
}

fn samples(table: &Table) -> impl Iterator<Item = &Sample> + Clone {
    table.rows.iter().flat_map(|row| row.samples.iter().flatten())
}

/// A logarithmic axis with some room at both ends.
fn logarithmic(figures: impl Iterator<Item = f64>) -> Axis {
    let positive: Vec<f64> = figures.filter(|figure| *figure > 0.0).collect();
    let most = positive.iter().copied().fold(1e-9, f64::max);
    Axis::logarithmic(positive.into_iter().fold(most, f64::min) / 1.5..most * 1.1)
}

/// The picture of one panel.
fn picture(table: &Table, note: String, x: Axis, panel: Panel) -> Picture {
    let (title, notes, panels) = (table.title.clone(), vec![note], vec![panel]);
    Picture { width: 900, title, notes, x, panels, ..Picture::default() }
}

/// A line for each contestant, on two logarithmic axes.
fn lines(table: &Table) -> Picture {
    let places = table.columns.iter().map(|column| figure(column.at.unwrap_or(1)));
    let mut shapes = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let colour = Colour::series(index);
        let samples =
            places.clone().zip(&row.samples).filter_map(|(at, sample)| Some((at, sample.as_ref()?)));
        for (at, sample) in samples.clone() {
            shapes.push(Shape::Line(vec![(at, sample.min), (at, sample.max)], colour, 2));
            shapes.push(Shape::Dot((at, sample.median), 6, colour));
        }
        shapes.push(Shape::Line(samples.map(|(at, sample)| (at, sample.median)).collect(), colour, 4));
    }
    let note = "both axes are logarithmic; dots are medians, strokes go from the least to the most";
    let marks = places.clone().zip(table.columns.iter().map(|column| column.name.clone())).collect();
    let name = table.axis.clone().unwrap_or_default();
    let x = Axis { marks: vec![marks], name, ..logarithmic(places) };
    let y = logarithmic(samples(table).flat_map(|sample| [sample.min, sample.max]));
    let panel = Panel { height: 340, y, shapes, ..Panel::default() };
    let rows = table.rows.iter().enumerate();
    let legend = rows.map(|(index, row)| (row.contestant.clone(), Colour::series(index))).collect();
    Picture { legend, ..picture(table, format!("{}; {note}", table.unit), x, panel) }
}

/// A bar for each figure, with a whisker from the least to the most.
fn bars(table: &Table) -> Picture {
    let most = samples(table).map(|sample| sample.max).fold(1e-9, f64::max);
    let least = samples(table).map(|sample| sample.max).fold(most, f64::min);
    let (x, kind) = if least > 0.0 && most / least > 25.0 {
        (logarithmic(samples(table).flat_map(|sample| [sample.min, sample.max])), ", logarithmic")
    } else {
        (Axis::linear(0.0..most * 1.02), "")
    };
    // Rows are 1 high, of which the bars take 0.8.
    let thickness = 0.8 / figure(table.columns.len() as u64);
    let mut shapes = Vec::new();
    for (index, row) in (0..).zip(&table.rows) {
        for (column, sample) in row.samples.iter().enumerate() {
            // Highlights our rows if colours do not distinguish columns.
            let colour = match table.columns.len() {
                1 if !row.contestant.starts_with(OURS) => Colour::GREY,
                _ => Colour::series(column),
            };
            let middle = figure(index) + 0.1 + thickness * (figure(column as u64) + 0.5);
            bar(&mut shapes, sample.as_ref(), middle, thickness * 0.4, colour);
        }
    }
    let height = i32::try_from(table.rows.len() * (table.columns.len() * 18 + 8)).unwrap_or(i32::MAX / 100);
    let y = Axis::names(table.rows.iter().map(|row| row.contestant.clone()));
    let legend =
        table.columns.iter().enumerate().map(|(at, column)| (column.name.clone(), Colour::series(at)));
    let legend = legend.filter(|_| table.columns.len() > 1).collect();
    let what = if table.repeats > 1 { "median, least to most" } else { "one measurement" };
    let panel = Panel { height, y, shapes, ..Panel::default() };
    Picture { legend, ..picture(table, format!("{}{kind} ({what})", table.unit), x, panel) }
}

fn bar(shapes: &mut Vec<Shape>, sample: Option<&Sample>, middle: f64, half: f64, colour: Colour) {
    let Some(&Sample { median, min, max }) = sample else {
        return shapes.push(Shape::Label((0.0, middle), "not measured".to_owned()));
    };
    shapes.push(Shape::block(0.0..median, middle - half..middle + half, colour));
    if max > min {
        let cap = |at| vec![(at, middle - half / 2.0), (at, middle + half / 2.0)];
        let whisker = [vec![(min, middle), (max, middle)], cap(min), cap(max)];
        shapes.extend(whisker.map(|line| Shape::Line(line, Colour::INK, 2)));
    }
    shapes.push(Shape::Label((max, middle), shown(median)));
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
