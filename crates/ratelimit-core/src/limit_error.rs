//! Why a limit cannot be built, or limits cannot be checked.

use std::error::Error;
use std::fmt;

/// Why a limit cannot be built, or limits cannot be checked together.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A number that must be at least one is zero.
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// A number of units is larger than its maximum.
    TooLarge {
        /// Which number.
        what: &'static str,
        /// The maximum.
        most: u64,
    },
    /// A duration is longer than ten years.
    TooLong {
        /// Which duration.
        what: &'static str,
    },
    /// The rate is so high that whole nanoseconds cannot keep it within 0.1 %.
    RateTooHigh,
    /// The burst would take more than 73 years to drain.
    BurstTooLong,
    /// The number of units in a step of a token bucket is not whole, or is zero.
    StepNotWhole,
    /// A step has more units than the burst holds: the others would be lost at each step, and the rate would be lower.
    StepAboveBurst {
        /// The number of units in a step.
        units: u64,
        /// The burst.
        burst: u64,
    },
    /// The precision is zero or does not divide the period.
    PrecisionDoesNotDivide,
    /// The precision divides the period into more than 3,600 segments.
    TooManySegments,
    /// A window, its precision or its offset, or a ban is not a whole number of microseconds.
    NotMicroseconds,
    /// A window's offset is not shorter than its segments.
    OffsetTooLong,
    /// The option does not apply to the algorithm.
    Unsuitable {
        /// The option.
        option: &'static str,
        /// What it applies to.
        needs: &'static str,
    },
    /// The longest ban is shorter than the first one, or longer than 366 days.
    BadBan,
    /// Further bans can be longer, but the factor is 1.
    NotGrowing,
    /// The name is empty, too long, or has characters besides letters, digits, `.`, `_` and `-`.
    BadName,
    /// The machine's database of time zones has no zone of this name.
    UnknownZone,
    /// The first day of months is not between 1 and 31.
    BadFirstDay,
    /// Two limits of one check would count on the same meter: they have the same key and the same
    /// [scope](crate::Limit::scope).
    SameMeterTwice,
    /// There are no limits, or a key of a request has none.
    NoLimits,
    /// There are more limits than one check can hold.
    TooManyLimits,
    /// A key is to be banned, but there is no [ban](crate::Algorithm::Ban) among its limits.
    NoBan,
}

impl LimitError {
    /// Checks that no option is set for an algorithm that it does not apply to. Each option is `(is_unsuitable, name, needs)`.
    ///
    /// # Errors
    /// For the first unsuitable option.
    pub(crate) fn check_suitable<const N: usize>(
        options: [(bool, &'static str, &'static str); N],
    ) -> Result<(), Self> {
        match options.into_iter().find(|(is_unsuitable, ..)| *is_unsuitable) {
            Some((_, option, needs)) => Err(Self::Unsuitable { option, needs }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { what } => write!(f, "the {what} must be at least 1, not 0"),
            Self::TooLarge { what, most } => write!(f, "the {what} must be at most {most}"),
            Self::TooLong { what } => write!(f, "the {what} must be at most 3660 days"),
            Self::RateTooHigh => f.write_str(
                "the rate is too high to be kept within 0.1 % by whole nanoseconds; rates up to 1000000/s always can be",
            ),
            Self::BurstTooLong => f.write_str("the burst would take more than 73 years to drain"),
            Self::StepNotWhole => {
                f.write_str("a step must have a whole number of units, at least one: 1000/h has 250 in a step of 15min")
            }
            Self::StepAboveBurst { units, burst } => write!(
                f,
                "a step has {units} units, of which the burst of {burst} holds only a part: use a shorter step, or `burst {units}`"
            ),
            Self::PrecisionDoesNotDivide => f.write_str("the precision must divide the period without remainder"),
            Self::TooManySegments => f.write_str("the precision must divide the period into at most 3600 segments"),
            Self::NotMicroseconds => {
                f.write_str("windows, their offsets and bans must be whole microseconds, the resolution of servers' clocks")
            }
            Self::OffsetTooLong => f.write_str("the offset must be shorter than the window's segments"),
            Self::Unsuitable { option, needs } => write!(f, "{option} only applies to {needs}"),
            Self::BadBan => f.write_str("the longest ban must be at least as long as the first one, and at most 366 days"),
            Self::NotGrowing => {
                f.write_str("bans that grow need a factor of at least 2, as in `growing 2 up to 1h`")
            }
            Self::BadName => f.write_str("a name is 1 to 64 letters, digits, '.', '_' or '-'"),
            Self::UnknownZone => f.write_str(
                "the database of time zones on this machine has no such zone; names look like Europe/Berlin, and the database is often the package tzdata",
            ),
            Self::BadFirstDay => f.write_str("the first day of months must be between 1 and 31"),
            Self::SameMeterTwice => f.write_str(
                "two of the limits are of the same kind and period, and would count together: give them different names",
            ),
            Self::NoLimits => f.write_str("at least one limit is needed for each key"),
            Self::TooManyLimits => write!(f, "at most {} limits can be checked at once", crate::MAX_CLAIMS),
            Self::NoBan => f.write_str("nothing to ban by: none of the limits is a ban, such as \"ban 1h after 20 in 10min\""),
        }
    }
}

impl fmt::Debug for LimitError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl Error for LimitError {}
