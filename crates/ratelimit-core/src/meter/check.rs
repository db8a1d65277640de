//! Checks the numbers of a meter.

use crate::{LimitError, MAX_PERIOD_NANOS};

/// Checks a number of units that must not be zero.
pub(crate) fn check_units(what: &'static str, units: u64, most: u64) -> Result<(), LimitError> {
    if units == 0 { Err(LimitError::Zero { what }) } else { check_most(what, units, most) }
}

/// Checks a number of units that may be zero.
pub(super) fn check_most(what: &'static str, units: u64, most: u64) -> Result<(), LimitError> {
    if units > most { Err(LimitError::TooLarge { what, most }) } else { Ok(()) }
}

/// Checks a duration of a limit, in nanoseconds.
pub(crate) fn check_period(what: &'static str, nanos: u64) -> Result<(), LimitError> {
    if nanos == 0 {
        return Err(LimitError::Zero { what });
    }
    if nanos > MAX_PERIOD_NANOS {
        return Err(LimitError::TooLong { what });
    }
    Ok(())
}
