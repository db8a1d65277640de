//! The error if a server is not available.

use std::error::Error;
use std::fmt;

/// A server could not be found or started.
///
/// The message has several lines: what was tried, why it failed, and what you can do.
#[derive(Debug)]
pub struct Unavailable {
    pub(crate) name: &'static str,
    pub(crate) tried: Vec<(&'static str, String)>,
    pub(crate) advice: String,
}

impl Unavailable {
    /// The name of the server: `redis`, …
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be had", self.name)?;
        for (way, reason) in &self.tried {
            write!(f, "\n  {way}: {}", reason.replace('\n', "\n    "))?;
        }
        write!(f, "\n{}", self.advice)
    }
}

impl Error for Unavailable {}
