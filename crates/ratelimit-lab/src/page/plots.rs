//! Plots as SVG. In a dark scheme, the style sheet gives their colours other values.

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::engine::{Bucket, Series, share};
use crate::suggest::{Share, Suggestion, Tried};
use crate::table::number;

/// Colours. The style sheet selects shapes by these values.
const ADMITTED: RGBColor = RGBColor(0x4A, 0x86, 0xC5);
const REFUSED: RGBColor = RGBColor(0xA8, 0x32, 0x0A);
const TEXT: RGBColor = RGBColor(0x3D, 0x46, 0x50);
const GRID: RGBColor = RGBColor(0xD8, 0xDD, 0xE3);

/// The kind of screen for which a plot is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    /// Wide screens, and paper.
    Wide,
    /// Narrow screens, such as those of telephones.
    Narrow,
}

impl Size {
    /// The width and height in half pixels: the backend draws only at whole coordinates, which would be too coarse.
    fn pixels(self) -> (u32, u32) {
        match self {
            Self::Wide => (1_800, 480),
            Self::Narrow => (720, 440),
        }
    }

    fn most_buckets(self) -> usize {
        match self {
            Self::Wide => 400,
            Self::Narrow => 160,
        }
    }

    /// Whether the texts of these marks fit side by side.
    fn has_room(self, marks: &[Mark]) -> bool {
        let letters: usize = marks.iter().map(|(_, name)| name.len() + 2).sum();
        letters
            <= match self {
                Self::Wide => 100,
                Self::Narrow => 40,
            }
    }
}

struct Plot {
    x: Axis,
    /// The greatest value on the other axis, which begins at zero.
    most: f64,
    unit: &'static str,
    shapes: Vec<Shape>,
}

/// An axis with given marks, instead of those that the library would choose.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    marks: Vec<Mark>,
}

/// A place on an axis, and the text there.
type Mark = (f64, String);

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.marks.iter().find(|(at, _)| at == value).map_or("", |(_, name)| name).to_owned()
    }
}

enum Shape {
    Area(Vec<(f64, f64)>, RGBColor),
    Line(Vec<(f64, f64)>, RGBColor),
    Dot((f64, f64), i32, RGBColor),
}

/// Plots the rate of requests per `unit` seconds over time: the admitted ones, and above them the refused ones.
pub(super) fn rate(series: &Series, unit: u64, size: Size) -> anyhow::Result<String> {
    let end = |series: &Series| series.begin + series.width * series.buckets.len() as u64;
    let whole = series.begin..end(series);
    let series = series.coarser(size.most_buckets());
    // Wider buckets can begin before the first request and end after the last one.
    let begins = (series.begin..).step_by(usize::try_from(series.width)?);
    let each: Vec<(Range<u64>, &Bucket)> = begins
        .zip(&series.buckets)
        .map(|(begin, bucket)| (begin.max(whole.start)..(begin + series.width).min(whole.end), bucket))
        .collect();
    let rate = |count: u64, range: &Range<u64>| share(count * unit, range.end - range.start);
    let outline = |count: fn(&Bucket) -> u64| {
        let tops = each.iter().flat_map(|(range, bucket)| {
            let height = rate(count(bucket), range);
            [(range.start as f64, height), (range.end as f64, height)]
        });
        let [begin, end] = [whole.start, whole.end].map(|second| (second as f64, 0.0));
        [begin].into_iter().chain(tops).chain([end]).collect::<Vec<_>>()
    };
    let plot = Plot {
        most: each.iter().map(|(range, bucket)| rate(bucket.requests(), range)).fold(0.0, f64::max),
        unit: "",
        // The area of all requests is visible only above that of the admitted ones, which covers the rest.
        shapes: vec![
            Shape::Area(outline(Bucket::requests), REFUSED),
            Shape::Area(outline(|bucket| bucket.admitted), ADMITTED),
        ],
        x: Axis { range: whole.start as f64..whole.end as f64, marks: times(&whole, size) },
    };
    draw(&plot, size)
}

/// Plots what each tried quota refuses, in percent, with a line at the share that may be refused and a mark at the quota
/// that was found.
pub(super) fn tried(suggestion: &Suggestion, most: Share, size: Size) -> anyhow::Result<String> {
    let part = |refused| 100.0 * most.refused(refused, suggestion.requests, suggestion.keys);
    // Of the quotas that refuse nothing, only the smallest is shown.
    let refusing = suggestion.tried.iter().take_while(|one| one.refused.requests > 0).count();
    let shown: Vec<Tried> = suggestion.tried.iter().take(refusing + 1).copied().collect();
    let points = shown.iter().map(|one| ((one.quota as f64).log10(), part(one.refused)));
    let points: Vec<(f64, f64)> = points.collect();
    let (first, last) = (shown.first(), shown.last());
    let ends = first.map_or(1, |one| one.quota)..last.map_or(1, |one| one.quota);
    let x = (ends.start as f64).log10()..(ends.end as f64).log10();
    let bound = 100.0 * most.part();
    let dots = points.iter().map(|point| Shape::Dot(*point, 6, REFUSED));
    // The smallest of the tried quotas that refuse at most the share.
    let found = points.iter().find(|(_, refused)| *refused <= bound);
    let found = found.map(|point| Shape::Dot(*point, 12, ADMITTED));
    let plot = Plot {
        most: points.iter().map(|(_, refused)| *refused).fold(bound, f64::max),
        unit: " %",
        shapes: [
            Shape::Line(vec![(x.start, bound), (x.end, bound)], TEXT),
            Shape::Line(points.clone(), REFUSED),
        ]
        .into_iter()
        .chain(dots)
        .chain(found)
        .collect(),
        x: Axis { range: x, marks: quotas(&ends, size) },
    };
    draw(&plot, size)
}

fn draw(plot: &Plot, size: Size) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw_on(SVGBackend::with_string(&mut svg, size.pixels()), plot)
        .map_err(|error| anyhow!("a plot cannot be drawn: {error}"))?;
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_on(backend: SVGBackend<'_>, plot: &Plot) -> Drawn {
    let area = backend.into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(60)
        .x_label_area_size(50)
        .y_label_area_size(110)
        .build_cartesian_2d(plot.x.clone(), 0.0..plot.most * 1.05)?;
    let text = ("sans-serif", 32).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID.stroke_width(2))
        .max_light_lines(0)
        .axis_style(TEXT.stroke_width(2))
        .label_style(text)
        .y_labels(5)
        .y_label_formatter(&|value| format!("{}{}", (value * 1_000.0).round() / 1_000.0, plot.unit))
        .draw()?;
    for shape in &plot.shapes {
        match shape {
            Shape::Area(outline, colour) => {
                chart.draw_series([Polygon::new(outline.clone(), colour.filled())])?;
            }
            Shape::Line(points, colour) => {
                chart.draw_series([PathElement::new(points.clone(), colour.stroke_width(3))])?;
            }
            Shape::Dot(place, radius, colour) => {
                chart.draw_series([Circle::new(*place, *radius, colour.filled())])?;
            }
        }
    }
    Ok(area.present()?)
}

/// The distances between marks on an axis of time, in seconds.
const STEPS: [u64; 25] = [
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000, 94_608_000,
];

/// Marks on an axis of time: the whole multiples of the smallest step whose texts fit.
fn times(range: &Range<u64>, size: Size) -> Vec<Mark> {
    let length = range.end - range.start;
    let steps = STEPS.into_iter().filter(|step| length / step < 50);
    let mut all = steps.map(|step| {
        let form = match step {
            0..60 => "%H:%M:%S",
            60..86_400 if length <= 86_400 => "%H:%M",
            60..86_400 => "%-d %b %H:%M",
            86_400..2_592_000 => "%-d %b",
            _ => "%-d %b %Y",
        };
        let name = |second: u64| {
            let time =
                i64::try_from(second).ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
            time.map_or_else(String::new, |time| time.strftime(form).to_string())
        };
        let multiples = range.start.div_ceil(step)..=range.end / step;
        multiples.map(|at| ((at * step) as f64, name(at * step))).collect::<Vec<_>>()
    });
    all.find(|marks| size.has_room(marks)).unwrap_or_default()
}

/// Marks on a logarithmic axis of quotas: as many round ones as fit.
fn quotas(range: &Range<u64>, size: Size) -> Vec<Mark> {
    let powers: Vec<u64> = (0..20).filter_map(|power| 10_u64.checked_pow(power)).collect();
    let sets = [&[1, 2, 3, 4, 5, 6, 7, 8, 9][..], &[1, 2, 3, 5], &[1, 3], &[1]];
    let mut all = sets.into_iter().map(|digits: &[u64]| {
        let each =
            powers.iter().flat_map(|power| digits.iter().filter_map(|digit| digit.checked_mul(*power)));
        let inside = each.filter(|quota| (range.start..=range.end).contains(quota));
        inside.map(|quota| ((quota as f64).log10(), number(quota))).collect::<Vec<_>>()
    });
    all.find(|marks| size.has_room(marks)).unwrap_or_default()
}
