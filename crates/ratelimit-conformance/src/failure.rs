//! How a case fails, and the checks that make it fail.

use std::error::Error;
use std::fmt::Debug;

use ratelimit_core::{CheckError, ErrorKind, StoreError};
use tokio::task::JoinError;

use crate::report::Outcome;
use crate::subject::BoxError;

/// The result of a case.
pub(crate) type CaseResult<T = ()> = Result<T, Failure>;

/// Why a case ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    outcome: Outcome,
    /// Whether a call exceeded the store's own time limit.
    is_timeout: bool,
}

impl Failure {
    /// The store did something wrong.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Outcome::Failed(reason.into()).into()
    }

    /// The subject lacks something that the case needs and that it could provide.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Outcome::Skipped(reason.into()).into()
    }

    /// The store does not promise what the case tests.
    pub(crate) fn not_applicable(reason: impl Into<String>) -> Self {
        Outcome::NotApplicable(reason.into()).into()
    }

    /// Appends `more` to the reason of a failure.
    pub(crate) fn followed_by(self, more: impl FnOnce() -> String) -> Self {
        match self.outcome {
            Outcome::Failed(reason) => Self { outcome: Outcome::Failed(reason + &more()), ..self },
            _ => self,
        }
    }

    /// Says what can be done if a call of a storm exceeded the store's own time limit.
    pub(crate) fn in_storm(self, calls: usize) -> Self {
        let reported = self.outcome.reason().unwrap_or_default();
        if speaks_of_locks(reported) {
            return self.followed_by(|| {
                format!(
                    "\n     {calls} tasks made calls at once, and the store's error speaks of locks: calls wait for each \
                     other. Lock the meters of a call in one order, and repeat calls that the database ends"
                )
            });
        }
        if !self.is_timeout {
            return self;
        }
        self.followed_by(|| {
            format!(
                "\n     a call exceeded the store's own time limit while {calls} tasks made calls at once: raise the store's \
                 time limit for the suite (less than 10 s)"
            )
        })
    }

    /// The outcome of the case.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome
    }
}

/// Whether an error of a database says that calls are in each other's way.
fn speaks_of_locks(reported: &str) -> bool {
    let reported = reported.to_ascii_lowercase();
    [
        "deadlock",
        "lock wait",
        "lock timeout",
        "locked",
        "serializ",
        "contend",
        "contention",
        "record has changed",
    ]
    .iter()
    .any(|word| reported.contains(word))
}

impl From<Outcome> for Failure {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, is_timeout: false }
    }
}

/// Any error ends the case, so `?` works on the errors of a store.
impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let is_timeout = of_store(&*error).is_some_and(|error| error.kind() == ErrorKind::Timeout);
        Self { is_timeout, ..Self::new(with_sources(&*error)) }
    }
}

/// The error of the store, if it is one.
fn of_store<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e StoreError> {
    match error.downcast_ref() {
        Some(CheckError::Store(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// The message of an error, followed by those of its sources that it does not contain.
pub(crate) fn with_sources(error: &dyn Error) -> String {
    let mut reported = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let source_told = source.to_string();
        if !reported.contains(&source_told) {
            reported = format!("{reported}: {source_told}");
        }
        next = source.source();
    }
    reported
}

/// The message of a panic.
pub(crate) fn panic_message(error: JoinError) -> String {
    if !error.is_panic() {
        return error.to_string();
    }
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}

/// The longest text that is easy to compare as a whole.
const GLANCE: usize = 160;

/// How two values differ: both values, or only the differing fields if there are many.
pub(crate) fn unequal(expected: &dyn Debug, found: &dyn Debug) -> String {
    let whole = format!("expected {expected:?}, found {found:?}");
    let [one, other] = [expected, found].map(|value| format!("{value:#?}"));
    let (lines, others): (Vec<_>, Vec<_>) = (one.lines().collect(), other.lines().collect());
    if whole.len() <= GLANCE || lines.len() != others.len() || !one.contains(": ") {
        return whole;
    }
    let pairs = lines.into_iter().zip(others).filter(|(line, other)| line != other);
    let reported = pairs.map(|(line, other)| {
        let [line, other] = [line, other].map(|line| line.trim().trim_end_matches(','));
        format!("expected {line}, found {other}")
    });
    reported.collect::<Vec<_>>().join("; ")
}

/// Fails the case with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::new(format!(
                "{} ({}:{})", format_args!($($message)+), file!(), line!()
            )));
        }
    };
}

/// Fails the case with both values unless they are equal.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        $crate::failure::ensure!(
            found == expected,
            "{}: {}",
            format_args!($($what)+),
            $crate::failure::unequal(expected, found)
        );
    }};
}

pub(crate) use {ensure, ensure_eq};

#[cfg(test)]
mod tests {
    use ratelimit_core::Timestamp;
    use ratelimit_core::store::Verdict;

    use super::*;

    #[test]
    fn a_longer_time_limit_is_no_advice_against_deadlocks() {
        let error = |message| StoreError::new("model", ErrorKind::Timeout, message);
        let reported = |message| {
            Failure::from(error(message)).in_storm(8).outcome.reason().unwrap_or_default().to_owned()
        };
        assert!(reported("no answer within 2s").contains("raise the store's time limit"));
        let of_locks = reported("no answer within 2s: Deadlock found when trying to get lock");
        assert!(of_locks.contains("speaks of locks") && !of_locks.contains("raise"), "{of_locks}");
    }

    #[test]
    fn only_differing_fields_are_reported() {
        let now = Timestamp::from_secs(1);
        let (fits_at, limit, remaining) = (Some(now), 10, 3);
        let one = Verdict {
            fits: true,
            limit,
            remaining,
            fits_at,
            reset_at: now,
            ready_at: now,
            receipt: ratelimit_core::store::Receipt::at(now),
        };
        let other = Verdict { remaining: 4, ..one };
        assert_eq!(unequal(&[one, one], &[one, other]), "expected remaining: 3, found remaining: 4");
        assert_eq!(unequal(&1, &2), "expected 1, found 2");
    }
}
