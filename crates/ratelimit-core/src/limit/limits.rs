//! Several limits that are checked together.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use super::parse_error::{Expected, SEPARATOR, WhichLimit};
use super::{Limit, ParseLimitError, text};
use crate::{LimitError, MAX_CLAIMS};

/// One or more limits that are checked together on one key, all or nothing. Cheap to clone.
///
/// As text, separate them with `;`, or write each on a line of its own:
///
/// ```
/// use ratelimit_core::{Limit, Limits};
///
/// let limits: Limits = "10/s; 120/min; 240/h precision 1min".parse()?;
/// assert_eq!(limits.len(), 3);
/// assert_eq!(limits.to_string(), "10/s; 120/min; 240/h precision 1min");
///
/// let built = Limits::new(["10/s".parse()?, "120/min".parse()?, "240/h precision 1min".parse()?])?;
/// assert_eq!(built, limits);
///
/// let one: Limits = "10/s".parse::<Limit>()?.into();
/// assert_eq!(one, "10/s".parse()?);
///
/// let error = "10/s; 120/fortnight".parse::<Limits>().unwrap_err();
/// assert!(error.to_string().starts_with("cannot read limit 2 of"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// There are no limits that admit everything: each check would ask the store in vain, and its decision could name no limit.
/// For a plan that is not limited, keep an `Option<Limits>`, and check nothing if it is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(Arc<[Limit]>);

impl Limits {
    /// Combines these limits. Their order does not affect which requests are admitted;
    /// [`LimitStatus::index`](crate::LimitStatus::index) follows it.
    ///
    /// # Errors
    /// If there are no limits, if there are more than 64, or if two would count on one meter: they have the same
    /// [scope](Limit::scope).
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, LimitError> {
        let limits: Vec<Limit> = limits.into_iter().collect();
        if limits.is_empty() {
            return Err(LimitError::NoLimits);
        }
        if limits.len() > MAX_CLAIMS {
            return Err(LimitError::TooManyLimits);
        }
        for (index, limit) in limits.iter().enumerate() {
            if limits[..index].iter().any(|earlier| earlier.scope() == limit.scope()) {
                return Err(LimitError::SameMeterTwice);
            }
        }
        Ok(Self(limits.into()))
    }
}

impl Limits {
    /// Whether any of them [depends on the time](Limit::depends_on_time).
    #[inline]
    pub(crate) fn depend_on_time(&self) -> bool {
        self.iter().any(Limit::depends_on_time)
    }

    /// These limits, each changed in the same way.
    pub(crate) fn map(&self, change: impl FnMut(&Limit) -> Limit) -> Self {
        Self(self.iter().map(change).collect())
    }

    /// Whether an admitted request may have to wait for its turn.
    pub(crate) fn have_queues(&self) -> bool {
        self.iter().any(Limit::is_queue)
    }

    /// No limits, for a limiter whose requests all have their own.
    pub(crate) fn none() -> Self {
        Self(Arc::new([]))
    }
}

/// Limits for a [`RateLimiter`](crate::RateLimiter): [`Limits`], or a single [`Limit`].
///
/// A text is not one, because it may be wrong. Parse it first, which returns an error in that case:
///
/// ```compile_fail
/// # fn example(store: impl ratelimit_core::CounterStore) {
/// let limiter = ratelimit_core::RateLimiter::new(store, "10/s; 1000/h");
/// # }
/// ```
///
/// ```
/// # fn example(store: impl ratelimit_core::CounterStore) -> Result<(), ratelimit_core::ParseLimitError> {
/// use ratelimit_core::{Limits, RateLimiter};
///
/// let limiter = RateLimiter::new(store, "10/s; 1000/h".parse::<Limits>()?);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit",
    label = "not a limit",
    note = "parse a text: `\"10/s; 1000/h\".parse::<Limits>()?`"
)]
pub trait IntoLimits {
    /// The limits.
    fn into_limits(self) -> Limits;
}

impl IntoLimits for Limits {
    fn into_limits(self) -> Limits {
        self
    }
}

impl IntoLimits for Limit {
    fn into_limits(self) -> Limits {
        self.into()
    }
}

impl From<Limit> for Limits {
    fn from(limit: Limit) -> Self {
        Self(Arc::new([limit]))
    }
}

impl From<Limits> for Cow<'_, Limits> {
    fn from(limits: Limits) -> Self {
        Self::Owned(limits)
    }
}

impl From<Limit> for Cow<'_, Limits> {
    fn from(limit: Limit) -> Self {
        Self::Owned(limit.into())
    }
}

impl<'l> From<&'l Limits> for Cow<'l, Limits> {
    fn from(limits: &'l Limits) -> Self {
        Self::Borrowed(limits)
    }
}

impl std::ops::Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.0
    }
}

impl fmt::Display for Limits {
    /// Prints the text that parses back as these limits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(index, limit)| match index {
            0 => write!(f, "{limit}"),
            _ => write!(f, "{SEPARATOR} {limit}"),
        })
    }
}

impl FromStr for Limits {
    type Err = ParseLimitError;

    /// Parses limits that are separated by `;` or by line breaks. Empty lines are ignored. If there is no limit before or
    /// after a `;`, that is an error.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = parts(text);
        let is_alone = parts.len() == 1;
        let place = |index| if is_alone { WhichLimit::Alone } else { WhichLimit::Nth(index) };
        let read = |(index, part)| text::read(text, part, place(index));
        let limits = parts.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        Self::new(limits).map_err(|error| ParseLimitError {
            text: text.to_owned(),
            end: text.len(),
            position: 0,
            place: WhichLimit::Together,
            expected: Expected::Valid(error),
        })
    }
}

impl TryFrom<&str> for Limits {
    type Error = ParseLimitError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The ranges of the limits in a text: lines that are not empty, and what is between separators even if that is empty.
fn parts(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for piece in text.split(SEPARATOR) {
        let before = parts.len();
        let mut at = start;
        for line in piece.split('\n') {
            if !line.trim().is_empty() {
                parts.push(at..at + line.len());
            }
            at += line.len() + 1;
        }
        let end = start + piece.len();
        if parts.len() == before {
            parts.push(start..end);
        }
        start = end + SEPARATOR.len_utf8();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(texts: &[&str]) -> Result<Limits, LimitError> {
        Limits::new(texts.iter().map(|text| text.parse().unwrap()))
    }

    #[test]
    fn limits_that_would_count_together_need_names() {
        assert_eq!(limits(&[]), Err(LimitError::NoLimits));
        assert_eq!(limits(&["10/s", "20/s"]), Err(LimitError::SameMeterTwice));
        assert_eq!(limits(&["10/s", "600/min", "60/60s"]), Err(LimitError::SameMeterTwice));
        assert_eq!(limits(&["1/s name a", "1/min name a"]).unwrap().len(), 2); // windows of other lengths
        assert_eq!(limits(&["1/s burst 1 name a", "1/min burst 1 name a"]), Err(LimitError::SameMeterTwice));
        assert!(
            limits(&[
                "10/s",
                "20/s name b",
                "10/s fixed",
                "10/s log",
                "10/s bucket",
                "10/s leaky",
                "10/s queue"
            ])
            .is_ok()
        );
        assert!(limits(&["10/s", "10/s staggered", "10/s offset 1ms"]).is_ok());
    }

    #[test]
    fn limits_are_read_as_they_are_printed() {
        let check = |text: &str, printed: &str| {
            let limits: Limits = text.parse().unwrap();
            assert_eq!(limits.to_string(), printed, "{text:?}");
            assert_eq!(Limits::try_from(printed).unwrap(), limits);
        };
        check("10/s", "10/s");
        check("  10/s;1000 per h burst 5 ; 3/min log name a ", "10/s; 1000/h burst 5; 3/min log name a");
        check("\n10/s\n\n1000/h\r\n", "10/s; 1000/h");
        check("10/s; 1000/h\n3/min log", "10/s; 1000/h; 3/min log");
    }

    #[test]
    fn errors_name_the_limit_and_its_position_in_the_whole_text() {
        #[track_caller]
        fn refuse(text: &str, position: usize, message: &str) {
            let error = text.parse::<Limits>().unwrap_err();
            assert_eq!((error.to_string().as_str(), error.position()), (message, position));
        }
        let units = "expected a number of units at character";
        refuse("", 0, &format!(r#"cannot read the limit "": {units} 1, found "the end""#));
        refuse(
            "10/s; ",
            6,
            r#"cannot read limit 2 of "10/s; ": expected another limit after the ';', or no ';', at character 7, found "the end""#,
        );
        refuse("10/s;;5/h", 5, &format!(r#"cannot read limit 2 of "10/s;;5/h": {units} 6, found ";""#));
        refuse(";10/s", 0, &format!(r#"cannot read limit 1 of ";10/s": {units} 1, found ";""#));
        refuse("µ; 1/s", 0, &format!(r#"cannot read limit 1 of "µ; 1/s": {units} 1, found "µ""#));
        refuse(
            "10/s; 5; 1/h",
            7,
            r#"cannot read limit 2 of "10/s; 5; 1/h": expected '/', 'per', 'at once' or 'in total' at character 8, found ";""#,
        );
        refuse(
            "10/s name µ; 5/x",
            0,
            r#"limit 1 of "10/s name µ; 5/x" is not possible: a name is 1 to 64 letters, digits, '.', '_' or '-'"#,
        );
        refuse(
            "10/s; 0/h log",
            6,
            r#"limit 2 of "10/s; 0/h log" is not possible: the quota must be at least 1, not 0"#,
        );
        let together = "10/s; 20/s".parse::<Limits>().unwrap_err();
        assert_eq!(together.limit_error(), Some(LimitError::SameMeterTwice));
        assert!(
            together.to_string().starts_with(r#"the limits "10/s; 20/s" are not possible together: two"#)
        );
        let many = vec!["1/s log"; MAX_CLAIMS + 1].join(";");
        assert_eq!(many.parse::<Limits>().unwrap_err().limit_error(), Some(LimitError::TooManyLimits));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([1-9]/(s|h)|[ ;\nµ]|\\PC){0,12}") {
            match text.parse::<Limits>() {
                Ok(limits) => assert_eq!(limits.to_string().parse(), Ok(limits)),
                Err(error) => assert!(error.position() <= text.len() && !error.to_string().is_empty()),
            }
        }
    }
}
