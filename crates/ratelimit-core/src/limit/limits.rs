//! Several limits that are checked together.

use std::sync::Arc;

use super::{Limit, LimitError};
use crate::MAX_CLAIMS;

/// One or more limits that are checked together on one key, all or nothing. Cheap to clone.
///
/// ```
/// use ratelimit_core::{Limit, Limits};
///
/// let limits = Limits::new(["10/s".parse()?, "120/min".parse()?, "240/h precision 1min".parse()?])?;
/// assert_eq!(limits.len(), 3);
///
/// let one: Limits = "10/s".parse::<Limit>()?.into();
/// assert_eq!(one.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(Arc<[Limit]>);

impl Limits {
    /// These limits together. Their order decides nothing.
    ///
    /// # Errors
    /// If there is none, if there are more than 64, or if two would count on one meter: same kind, same period,
    /// no different names.
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

impl From<Limit> for Limits {
    fn from(limit: Limit) -> Self {
        Self(Arc::new([limit]))
    }
}

impl std::ops::Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.0
    }
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
}
