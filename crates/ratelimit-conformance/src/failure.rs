//! How a case ends when it does not pass, and the checks that end it.

use std::fmt::Display;

use crate::Outcome;

/// What a case gives back.
pub(crate) type CaseResult<T = ()> = Result<T, Failure>;

/// Why a case ended early.
#[derive(Debug)]
pub(crate) struct Failure(Outcome);

impl Failure {
    /// The store did something wrong.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(Outcome::Failed(reason.into()))
    }

    /// The subject does not offer what the case needs, although it could.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self(Outcome::Skipped(reason.into()))
    }

    /// The store does not promise what the case asks for.
    pub(crate) fn not_applicable(reason: impl Into<String>) -> Self {
        Self(Outcome::NotApplicable(reason.into()))
    }

    /// The outcome of the case.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.0
    }
}

/// Any error ends the case; so `?` works on whatever a store says.
impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// Ends the case with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::new(format!(
                "{} ({}:{})", format_args!($($message)+), file!(), line!()
            )));
        }
    };
}

/// Ends the case with both values unless they are equal.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        $crate::failure::ensure!(
            found == expected,
            "{}: expected {expected:?}, found {found:?}",
            format_args!($($what)+)
        );
    }};
}

pub(crate) use {ensure, ensure_eq};
