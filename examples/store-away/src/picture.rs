//! The picture: for each choice, what was answered and how long it took, over time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::client::{Answer, Outcome};
use crate::phases::{PHASES, Phase, Run};
use crate::service::{INSTANCES, LIMIT, TIMEOUT};
use crate::table::percentile;

/// Answers are summed up over a quarter of a second.
const BINS_A_SECOND: u64 = 4;

const WIDTH: i32 = 960;
const LEFT: i32 = 64;
const RIGHT: i32 = WIDTH - 20;
const TOP: i32 = 96;
const ROW: i32 = 190;
/// Of the bars, and of the curve below them.
const BARS: i32 = 84;
const CURVE: i32 = 48;

/// The curve's axis: from a tenth of a millisecond to a second.
const DECADES: i32 = 4;

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(110, 110, 110);
const FAINT: RGBColor = RGBColor(222, 222, 222);
const ADMITTED: RGBColor = RGBColor(0, 114, 178);
const REFUSED: RGBColor = RGBColor(150, 195, 225);
const FAILED: RGBColor = RGBColor(213, 94, 0);
const FROZEN: RGBColor = RGBColor(238, 240, 250);
const KILLED: RGBColor = RGBColor(252, 238, 230);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn text(area: &Area<'_>, words: &str, at: (i32, i32), size: i32, colour: RGBColor, side: HPos) -> Result<()> {
    let style = ("sans-serif", size).into_font().color(&colour).pos(Pos::new(side, VPos::Center));
    area.draw_text(words, &style, at).map_err(|error| anyhow!("{error}"))
}

fn shape(area: &Area<'_>, corners: [(i32, i32); 2], colour: RGBColor) -> Result<()> {
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(|error| anyhow!("{error}"))
}

fn seconds() -> u64 {
    PHASES.iter().map(|(_, seconds)| seconds).sum()
}

/// Where a bin begins.
fn x(bin: u64) -> Result<i32> {
    Ok(LEFT + (RIGHT - LEFT) * i32::try_from(bin)? / i32::try_from(seconds() * BINS_A_SECOND)?)
}

/// Where a latency is above the base of the curve.
#[allow(clippy::cast_possible_truncation, reason = "at most the height")]
fn height(took: Duration) -> i32 {
    let decades = (took.as_secs_f64() * 10_000.0).max(1.0).log10();
    (decades.min(f64::from(DECADES)) / f64::from(DECADES) * f64::from(CURVE)) as i32
}

fn bins(answers: &[Answer]) -> Vec<Vec<Answer>> {
    let mut bins = vec![Vec::new(); usize::try_from(seconds() * BINS_A_SECOND).unwrap_or(0)];
    for answer in answers {
        let bin = answer.at.as_millis() * u128::from(BINS_A_SECOND) / 1_000;
        if let Some(bin) = usize::try_from(bin).ok().and_then(|bin| bins.get_mut(bin)) {
            bin.push(*answer);
        }
    }
    bins
}

/// Shades the time in which Redis is away.
fn phases(area: &Area<'_>, top: i32, bottom: i32, is_first: bool) -> Result<()> {
    let mut from = 0;
    for (phase, seconds) in PHASES {
        let (begin, end) = (x(from * BINS_A_SECOND)?, x((from + seconds) * BINS_A_SECOND)?);
        let (colour, name) = match phase {
            Phase::Up => (WHITE, "Redis is up"),
            Phase::Frozen => (FROZEN, "frozen (SIGSTOP)"),
            Phase::Killed => (KILLED, "killed (SIGKILL)"),
        };
        shape(area, [(begin, top), (end, bottom)], colour)?;
        if is_first {
            text(area, name, (begin.midpoint(end), top - 12), 13, GREY, HPos::Center)?;
        }
        from += seconds;
    }
    Ok(())
}

fn row(area: &Area<'_>, number: i32, run: &Run, most: usize) -> Result<()> {
    let top = TOP + number * ROW + 26;
    let base = top + BARS;
    let curve = base + 14 + CURVE;
    phases(area, top, curve, number == 0)?;
    text(area, run.choice.name(), (LEFT, top - if number == 0 { 30 } else { 12 }), 16, INK, HPos::Left)?;
    let scale = |count: usize| -> Result<i32> { Ok(i32::try_from(count)? * BARS / i32::try_from(most)?) };
    let step = 1_000;
    for each in (0..).map(|nth| nth * step) {
        let count = each / usize::try_from(BINS_A_SECOND)?;
        if count > most {
            break;
        }
        let y = base - scale(count)?;
        shape(area, [(LEFT, y), (RIGHT, y + 1)], FAINT)?;
        text(area, &format!("{each}/s"), (LEFT - 6, y), 11, GREY, HPos::Right)?;
    }
    for (decade, name) in [(1, "1 ms"), (3, "100 ms")] {
        let y = curve - CURVE * decade / DECADES;
        shape(area, [(LEFT, y), (RIGHT, y + 1)], FAINT)?;
        text(area, name, (LEFT - 6, y), 11, GREY, HPos::Right)?;
    }
    shape(area, [(LEFT, curve), (RIGHT, curve + 1)], FAINT)?;
    let mut points = Vec::new();
    for (bin, answers) in (0..).zip(bins(&run.answers)) {
        let mut bottom = base;
        for (outcome, colour) in
            [(Outcome::Admitted, ADMITTED), (Outcome::Refused, REFUSED), (Outcome::Failed, FAILED)]
        {
            let count = answers.iter().filter(|answer| answer.outcome == outcome).count();
            let above = bottom - scale(count)?;
            if above < bottom {
                shape(area, [(x(bin)?, above), (x(bin + 1)? - 1, bottom)], colour)?;
            }
            bottom = above;
        }
        if !answers.is_empty() {
            points.push((x(bin)?.midpoint(x(bin + 1)?), curve - height(percentile(&answers, 99))));
        }
    }
    area.draw(&PathElement::new(points, INK.stroke_width(2))).map_err(|error| anyhow!("{error}"))
}

fn legend(area: &Area<'_>) -> Result<()> {
    let mut at = LEFT;
    for (name, colour, width) in [
        ("admitted", ADMITTED, 84),
        ("refused (429)", REFUSED, 116),
        ("failed (503)", FAILED, 108),
        ("line: 99th percentile of the time to answer", INK, 0),
    ] {
        shape(area, [(at, 52), (at + 12, 64)], colour)?;
        text(area, name, (at + 18, 58), 13, GREY, HPos::Left)?;
        at += width;
    }
    Ok(())
}

pub(crate) fn draw(file: &Path, runs: &[Run]) -> Result<()> {
    let height = TOP + ROW * i32::try_from(runs.len())? + 20;
    let area = SVGBackend::new(file, (u32::try_from(WIDTH)?, u32::try_from(height)?)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    text(&area, "Answers of a service whose Redis goes away", (LEFT, 20), 20, INK, HPos::Left)?;
    let about = format!(
        "Each user may send {LIMIT}. A call may take {TIMEOUT:?}. The fallback admits 1/{INSTANCES} of the limit."
    );
    text(&area, &about, (LEFT, 40), 13, GREY, HPos::Left)?;
    legend(&area)?;
    let most = runs.iter().flat_map(|run| bins(&run.answers)).map(|bin| bin.len()).max().unwrap_or(1).max(1);
    for (number, run) in (0..).zip(runs) {
        row(&area, number, run, most)?;
    }
    let bottom = height - 26;
    for second in 0..=seconds() {
        if second % 2 == 0 {
            text(
                &area,
                &format!("{second} s"),
                (x(second * BINS_A_SECOND)?, bottom + 12),
                12,
                GREY,
                HPos::Center,
            )?;
        }
    }
    area.present().map_err(|error| anyhow!("{error}"))
}
