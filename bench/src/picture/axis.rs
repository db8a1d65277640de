//! Axes: the positions of figures on the sheet.

/// A linear or a logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) is_logarithmic: bool,
    low: f64,
    high: f64,
    from: i32,
    to: i32,
}

impl Axis {
    /// A linear axis from zero, or a logarithmic one if the largest figure is many times the smallest.
    pub(super) fn fitting(figures: impl Iterator<Item = f64> + Clone, from: i32, to: i32) -> Self {
        let high = figures.clone().fold(0.0, f64::max).max(1e-9);
        let low = figures.clone().fold(high, f64::min);
        if low > 0.0 && high / low > 25.0 {
            return Self::logarithmic(figures, from, to);
        }
        Self { is_logarithmic: false, low: 0.0, high: high * 1.02, from, to }
    }

    /// A logarithmic axis with a margin at both ends. Figures must be positive.
    pub(super) fn logarithmic(figures: impl Iterator<Item = f64> + Clone, from: i32, to: i32) -> Self {
        let high = figures.clone().fold(1e-9, f64::max);
        let low = figures.filter(|figure| *figure > 0.0).fold(high, f64::min);
        Self { is_logarithmic: true, low: low / 1.5, high: high * 1.1, from, to }
    }

    /// The position of a figure.
    #[allow(clippy::cast_possible_truncation, reason = "a place on a sheet")]
    pub(super) fn place(&self, figure: f64) -> i32 {
        let part = if self.is_logarithmic {
            (figure.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (figure - self.low) / (self.high - self.low)
        };
        self.from + (f64::from(self.to - self.from) * part).round() as i32
    }

    /// Round figures within the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = if self.is_logarithmic { self.powers() } else { self.steps() };
        ticks.retain(|tick| (self.low..=self.high).contains(tick));
        ticks
    }

    fn powers(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let within: &[f64] = match decades {
            few if few < 2.5 => &[1.0, 2.0, 5.0],
            some if some < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        (-9..15).flat_map(|power| within.iter().map(move |digit| digit * 10_f64.powi(power))).collect()
    }

    fn steps(&self) -> Vec<f64> {
        let rough = self.high / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..=10_u32).map(|count| f64::from(count) * step).collect()
    }
}

/// The label of a tick.
pub(super) fn name(figure: f64) -> String {
    match figure {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e4 => format!("{}k", large / 1e3),
        small => format!("{}", (small * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let straight = Axis::fitting([10.0, 47.0].into_iter(), 0, 100);
        assert_eq!(straight.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let wide = Axis::fitting([10.0, 4_700.0].into_iter(), 0, 100);
        assert_eq!(wide.ticks(), [10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0]);
        assert!(wide.place(10.0) > 0 && wide.place(4_700.0) < 100);
    }
}
