//! Why a server could not be had.

use std::error::Error;
use std::fmt;

/// No way to a server worked.
///
/// Its text is several lines: what was tried, why each way failed, and what can be done about it.
#[derive(Debug)]
pub struct Unavailable {
    pub(crate) name: &'static str,
    pub(crate) tried: Vec<(&'static str, String)>,
    pub(crate) advice: String,
}

impl Unavailable {
    /// Which server it is: `redis`, …
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
