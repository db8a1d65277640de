//! What a limit is built from, and the meter and the scope that follow from it.

use std::fmt::Write as _;
use std::time::Duration;

use super::algorithm::{Algorithm, Alignment};
use super::duration::nanos;
use super::{ban, calendar, duration};
use crate::LimitError;
use crate::bounds::{MAX_LOG_UNITS, MAX_UNITS, RENEWALS};
use crate::meter::{Bucket, Log, Meter, Window, check_period, check_units};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spec {
    pub(super) quota: u64,
    pub(super) period: Duration,
    pub(super) algorithm: Algorithm,
    pub(super) burst: Option<u64>,
    pub(super) immediate: Option<u64>,
    pub(super) step: Option<Duration>,
    pub(super) alignment: Alignment,
    pub(super) name: Option<Box<str>>,
    pub(super) calendar: Option<calendar::Calendar>,
}

/// Algorithms with the same options and the same form of scope.
#[derive(PartialEq, Eq)]
enum Family {
    Window,
    Log,
    Bucket,
    /// What is held, totals and bans: their quota is not for a period.
    WithoutRate,
}

impl Spec {
    pub(super) fn meter(&self) -> Result<Meter, LimitError> {
        self.check_options()?;
        let period = nanos(self.period);
        if period == 0 && self.algorithm != Algorithm::Total {
            return Err(LimitError::Zero { what: "period" });
        }
        let burst = self.burst.unwrap_or(self.quota);
        let window = |segment, carried, strict| {
            let offset = if let Alignment::Offset(offset) = self.alignment { nanos(offset) } else { 0 };
            Window::new(self.quota, segment, carried, strict, offset).map(Meter::Window)
        };
        match self.algorithm {
            Algorithm::FixedWindow if self.alignment == Alignment::FirstRequest => {
                Bucket::in_steps(self.quota, period, self.quota).map(Meter::Bucket)
            }
            Algorithm::FixedWindow => window(period, 0, false),
            Algorithm::SlidingWindow => window(period, 1, false),
            Algorithm::SegmentedWindow { precision, strict } => {
                let precision = nanos(precision);
                if precision == 0 || !period.is_multiple_of(precision) {
                    return Err(LimitError::PrecisionDoesNotDivide);
                }
                let segments = u32::try_from(period / precision).map_err(|_| LimitError::TooManySegments)?;
                window(precision, segments, strict)
            }
            Algorithm::SlidingLog => Log::new(self.quota, period).map(Meter::Log),
            Algorithm::Concurrency => {
                // A renewal adds units before it returns those that they replace.
                let most = MAX_LOG_UNITS / RENEWALS;
                if self.quota > most {
                    return Err(LimitError::TooLarge { what: "number of units at once", most });
                }
                Log::new(self.quota, period).map(Meter::Log)
            }
            Algorithm::TokenBucket if self.step.is_some() => {
                let units = self.units_of_step()?;
                let bucket = Bucket::in_steps(units, self.step_nanos(), burst)?;
                if burst < units {
                    return Err(LimitError::StepAboveBurst { units, burst });
                }
                Ok(Meter::Bucket(bucket))
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Bucket::new(self.quota, period, burst).map(Meter::Bucket)
            }
            Algorithm::LeakyQueue => {
                let immediate = self.immediate.unwrap_or(1);
                check_units("number of immediate units", immediate, burst)?;
                Ok(Meter::Bucket(Bucket::new(self.quota, period, burst)?.with_immediate(immediate)))
            }
            Algorithm::Total => Bucket::in_total(self.quota).map(Meter::Bucket),
            Algorithm::Ban { duration, factor, longest } => {
                // The log of the refusals has to be valid as well.
                Log::new(self.quota, period)?;
                ban::check(duration, factor, longest)?;
                ban::gate().map(Meter::Bucket)
            }
        }
    }

    /// Whether the algorithm has the options that are given.
    fn check_options(&self) -> Result<(), LimitError> {
        use Algorithm::{FixedWindow, LeakyQueue, TokenBucket};
        let is_other_window = self.is_window() && self.algorithm != FixedWindow;
        LimitError::check_suitable([
            (self.step.is_some() && self.algorithm != TokenBucket, "step", "a token bucket"),
            (self.immediate.is_some() && self.algorithm != LeakyQueue, "immediate", "a queue"),
            (
                self.burst.is_some() && self.family() != Family::Bucket,
                "burst",
                "a token bucket, leaky bucket or queue",
            ),
            (self.alignment != Alignment::Epoch && !self.is_window(), "an alignment", "a window"),
            (
                self.alignment == Alignment::FirstRequest && is_other_window,
                "the first request",
                "a fixed window",
            ),
        ])
    }

    pub(super) fn check_calendar(&self) -> Result<(), LimitError> {
        match &self.calendar {
            None if self.alignment == Alignment::Calendar => {
                Err(LimitError::Unsuitable { option: "this alignment", needs: "a period of the calendar" })
            }
            None => Ok(()),
            Some(_) if self.alignment != Alignment::Calendar => Err(LimitError::Unsuitable {
                option: "an alignment",
                needs: "a window of fixed length, not to a period of the calendar",
            }),
            Some(_) if self.algorithm != Algorithm::FixedWindow => Err(LimitError::Unsuitable {
                option: "another algorithm than a fixed window",
                needs: "a period of fixed length, not to one of the calendar",
            }),
            Some(calendar) => calendar.check(),
        }
    }

    fn step_nanos(&self) -> u64 {
        self.step.map_or(0, nanos)
    }

    /// How many units drain in a step.
    fn units_of_step(&self) -> Result<u64, LimitError> {
        let (step, period) = (self.step_nanos(), nanos(self.period));
        check_units("quota", self.quota, MAX_UNITS)?;
        check_period("period", period)?;
        if step == 0 {
            return Err(LimitError::Zero { what: "step" });
        }
        let units = u128::from(self.quota) * u128::from(step);
        let is_whole = units.is_multiple_of(u128::from(period));
        let units = u64::try_from(units / u128::from(period)).ok().filter(|units| is_whole && *units > 0);
        units.ok_or(LimitError::StepNotWhole)
    }

    /// The alignment with an offset shorter than a segment. Offsets that differ by whole segments are equal, so limits that
    /// count in the same windows share their meters.
    pub(super) fn reduced_alignment(&self) -> Alignment {
        let segment = match self.algorithm {
            Algorithm::SegmentedWindow { precision, .. } => precision,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue
            | Algorithm::Concurrency
            | Algorithm::Total
            | Algorithm::Ban { .. } => self.period,
        };
        match self.alignment {
            Alignment::Offset(offset) => match nanos(offset).checked_rem(nanos(segment)) {
                Some(0) if self.is_window() => Alignment::Epoch,
                Some(rest) => Alignment::Offset(Duration::from_nanos(rest)),
                None => self.alignment,
            },
            alignment => alignment,
        }
    }

    pub(super) fn is_ban(&self) -> bool {
        matches!(self.algorithm, Algorithm::Ban { .. })
    }

    fn is_window(&self) -> bool {
        self.family() == Family::Window
    }

    fn family(&self) -> Family {
        match self.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SegmentedWindow { .. } => {
                Family::Window
            }
            Algorithm::SlidingLog => Family::Log,
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue => Family::Bucket,
            Algorithm::Concurrency | Algorithm::Total | Algorithm::Ban { .. } => Family::WithoutRate,
        }
    }

    /// Everything but the quota that distinguishes one meter from another on the same key.
    pub(super) fn scope(&self) -> String {
        let period = duration::Text(self.period);
        let mut scope = self.name.as_deref().map(|name| format!("{name}=")).unwrap_or_default();
        if let Some(calendar) = &self.calendar {
            // Writing to a string does not fail.
            let _ = write!(scope, "{calendar}");
            return scope;
        }
        let kind = match self.algorithm {
            Algorithm::FixedWindow if self.alignment == Alignment::FirstRequest => "first",
            Algorithm::FixedWindow => "fixed",
            Algorithm::SlidingWindow => "sliding",
            Algorithm::SegmentedWindow { strict: false, .. } => "segmented",
            Algorithm::SegmentedWindow { strict: true, .. } => "strict",
            Algorithm::SlidingLog => "log",
            Algorithm::TokenBucket if self.step.is_some() => "steps",
            Algorithm::TokenBucket => "bucket",
            Algorithm::LeakyBucket => "leaky",
            Algorithm::LeakyQueue => "queue",
            Algorithm::Concurrency => "concurrency",
            Algorithm::Total => "total",
            Algorithm::Ban { .. } => ban::KIND,
        };
        scope.push_str(kind);
        let has_period = match self.family() {
            Family::Window | Family::Log => true,
            // A bucket's state is right for every rate, so its name is enough.
            Family::Bucket => self.name.is_none(),
            Family::WithoutRate => false,
        };
        // Writing to a string does not fail.
        if let Some(step) = self.step {
            let _ = write!(scope, ":{}", duration::Text(step));
        } else if has_period {
            let _ = write!(scope, ":{period}");
        }
        if let Algorithm::SegmentedWindow { precision, .. } = self.algorithm {
            let _ = write!(scope, "/{}", duration::Text(precision));
        }
        match self.alignment {
            Alignment::Epoch => {}
            Alignment::Offset(offset) => _ = write!(scope, "+{}", duration::Text(offset)),
            Alignment::Staggered => scope.push('~'),
            Alignment::FirstRequest | Alignment::Calendar => {}
        }
        scope
    }
}
