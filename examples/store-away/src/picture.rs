//! The picture: for each choice, what was answered and how long it took, over time.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use ratelimit_plot::{Axis, Colour, Panel, Picture, Shape};

use crate::client::{Answer, Outcome};
use crate::phases::{PHASES, Phase, Run};
use crate::service::{INSTANCES, LIMIT, TIMEOUT};
use crate::table::percentile;

/// Answers are summed up over this time, in seconds.
const BIN: f64 = 0.25;

/// What was answered, from bottom to top.
const OUTCOMES: [(Outcome, &str, Colour); 3] = [
    (Outcome::Admitted, "admitted", Colour::BLUE),
    (Outcome::Refused, "refused (429)", Colour::SKY),
    (Outcome::Failed, "failed (503)", Colour::RED),
];

fn seconds() -> f64 {
    PHASES.iter().map(|(_, seconds)| *seconds as f64).sum()
}

/// Where each bin begins and ends, and its answers.
fn bins(run: &Run) -> impl Iterator<Item = (Range<f64>, Vec<Answer>)> {
    let begins = (0..).map(|bin| f64::from(bin) * BIN).take_while(|begin| *begin < seconds());
    begins.map(|begin| begin..begin + BIN).map(|bin| {
        let answers = run.answers.iter().filter(|answer| bin.contains(&answer.at.as_secs_f64()));
        (bin.clone(), answers.copied().collect())
    })
}

fn rate(answers: usize) -> f64 {
    answers as f64 / BIN
}

/// Shades the time in which Redis is away.
fn phases(y: &Axis) -> Vec<Shape> {
    let mut end = 0.0;
    let shades = PHASES.into_iter().filter_map(|(phase, seconds)| {
        let begin = end;
        end += seconds as f64;
        let colour = match phase {
            Phase::Up => return None,
            Phase::Frozen => Colour::PALE_BLUE,
            Phase::Killed => Colour::PALE_RED,
        };
        Some(Shape::block(begin..end, y.range.clone(), colour))
    });
    shades.collect()
}

/// The rates of the answers, and below them the time that they took.
fn panels(run: &Run, most: f64) -> [Panel; 2] {
    let rates = Axis { unit: "/s", ..Axis::linear(0.0..most) };
    let marks = [1, 100].map(|millis| (f64::from(millis), format!("{millis} ms")));
    let times = Axis { marks: vec![marks.into()], ..Axis::logarithmic(0.1..1_000.0) };
    let (mut bars, mut line) = (phases(&rates), Vec::new());
    for (Range { start, end }, answers) in bins(run) {
        let mut bottom = 0.0;
        for (outcome, _, colour) in OUTCOMES {
            let top = bottom + rate(answers.iter().filter(|answer| answer.outcome == outcome).count());
            if top > bottom {
                bars.push(Shape::block(start..end - 0.02, bottom..top, colour));
            }
            bottom = top;
        }
        if !answers.is_empty() {
            line.push((start.midpoint(end), percentile(&answers, 99).as_secs_f64() * 1_000.0));
        }
    }
    let mut lines = phases(&times);
    lines.push(Shape::Line(line, Colour::INK, 3));
    let heading = run.choice.name().to_owned();
    [
        Panel { heading, height: 84, y: rates, shapes: bars, ..Panel::default() },
        Panel { height: 48, y: times, shapes: lines, ..Panel::default() },
    ]
}

pub(crate) fn draw(file: &Path, runs: &[Run]) -> Result<()> {
    let most = runs.iter().flat_map(bins).map(|(_, answers)| rate(answers.len())).fold(1.0, f64::max);
    let others = [
        ("99th percentile of the time to answer", Colour::INK),
        ("Redis is frozen (SIGSTOP)", Colour::PALE_BLUE),
        ("Redis is killed (SIGKILL)", Colour::PALE_RED),
    ];
    let legend = OUTCOMES.map(|(_, name, colour)| (name, colour)).into_iter().chain(others);
    Picture {
        width: 900,
        title: "Answers of a service whose Redis goes away".to_owned(),
        notes: vec![format!(
            "Each user may send {LIMIT}. A call may take {TIMEOUT:?}. The fallback admits 1/{INSTANCES} of the limit."
        )],
        legend: legend.map(|(name, colour)| (name.to_owned(), colour)).collect(),
        x: Axis { unit: " s", ..Axis::linear(0.0..seconds()) },
        panels: runs.iter().flat_map(|run| panels(run, most)).collect(),
    }
    .write(file)
}
