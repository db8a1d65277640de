//! Checks the numbers of a meter.

use crate::{LimitError, MAX_PERIOD_NANOS};

/// Checks the number of units that a limit allows.
pub(super) fn check_units(what: &'static str, units: u64, most: u64) -> Result<(), LimitError> {
    if units == 0 {
        return Err(LimitError::Zero { what });
    }
    if units > most {
        return Err(LimitError::TooLarge { what, most });
    }
    Ok(())
}

/// Checks a duration of a limit, in nanoseconds.
pub(super) fn check_period(what: &'static str, nanos: u64) -> Result<(), LimitError> {
    if nanos == 0 {
        return Err(LimitError::Zero { what });
    }
    if nanos > MAX_PERIOD_NANOS {
        return Err(LimitError::TooLong { what });
    }
    Ok(())
}
