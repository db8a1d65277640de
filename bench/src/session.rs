//! A measurement that can be repeated, and its figures.

use anyhow::Result;

/// A prepared measurement. The family defines the meaning of the argument.
pub(crate) trait Session {
    fn step(&mut self, argument: u64) -> Result<Vec<f64>>;
}

/// Converts a count or a time to a figure.
#[allow(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn figure(number: u64) -> f64 {
    number as f64
}
