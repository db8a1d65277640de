//! Why a limiter returns no decision.

use std::error::Error;
use std::fmt;

use crate::{Decision, LimitError, StoreError};

/// Why a check returns no decision. A refusal is not an error.
#[non_exhaustive]
pub enum CheckError {
    /// The store did not answer. You decide whether the request may pass.
    Store(StoreError),
    /// The request cannot be checked: it has no limits, too many, or the same meter twice, or the length of a
    /// [ban](crate::RateLimiter::ban) is zero or too long. This is a bug in your program.
    Limits(LimitError),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Limits(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for CheckError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            Self::Limits(_) => None,
        }
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<LimitError> for CheckError {
    fn from(error: LimitError) -> Self {
        Self::Limits(error)
    }
}

/// Why waiting for admission failed. Nothing is charged, unless the store's error says that this is
/// [unknown](StoreError::applied), or the store was so slow that a turn in a queue came too late and others are behind it.
#[non_exhaustive]
pub enum AcquireError {
    /// The request is never admitted: it costs more than the limit that [decided](Decision::decided_by) can admit, or that
    /// limit is [in total](crate::Algorithm::Total) and used up.
    Never(Decision<'static>),
    /// The request would not be admitted, or not get its turn, before the deadline. If it was charged because the store was
    /// slow, it has been refunded. A turn in a queue stays if others are behind it.
    Deadline(Decision<'static>),
    /// There was no decision: the store did not answer, or the request cannot be checked.
    Check(CheckError),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never(decision) => {
                let limit = decision.decided_by();
                let (cost, most, rule) = (limit.cost(), limit.limit(), limit.rule());
                if cost <= most {
                    return write!(
                        f,
                        "never admitted: the limit \"{rule}\" has {} units left",
                        limit.remaining()
                    );
                }
                write!(
                    f,
                    "never admitted: it costs {cost}, and the limit \"{rule}\" admits at most {most} at once"
                )
            }
            Self::Deadline(decision) if decision.charged() && decision.delay().is_zero() => {
                f.write_str("the store answered after the deadline; the units were refunded")
            }
            Self::Deadline(decision) if decision.charged() => write!(
                f,
                "its turn comes after the deadline, in {:?}; it was refunded unless others are behind it",
                decision.delay()
            ),
            Self::Deadline(decision) if decision.allowed() => {
                f.write_str("not admitted before the deadline: others that came earlier were still waiting")
            }
            Self::Deadline(decision) => {
                let (rule, wait) = (decision.decided_by().rule(), decision.retry_after().unwrap_or_default());
                write!(
                    f,
                    "not admitted before the deadline: under the limit \"{rule}\" it would take {wait:?}"
                )
            }
            Self::Check(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for AcquireError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Check(error) => error.source(),
            Self::Never(_) | Self::Deadline(_) => None,
        }
    }
}

impl<E: Into<CheckError>> From<E> for AcquireError {
    fn from(error: E) -> Self {
        Self::Check(error.into())
    }
}
