//! Pictures: a title, a legend, and panels one below the other.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::axis::{Axis, LINE, letters};
use crate::colour::{Colour, dark_style};

/// The library has whole coordinates only, which would be too coarse: there are two of them to a pixel.
const PIXEL: i32 = 2;

/// Sizes of text, as the library counts them: it makes them smaller by a fifth.
const TITLE: i32 = 24 * PIXEL;
const TEXT: i32 = 16 * PIXEL;

/// Around a picture, and between its parts, in pixels.
const MARGIN: i32 = 10;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// In pixels.
    pub width: i32,
    /// May be empty, as may the notes and the legend.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// What the colours mean.
    pub legend: Vec<(String, Colour)>,
    /// The horizontal axis of all panels. Its texts are below the last one.
    pub x: Axis,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// A part of a picture with its own vertical axis.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Above the panel, on the left. May be empty.
    pub heading: String,
    /// Above the panel, on the right.
    pub note: String,
    /// The height of the plot, in pixels.
    pub height: i32,
    /// The vertical axis.
    pub y: Axis,
    /// Later ones cover earlier ones.
    pub shapes: Vec<Shape>,
}

/// The values on the horizontal and the vertical axis.
pub type Point = (f64, f64);

/// A shape, in values of the axes.
#[derive(Clone, Debug)]
pub enum Shape {
    /// What is inside an outline.
    Area(Vec<Point>, Colour),
    /// A line through points, with its width in half pixels.
    Line(Vec<Point>, Colour, u32),
    /// A dot, with its radius in half pixels.
    Dot(Point, i32, Colour),
    /// A text to the right of a point.
    Label(Point, String),
}

impl Shape {
    /// A rectangle.
    #[must_use]
    pub fn block(x: Range<f64>, y: Range<f64>, colour: Colour) -> Self {
        Self::Area(vec![(x.start, y.start), (x.end, y.start), (x.end, y.end), (x.start, y.end)], colour)
    }
}

/// A line above the panels, after a square of a colour if it belongs to the legend.
struct Words<'a>(&'a str, (i32, i32), i32, Colour, Option<Colour>);

impl Picture {
    /// Writes the picture into a file.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        std::fs::write(file, self.drawn(true)?).with_context(|| format!("the picture {}", file.display()))
    }

    /// The picture as a part of a page, which has to have the [`dark_style`].
    pub fn svg(&self) -> anyhow::Result<String> {
        self.drawn(false)
    }

    fn drawn(&self, is_file: bool) -> anyhow::Result<String> {
        let (head, top) = self.head();
        let height = self.panels.iter().map(|panel| panel.above() + panel.height).sum::<i32>() + self.foot();
        let (width, height) = (self.width, top + height + MARGIN);
        let size = [width, height].map(|length| (length * PIXEL).unsigned_abs());
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, size.into()).into_drawing_area();
        self.draw(&area, &head, top, is_file)
            .map_err(|error| anyhow!("{:?} cannot be drawn: {error}", self.title))?;
        drop(area);
        // The first line has the size in half pixels.
        let shapes = svg.split_once('\n').map_or("", |(_, shapes)| shapes);
        let style = if is_file { format!("<style>\n{}</style>\n", dark_style()) } else { String::new() };
        let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\"", size[0], size[1]);
        Ok(format!("<svg {size} xmlns=\"http://www.w3.org/2000/svg\">\n{style}{shapes}"))
    }

    /// The title, the notes and the legend in as many rows as it needs, and where they end.
    fn head(&self) -> (Vec<Words<'_>>, i32) {
        let (mut head, mut y) = (Vec::new(), MARGIN / 2);
        if !self.title.is_empty() {
            head.push(Words(&self.title, (MARGIN, y + LINE * 3 / 4), TITLE, Colour::INK, None));
            y += LINE * 3 / 2;
        }
        for note in &self.notes {
            head.push(Words(note, (MARGIN, y + LINE / 2), TEXT, Colour::SOFT, None));
            y += LINE;
        }
        let mut x = i32::MAX / 2;
        for (name, colour) in &self.legend {
            let width = letters(name) + 3 * MARGIN;
            if x + width > self.width {
                (x, y) = (MARGIN, y + LINE);
            }
            head.push(Words(name, (x, y - LINE / 2), TEXT, Colour::SOFT, Some(*colour)));
            x += width;
        }
        (head, y)
    }

    /// The height of the texts below the last panel.
    fn foot(&self) -> i32 {
        if self.x.name.is_empty() { LINE } else { 2 * LINE }
    }

    fn draw(&self, area: &Area<'_>, head: &[Words<'_>], top: i32, is_file: bool) -> Drawn {
        if is_file {
            area.fill(&Colour::PAPER.light())?;
        }
        for &Words(words, (mut x, y), size, colour, square) in head {
            if let Some(square) = square {
                let corners = [(x, y - 6), (x + 12, y - 6), (x + 12, y + 6), (x, y + 6)];
                let corners = corners.map(|(x, y)| (x * PIXEL, y * PIXEL));
                area.draw(&Polygon::new(corners, square.light().filled()))?;
                x += 18;
            }
            text(area, words, (x, y), size, colour, HPos::Left)?;
        }
        let axes: Vec<Axis> = self.panels.iter().map(|panel| panel.y.clone().up(panel.height)).collect();
        let texts = axes.iter().flat_map(|axis| &axis.marks).flatten();
        let left = texts.map(|(_, text)| letters(text)).max().unwrap_or(0) + MARGIN;
        let labels = self.panels.iter().flat_map(|panel| &panel.shapes).filter_map(|shape| match shape {
            Shape::Label(_, words) => Some(letters(words) + MARGIN),
            _ => None,
        });
        let right = labels.max().unwrap_or(0).max(2 * MARGIN) + MARGIN;
        let x = self.x.clone().across(self.width - left - right - MARGIN);
        let mut rest = area.split_vertically(top * PIXEL).1;
        for (at, (panel, y)) in self.panels.iter().zip(axes).enumerate() {
            let foot = if at + 1 == self.panels.len() { self.foot() } else { 0 };
            let height = panel.above() + panel.height + foot;
            let area;
            (area, rest) = rest.split_vertically(height * PIXEL);
            let line = MARGIN + LINE / 2;
            text(&area, &panel.heading, (left + MARGIN, line), TEXT, Colour::INK, HPos::Left)?;
            text(&area, &panel.note, (self.width - right, line), TEXT, Colour::SOFT, HPos::Right)?;
            let mut chart = ChartBuilder::on(&area);
            chart.margin_top(panel.above() * PIXEL).margin_left(MARGIN * PIXEL).margin_right(right * PIXEL);
            chart.x_label_area_size(foot * PIXEL).y_label_area_size(left * PIXEL);
            panel.draw(&mut chart, x.clone(), y)?;
        }
        Ok(area.present()?)
    }
}

impl Panel {
    /// The height of what is above the plot.
    fn above(&self) -> i32 {
        if self.heading.is_empty() { MARGIN } else { LINE + MARGIN }
    }

    fn draw(&self, chart: &mut ChartBuilder<'_, '_, SVGBackend<'_>>, x: Axis, y: Axis) -> Drawn {
        let (has_lines, name) = (y.has_grid, x.name.clone());
        let mut chart = chart.build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        if !has_lines {
            mesh.disable_y_mesh();
        }
        mesh.bold_line_style(Colour::GRID.light().stroke_width(2))
            .light_line_style(TRANSPARENT)
            .axis_style(Colour::SOFT.light().stroke_width(2))
            .label_style(("sans-serif", TEXT).into_font().color(&Colour::SOFT.light()))
            .x_desc(name)
            .draw()?;
        let area = chart.plotting_area();
        for shape in &self.shapes {
            match shape {
                Shape::Area(outline, colour) => area.draw(&Polygon::new(&**outline, colour.light().filled())),
                Shape::Line(points, colour, width) => {
                    area.draw(&PathElement::new(&**points, colour.light().stroke_width(*width)))
                }
                Shape::Dot(at, radius, colour) => {
                    area.draw(&Circle::new(*at, *radius, colour.light().filled()))
                }
                Shape::Label(at, words) => {
                    let words =
                        Text::new(words.clone(), (MARGIN * PIXEL, 0), style(TEXT, Colour::SOFT, HPos::Left));
                    area.draw(&(EmptyElement::at(*at) + words))
                }
            }?;
        }
        Ok(())
    }
}

fn style<'a>(size: i32, colour: Colour, side: HPos) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(&colour.light()).pos(Pos::new(side, VPos::Center))
}

/// Draws a text, whose middle line is at a place in pixels.
fn text(area: &Area<'_>, words: &str, (x, y): (i32, i32), size: i32, colour: Colour, side: HPos) -> Drawn {
    match words {
        "" => Ok(()),
        _ => Ok(area.draw_text(words, &style(size, colour, side), (x * PIXEL, y * PIXEL))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let shapes = vec![
            Shape::block(0.0..5.0, 0.0..3.0, Colour::BLUE),
            Shape::Line(vec![(0.0, 1.0), (10.0, 4.0)], Colour::RED, 3),
            Shape::Dot((10.0, 4.0), 6, Colour::RED),
            Shape::Label((10.0, 4.0), "a label".to_owned()),
        ];
        let y = Axis { unit: "/s", ..Axis::linear(0.0..4.0) };
        let panel = Panel { note: "a note".to_owned(), height: 100, y, shapes, ..Panel::default() };
        let panel = |heading: &str| Panel { heading: heading.to_owned(), ..panel.clone() };
        Picture {
            width: 400,
            title: "A <title>".to_owned(),
            notes: vec!["below the title".to_owned()],
            legend: vec![("things".to_owned(), Colour::BLUE)],
            x: Axis { name: "the axis".to_owned(), ..Axis::linear(0.0..10.0) },
            panels: vec![panel("one"), panel("two")],
        }
    }

    #[test]
    fn a_picture_has_all_its_texts_and_shapes_and_a_background() {
        let svg = picture().drawn(true).expect("a picture");
        let above = ["A &lt;title&gt;", "below the title", "things", "one", "two", "a note", "a label"];
        for word in above.iter().chain(&["the axis", "2/s"]) {
            assert!(svg.contains(&format!(">\n{word}\n</text>")), "{word:?} is missing");
        }
        for shape in ["polygon", "circle", "stroke=\"#D55E00\"", "prefers-color-scheme: dark", "<rect"] {
            assert!(svg.contains(shape), "{shape:?} is missing");
        }
        assert_eq!(svg.matches(">\n10\n</text>").count(), 1, "only the last panel has texts below it");
        let in_page = picture().svg().expect("a picture");
        assert!(!in_page.contains("<style>") && !in_page.contains("<rect"), "{in_page}");
    }

    #[test]
    fn a_legend_has_as_many_rows_as_it_needs() {
        let legend = (0..6).map(|at| (format!("a rather long entry, {at}"), Colour::series(at)));
        let long = Picture { legend: legend.collect(), ..picture() };
        for (width, rows) in [(400, 6), (460, 3), (960, 2)] {
            let wide = Picture { width, ..long.clone() };
            assert_eq!(wide.head().1 - picture().head().1, (rows - 1) * LINE, "{width}");
        }
    }
}
