//! The sheet that pictures are drawn on.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::{Sample, Table};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Point = (i32, i32);

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const FAINT: RGBColor = RGBColor(225, 225, 225);

/// Colours that colour-blind people can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// The bottom of the title and of the legend.
pub(super) const TOP: i32 = 70;

/// The shapes of the pictures.
#[derive(Clone, Copy)]
pub(super) struct Canvas<'a, 'b>(pub(super) &'a Area<'b>);

impl Canvas<'_, '_> {
    /// Draws text, centred vertically on `at`.
    pub(super) fn text(self, text: &str, at: Point, size: i32, side: HPos) -> Result<()> {
        let style = ("sans-serif", size).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
        self.0.draw(&Text::new(text.to_owned(), at, style)).map_err(|error| anyhow!("{error}"))
    }

    pub(super) fn line(self, points: Vec<Point>, colour: RGBColor, width: u32) -> Result<()> {
        self.0.draw(&PathElement::new(points, colour.stroke_width(width))).map_err(|error| anyhow!("{error}"))
    }

    pub(super) fn block(self, from: Point, to: Point, colour: RGBColor) -> Result<()> {
        self.0.draw(&Rectangle::new([from, to], colour.filled())).map_err(|error| anyhow!("{error}"))
    }

    pub(super) fn dot(self, at: Point, colour: RGBColor) -> Result<()> {
        self.0.draw(&Circle::new(at, 3, colour.filled())).map_err(|error| anyhow!("{error}"))
    }
}

pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// All samples of a table.
pub(super) fn samples(table: &Table) -> impl Iterator<Item = &Sample> + Clone {
    table.rows.iter().flat_map(|row| row.samples.iter().flatten())
}
