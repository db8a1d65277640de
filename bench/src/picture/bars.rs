//! A bar for each figure, with a whisker from the minimum to the maximum.

use anyhow::Result;
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;

use super::axis::{Axis, name};
use super::canvas::{Canvas, FAINT, INK, TOP, colour, samples};
use crate::table::{Sample, Table, shown};

const WIDTH: i32 = 900;
/// The left and right ends of the bars. Names are to the left, figures to the right.
const LEFT: i32 = 220;
const RIGHT: i32 = 760;
const BAR: i32 = 16;
const GAP: i32 = 12;

fn bottom(table: &Table) -> i32 {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX / 1_000);
    TOP + count(table.rows.len()) * (count(table.columns.len()) * BAR + GAP)
}

pub(super) fn size(table: &Table) -> (u32, u32) {
    (WIDTH.unsigned_abs(), (bottom(table) + 60).unsigned_abs())
}

pub(super) fn draw(canvas: &Canvas<'_, '_>, table: &Table) -> Result<()> {
    let axis = Axis::fitting(samples(table).map(|sample| sample.max), LEFT, RIGHT);
    let axis = if axis.is_logarithmic {
        Axis::logarithmic(samples(table).flat_map(|sample| [sample.min, sample.max]), LEFT, RIGHT)
    } else {
        axis
    };
    legend(canvas, table)?;
    grid(canvas, table, &axis)?;
    let mut top = TOP;
    for row in &table.rows {
        let height = BAR * i32::try_from(row.samples.len())?;
        canvas.text(&row.contestant, (LEFT - 10, top + height / 2), 14, HPos::Right)?;
        for (column, sample) in row.samples.iter().enumerate() {
            // Highlights our rows if colours do not distinguish columns.
            let ours = row.contestant.starts_with(crate::contestants::OURS);
            let shade = match row.samples.len() {
                1 if ours => colour(0),
                1 => colour(6),
                _ => colour(column),
            };
            let middle = top + BAR * i32::try_from(column)? + BAR / 2;
            bar(canvas, &axis, sample.as_ref(), middle, shade)?;
        }
        top += height + GAP;
    }
    Ok(())
}

fn bar(
    canvas: &Canvas<'_, '_>,
    axis: &Axis,
    sample: Option<&Sample>,
    middle: i32,
    shade: RGBColor,
) -> Result<()> {
    let Some(sample) = sample else {
        return canvas.text("not measured", (LEFT + 6, middle), 12, HPos::Left);
    };
    let (from, to) = (axis.place(sample.min), axis.place(sample.max));
    canvas.block((LEFT, middle - BAR / 2 + 2), (axis.place(sample.median), middle + BAR / 2 - 2), shade)?;
    if to > from {
        canvas.line(vec![(from, middle), (to, middle)], INK, 1)?;
        for end in [from, to] {
            canvas.line(vec![(end, middle - 4), (end, middle + 4)], INK, 1)?;
        }
    }
    canvas.text(&shown(sample.median), (to.max(LEFT) + 8, middle), 13, HPos::Left)
}

fn grid(canvas: &Canvas<'_, '_>, table: &Table, axis: &Axis) -> Result<()> {
    let bottom = bottom(table);
    for tick in axis.ticks() {
        let place = axis.place(tick);
        canvas.line(vec![(place, TOP - 4), (place, bottom)], FAINT, 1)?;
        canvas.text(&name(tick), (place, bottom + 14), 12, HPos::Center)?;
    }
    let kind = if axis.is_logarithmic { ", logarithmic" } else { "" };
    let what = if table.repeats > 1 { "median, least to most" } else { "one measurement" };
    canvas.text(
        &format!("{}{kind} ({what})", table.unit),
        ((LEFT + RIGHT) / 2, bottom + 38),
        13,
        HPos::Center,
    )
}

fn legend(canvas: &Canvas<'_, '_>, table: &Table) -> Result<()> {
    if table.columns.len() < 2 {
        return Ok(());
    }
    for (index, column) in table.columns.iter().enumerate() {
        let left = LEFT + i32::try_from(index)? * 180;
        canvas.block((left, 45), (left + 12, 57), colour(index))?;
        canvas.text(&column.name, (left + 18, 51), 13, HPos::Left)?;
    }
    Ok(())
}
