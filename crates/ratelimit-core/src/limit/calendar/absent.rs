//! Replaces periods of the calendar if the feature `calendar` is disabled: there are none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::LimitError;
use crate::Timestamp;

/// A type without values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Calendar {}

pub(super) struct CalendarWindow {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) first_day: String,
}

impl Calendar {
    pub(super) fn named(_: &str, zone: Option<&str>, _: Option<u64>) -> Option<Result<Self, LimitError>> {
        let option =
            "a time zone (of which this program has none: enable the feature `calendar` of ratelimit-core)";
        zone.map(|_| Err(LimitError::Unsuitable { option, needs: "a period of the calendar" }))
    }

    pub(super) fn check(&self) -> Result<(), LimitError> {
        match *self {}
    }

    pub(super) fn longest(&self) -> Duration {
        match *self {}
    }

    pub(super) fn window(&self, _now: Timestamp) -> Arc<CalendarWindow> {
        match *self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
