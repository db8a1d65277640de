//! Plots as SVG, in one style, for light and dark pages.
//!
//! A [`Picture`] has panels one below the other, over the same horizontal axis. A [`Panel`] has a vertical [`Axis`] and
//! [`Shape`]s, whose places are values on the axes. The axes choose their marks so that the texts fit.
#![forbid(unsafe_code)]

mod axis;
mod colour;
mod picture;

pub use axis::{Axis, Mark};
pub use colour::{Colour, dark_style};
pub use picture::{Panel, Picture, Point, Shape};
