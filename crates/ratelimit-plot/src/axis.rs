//! Axes: where values are, and which of them have a text.

use std::ops::Range;

use plotters::coord::ranged1d::{BoldPoints, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

/// The height of a line of text, in pixels.
pub(crate) const LINE: i32 = 20;

/// A value, and the text there.
pub type Mark = (f64, String);

/// A linear axis, a logarithmic one, or one of names.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// From one end to the other.
    pub range: Range<f64>,
    /// Both ends must be positive then.
    pub is_logarithmic: bool,
    /// Sets of marks, of which the first that fits is shown, or else the last. If there are none, the axis makes its own.
    pub marks: Vec<Vec<Mark>>,
    /// Follows the numbers that a linear axis has made itself.
    pub unit: &'static str,
    /// The text below a horizontal axis.
    pub name: String,
    /// Whether there are lines at the marks.
    pub has_grid: bool,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(range: Range<f64>) -> Self {
        Self { range, has_grid: true, ..Self::default() }
    }

    /// A logarithmic axis. Both ends must be positive.
    #[must_use]
    pub fn logarithmic(range: Range<f64>) -> Self {
        let digits = [&[1, 2, 3, 4, 5, 6, 7, 8, 9][..], &[1, 2, 3, 5], &[1, 2, 5], &[1, 3], &[1]];
        let marks = |digits: &[i32]| {
            let values = (-9..19).flat_map(|power| digits.iter().map(move |digit| (*digit, power)));
            let values = values.map(|(digit, power)| f64::from(digit) * 10_f64.powi(power));
            values
                .filter(|value| (range.start..=range.end).contains(value))
                .map(|value| (value, short(value)))
                .collect()
        };
        Self { is_logarithmic: true, marks: digits.map(marks).into(), ..Self::linear(range) }
    }

    /// A vertical axis with a name in the middle of each whole number, from top to bottom.
    #[must_use]
    pub fn names(names: impl IntoIterator<Item = String>) -> Self {
        let marks: Vec<Mark> = (0..).map(|row| f64::from(row) + 0.5).zip(names).collect();
        let rows = marks.last().map_or(1.0, |(at, _)| at + 0.5);
        Self { range: rows..0.0, marks: vec![marks], ..Self::default() }
    }

    /// The axis with the marks that have room beside each other.
    pub(crate) fn across(self, width: i32) -> Self {
        self.fitting(width, width / 80, |text| letters(text) + letters("  "))
    }

    /// The axis with the marks that have room above each other.
    pub(crate) fn up(self, height: i32) -> Self {
        self.fitting(height, height / 28, |_| LINE)
    }

    fn fitting(self, length: i32, most: i32, room: impl Fn(&str) -> i32) -> Self {
        let place = |mark: &Mark| self.map(&mark.0, (0, length));
        let fit = |one: &Mark, next: &Mark| {
            (place(next) - place(one)).abs() >= i32::midpoint(room(&one.1), room(&next.1))
        };
        let fits = |marks: &&Vec<Mark>| marks.windows(2).all(|two| fit(&two[0], &two[1]));
        let fitting = self.marks.iter().find(fits).or(self.marks.last());
        let bold = || {
            let most = BoldPoints(usize::try_from(most.clamp(2, 6)).unwrap_or(2));
            let values = RangedCoordf64::from(self.range.clone()).key_points(most);
            values.into_iter().map(|value| (value, short(value) + self.unit)).collect()
        };
        Self { marks: vec![fitting.cloned().unwrap_or_else(bold)], ..self }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        let Range { start, end } = self.range;
        let value = value.max(start.min(end)).min(start.max(end));
        match self.is_logarithmic {
            true => RangedCoordf64::from(start.ln()..end.ln()).map(&value.ln(), pixels),
            false => RangedCoordf64::from(start..end).map(&value, pixels),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.iter().flatten().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.marks.iter().flatten().find(|(at, _)| at == value).map_or("", |(_, text)| text).to_owned()
    }
}

/// The width of a text, about, in pixels.
pub(crate) fn letters(words: &str) -> i32 {
    i32::try_from(words.chars().count()).unwrap_or(i32::MAX / 100) * 8
}

/// A round number, in few letters.
fn short(number: f64) -> String {
    match number {
        _ if number >= 1e6 => format!("{}M", number / 1e6),
        _ if number >= 1e4 => format!("{}k", number / 1e3),
        _ => format!("{}", (number * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> String {
        axis.marks.iter().flatten().map(|(_, text)| &**text).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn marks_are_round_fit_and_are_within_the_axis() {
        let percent = Axis { unit: " %", ..Axis::linear(0.0..47.0) };
        assert_eq!(texts(&percent.up(200)), "0 %, 10 %, 20 %, 30 %, 40 %");
        let wide = Axis::logarithmic(10.0..40_000.0);
        assert_eq!(texts(&wide.clone().up(160)), "10, 30, 100, 300, 1000, 3000, 10k, 30k");
        // The marks of a decade are closer to each other at its end.
        assert_eq!(texts(&Axis::logarithmic(7_000.0..200_000.0).up(340)), "10k, 20k, 30k, 50k, 100k, 200k");
        assert_eq!(texts(&wide.across(200)), "10, 100, 1000, 10k");
    }

    #[test]
    fn values_have_places_and_those_outside_are_at_the_ends() {
        let axis = Axis::logarithmic(10.0..1_000.0).up(100);
        assert_eq!([0.0, 10.0, 100.0, 1e9].map(|value| axis.map(&value, (0, 100))), [0, 0, 50, 100]);
        let rows = Axis::names(["a".to_owned(), "b".to_owned()]).up(100);
        // The library's vertical axes begin at the greatest coordinate.
        assert_eq!([0.5, 1.5].map(|row| rows.map(&row, (100, 0))), [25, 75]);
        assert_eq!(texts(&rows), "a, b");
    }
}
