//! Why a policy or plan cannot be created.

use std::error::Error;
use std::fmt;

use ratelimit_core::store::MAX_CLAIMS;

/// Why a policy or plan cannot be created.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A name is empty, too long, or has characters other than letters, digits, `.`, `_` and `-`.
    BadName(String),
    /// Two policies have the same name.
    SameName(String),
    /// There are no policies.
    NoPolicies,
    /// The policies have more limits than one check can hold.
    TooManyLimits(usize),
    /// The fixed cost of a policy never fits one of its limits.
    NeverFits {
        /// The policy's name.
        policy: String,
        /// What does not fit, and what to do.
        problem: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) => {
                write!(
                    f,
                    "a policy or plan cannot be called {name:?}: a name is 1 to 64 letters, digits, '.', '_' or '-'"
                )
            }
            Self::SameName(name) => {
                write!(
                    f,
                    "two policies are called {name:?}: they would count together, so give them different names"
                )
            }
            Self::NoPolicies => f.write_str("there is no policy: to limit nothing, leave out the layer"),
            Self::TooManyLimits(limits) => {
                write!(
                    f,
                    "the policies have {limits} limits together: at most {MAX_CLAIMS} can be checked at once"
                )
            }
            Self::NeverFits { policy, problem } => {
                write!(f, "the cost of the policy {policy:?} is too high: {problem}")
            }
        }
    }
}

impl fmt::Debug for PolicyError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

impl Error for PolicyError {}
