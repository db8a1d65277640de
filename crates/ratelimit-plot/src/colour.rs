//! The colours, on light and on dark pages.

use plotters::style::RGBColor;

/// A colour on a light page, and on a dark one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour([u8; 3], [u8; 3]);

#[allow(missing_docs, reason = "they are called what they are")]
impl Colour {
    /// The background.
    pub const PAPER: Self = Self([255, 255, 255], [20, 24, 29]);
    /// Titles.
    pub const INK: Self = Self([28, 33, 39], [232, 236, 240]);
    /// Other texts, and axes.
    pub const SOFT: Self = Self([61, 70, 80], [180, 190, 201]);
    pub const GRID: Self = Self([216, 221, 227], [56, 66, 77]);
    /// Backgrounds that mark a part of a panel.
    pub const PALE_BLUE: Self = Self([225, 230, 248], [35, 44, 70]);
    pub const PALE_RED: Self = Self([251, 226, 213], [69, 42, 30]);
    // Colour-blind people can tell these apart (Okabe and Ito).
    pub const BLUE: Self = Self([0, 114, 178], [63, 148, 216]);
    pub const ORANGE: Self = Self([230, 159, 0], [242, 193, 78]);
    pub const GREEN: Self = Self([0, 158, 115], [31, 181, 138]);
    pub const PINK: Self = Self([204, 121, 167], [224, 149, 191]);
    pub const RED: Self = Self([213, 94, 0], [240, 127, 56]);
    pub const SKY: Self = Self([86, 180, 233], [150, 210, 245]);
    pub const GREY: Self = Self([120, 120, 120], [154, 163, 172]);

    const ALL: [Self; 13] = [
        Self::PAPER,
        Self::INK,
        Self::SOFT,
        Self::GRID,
        Self::PALE_BLUE,
        Self::PALE_RED,
        Self::BLUE,
        Self::ORANGE,
        Self::GREEN,
        Self::PINK,
        Self::RED,
        Self::SKY,
        Self::GREY,
    ];

    /// The colour of the series with this number.
    #[must_use]
    pub fn series(number: usize) -> Self {
        Self::ALL[6 + number % 7]
    }

    pub(crate) fn light(self) -> RGBColor {
        let [red, green, blue] = self.0;
        RGBColor(red, green, blue)
    }
}

/// The style sheet of a page that contains plots: in a dark scheme, it gives their colours other values.
#[must_use]
pub fn dark_style() -> String {
    let hex = |[red, green, blue]: [u8; 3]| format!("#{red:02X}{green:02X}{blue:02X}");
    let rules = Colour::ALL.into_iter().flat_map(|Colour(light, dark)| {
        ["fill", "stroke"]
            .map(|part| format!("svg [{part}=\"{}\"] {{ {part}: {} }}\n", hex(light), hex(dark)))
    });
    format!("@media screen and (prefers-color-scheme: dark) {{\n{}}}\n", rules.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_a_value_of_its_own() {
        for (at, colour) in Colour::ALL.iter().enumerate() {
            assert!(Colour::ALL[..at].iter().all(|other| other.0 != colour.0), "{colour:?}");
        }
        assert_eq!([0, 6, 7].map(Colour::series), [Colour::BLUE, Colour::GREY, Colour::BLUE]);
    }
}
