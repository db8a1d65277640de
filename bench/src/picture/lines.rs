//! A line for each contestant, on two logarithmic axes.

use anyhow::Result;
use plotters::style::text_anchor::HPos;

use super::axis::{Axis, name};
use super::canvas::{Canvas, FAINT, INK, TOP, colour, samples};
use crate::session::figure;
use crate::table::Table;

pub(super) const SIZE: (u32, u32) = (940, 480);
const LEFT: i32 = 80;
const RIGHT: i32 = 690;
const BOTTOM: i32 = 410;

pub(super) fn draw(canvas: &Canvas<'_, '_>, table: &Table) -> Result<()> {
    let places = table.columns.iter().filter_map(|column| column.at).map(figure);
    let across = Axis::logarithmic(places, LEFT, RIGHT);
    let up = Axis::logarithmic(samples(table).flat_map(|sample| [sample.min, sample.max]), BOTTOM, TOP);
    grid(canvas, table, &across, &up)?;
    for (index, row) in table.rows.iter().enumerate() {
        let shade = colour(index);
        let mut points = Vec::new();
        for (column, sample) in table.columns.iter().zip(&row.samples) {
            let (Some(at), Some(sample)) = (column.at, sample) else { continue };
            let place = across.place(figure(at));
            canvas.line(vec![(place, up.place(sample.min)), (place, up.place(sample.max))], shade, 1)?;
            canvas.dot((place, up.place(sample.median)), shade)?;
            points.push((place, up.place(sample.median)));
        }
        canvas.line(points, shade, 2)?;
        let height = TOP + 10 + i32::try_from(index)? * 22;
        canvas.line(vec![(RIGHT + 20, height), (RIGHT + 44, height)], shade, 3)?;
        canvas.text(&row.contestant, (RIGHT + 52, height), 13, HPos::Left)?;
    }
    Ok(())
}

fn grid(canvas: &Canvas<'_, '_>, table: &Table, across: &Axis, up: &Axis) -> Result<()> {
    for tick in up.ticks() {
        let height = up.place(tick);
        canvas.line(vec![(LEFT, height), (RIGHT, height)], FAINT, 1)?;
        canvas.text(&name(tick), (LEFT - 8, height), 12, HPos::Right)?;
    }
    for column in &table.columns {
        let place = across.place(figure(column.at.unwrap_or(1)));
        canvas.line(vec![(place, TOP), (place, BOTTOM)], FAINT, 1)?;
        canvas.text(&column.name, (place, BOTTOM + 14), 12, HPos::Center)?;
    }
    canvas.line(vec![(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], INK, 1)?;
    let axis = table.axis.as_deref().unwrap_or_default();
    let below =
        format!("{axis} (both axes logarithmic; dots are medians, strokes go from the least to the most)");
    canvas.text(&below, ((LEFT + RIGHT) / 2, BOTTOM + 42), 13, HPos::Center)?;
    canvas.text(&table.unit, (LEFT, 54), 13, HPos::Left)
}
