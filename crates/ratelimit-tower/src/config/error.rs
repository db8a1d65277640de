//! Errors in a configuration file.

use std::error::Error;
use std::fmt;
use std::io;

use super::document::Problem;
use super::watched::Watched;

/// Why a configuration file cannot be used: the file, the line, the field, and the problem.
///
/// ```
/// use ratelimit_tower::config::Config;
///
/// let error = Config::from_toml("policies = []\nshadows = true", "limits.toml").unwrap_err();
/// assert!(error.to_string().starts_with("limits.toml:2: shadows: unknown field `shadows`"), "{error}");
/// assert_eq!((error.line(), error.field()), (Some(2), Some("shadows")));
/// ```
pub struct ConfigError {
    file: String,
    cause: Cause,
}

enum Cause {
    /// The file could not be read.
    Unreadable(io::Error),
    /// It could be read, but has this problem.
    Wrong(Problem),
}

impl ConfigError {
    pub(super) fn unreadable(file: impl Into<String>, error: io::Error) -> Self {
        Self { file: file.into(), cause: Cause::Unreadable(error) }
    }

    pub(super) fn wrong(file: impl Into<String>, problem: Problem) -> Self {
        Self { file: file.into(), cause: Cause::Wrong(problem) }
    }

    /// Takes out the file of a list because of which the configuration cannot be used.
    pub(super) fn take_failed_list(&mut self) -> Option<Watched> {
        match &mut self.cause {
            Cause::Unreadable(_) => None,
            Cause::Wrong(problem) => problem.failed_list.take().map(|list| *list),
        }
    }

    /// Whether the file names a kind of key that is neither built in nor [provided](super::Provided::key) by the program. A
    /// tool that reads files of other programs can say how to provide it.
    pub fn is_unknown_key(&self) -> bool {
        matches!(&self.cause, Cause::Wrong(problem) if problem.is_unknown_key)
    }

    /// The file's name, as you passed it. For a list of clients that was read again, the path of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1, if the problem is in the file's content.
    pub fn line(&self) -> Option<usize> {
        match &self.cause {
            Cause::Unreadable(_) => None,
            Cause::Wrong(problem) => problem.location.as_ref().map(|location| location.line),
        }
    }

    /// The field, such as `policies[2].limit`; elements are counted from 1.
    pub fn field(&self) -> Option<&str> {
        match &self.cause {
            Cause::Unreadable(_) => None,
            Cause::Wrong(problem) => problem
                .location
                .as_ref()
                .map(|location| location.field.as_str())
                .filter(|field| !field.is_empty()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match &self.cause {
            Cause::Unreadable(error) => write!(f, ": cannot be read: {error}"),
            Cause::Wrong(problem) => {
                if let Some(location) = &problem.location {
                    write!(f, ":{}", location.line)?;
                }
                write!(f, ": {problem}")
            }
        }
    }
}

impl fmt::Debug for ConfigError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

/// The text contains that of the cause, so that is no source.
impl Error for ConfigError {}
