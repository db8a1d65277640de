//! Plots as SVG.

use std::ops::Range;

use anyhow::Result;
use ratelimit_plot::{Axis, Colour, Mark, Panel, Picture, Shape};

use crate::engine::{Bucket, Series, share};
use crate::suggest::{Share, Suggestion, Tried};

const ADMITTED: Colour = Colour::BLUE;
const REFUSED: Colour = Colour::RED;
/// Of the line at the share that may be refused.
const BOUND: Colour = Colour::SOFT;

/// The widths for wide screens and paper, and for narrow screens, such as those of telephones.
pub(super) const WIDE: i32 = 900;
pub(super) const NARROW: i32 = 360;

fn svg(width: i32, legend: &[(&str, Colour)], x: Axis, y: Axis, shapes: Vec<Shape>) -> Result<String> {
    let legend = legend.iter().map(|(name, colour)| ((*name).to_owned(), *colour)).collect();
    let panels = vec![Panel { height: 180 + width / 30, y, shapes, ..Panel::default() }];
    Picture { width, legend, x, panels, ..Picture::default() }.svg()
}

/// Plots the rate of requests per `unit` seconds over time: the admitted ones, and above them the refused ones.
pub(super) fn rate(series: &Series, unit: u64, width: i32) -> Result<String> {
    let end = |series: &Series| series.begin + series.width * series.buckets.len() as u64;
    let whole = series.begin..end(series);
    let series = series.coarser(usize::try_from(width)? * 4 / 9);
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
    let most = each.iter().map(|(range, bucket)| rate(bucket.requests(), range)).fold(0.0, f64::max);
    // The area of all requests is visible only above that of the admitted ones, which covers the rest.
    let shapes = vec![
        Shape::Area(outline(Bucket::requests), REFUSED),
        Shape::Area(outline(|bucket| bucket.admitted), ADMITTED),
    ];
    let x = Axis { marks: times(&whole), ..Axis::linear(whole.start as f64..whole.end as f64) };
    svg(width, &[("admitted", ADMITTED), ("refused", REFUSED)], x, Axis::linear(0.0..most * 1.05), shapes)
}

/// Plots what each tried quota refuses, in percent, with a line at the share that may be refused and a mark at the quota
/// that was found.
pub(super) fn tried(suggestion: &Suggestion, most: Share, width: i32) -> Result<String> {
    let part = |refused| 100.0 * most.refused(refused, suggestion.requests, suggestion.keys);
    // Of the quotas that refuse nothing, only the smallest is shown.
    let refusing = suggestion.tried.iter().take_while(|one| one.refused.requests > 0).count();
    let shown: Vec<Tried> = suggestion.tried.iter().take(refusing + 1).copied().collect();
    let points = shown.iter().map(|one| (one.quota as f64, part(one.refused)));
    let points: Vec<(f64, f64)> = points.collect();
    let ends = [shown.first(), shown.last()].map(|one| one.map_or(1.0, |one| one.quota as f64));
    let bound = 100.0 * most.part();
    let dots = points.iter().map(|point| Shape::Dot(*point, 6, REFUSED));
    // The smallest of the tried quotas that refuse at most the share.
    let found = points.iter().find(|(_, refused)| *refused <= bound);
    let found = found.map(|point| Shape::Dot(*point, 12, ADMITTED));
    let lines = [
        Shape::Line(ends.map(|quota| (quota, bound)).into(), BOUND, 3),
        Shape::Line(points.clone(), REFUSED, 3),
    ];
    let highest = points.iter().map(|(_, refused)| *refused).fold(bound, f64::max);
    let legend = [("tried", REFUSED), ("proposed", ADMITTED), (&*suggestion.share, BOUND)];
    let shapes = lines.into_iter().chain(dots).chain(found).collect();
    let y = Axis { unit: " %", ..Axis::linear(0.0..highest * 1.05) };
    svg(width, &legend, Axis::logarithmic(ends[0]..ends[1]), y, shapes)
}

/// The distances between marks on an axis of time, in seconds.
const STEPS: [u64; 25] = [
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000, 94_608_000,
];

/// Marks on an axis of time: the whole multiples of each step.
fn times(range: &Range<u64>) -> Vec<Vec<Mark>> {
    let Range { start, end } = *range;
    let length = end - start;
    let steps = STEPS.into_iter().filter(|step| length / step < 50);
    let all = steps.map(|step| {
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
        let multiples = start.div_ceil(step)..=end / step;
        multiples.map(|at| ((at * step) as f64, name(at * step))).collect::<Vec<_>>()
    });
    all.collect()
}
