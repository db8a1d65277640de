//! Errors as a person reads them.

use std::error::Error;
use std::fmt;

/// Writes an error and its sources, for its `Debug`: a program whose `main` returns an error prints that.
///
/// ```
/// use std::fmt;
///
/// use ratelimit_core::kit;
///
/// struct NoDisk(fmt::Error);
///
/// impl fmt::Display for NoDisk {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("there is no disk")
///     }
/// }
///
/// impl std::error::Error for NoDisk {
///     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// impl fmt::Debug for NoDisk {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         kit::write_error(self, f)
///     }
/// }
///
/// let cause = fmt::Error.to_string();
/// assert_eq!(format!("{:?}", NoDisk(fmt::Error)), format!("there is no disk\n\nCaused by:\n    {cause}"));
/// ```
///
/// # Errors
/// If the formatter fails.
pub fn write_error(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    if source.is_some() {
        f.write_str("\n\nCaused by:")?;
    }
    while let Some(error) = source {
        write!(f, "\n    {error}")?;
        source = error.source();
    }
    Ok(())
}
