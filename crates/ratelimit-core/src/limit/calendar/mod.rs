//! Periods of the calendar: days, weeks, months, quarters and years of a time zone.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::ToSpan as _;
use jiff::civil::{Date, date};
use jiff::tz::TimeZone;

use crate::LimitError;
use crate::Timestamp;

/// A period of the calendar in a time zone, for [`Limit::calendar`](crate::Limit::calendar).
///
/// A window begins at midnight of its first day and ends at midnight of the first day of the next window, by the clocks of
/// the zone. So a day on which clocks change is shorter or longer than 24 hours, by an hour in nearly every zone.
///
/// ```
/// use ratelimit_core::{Calendar, Limit};
///
/// let text: Limit = "1000/month in Europe/Berlin from day 15".parse()?;
/// let month = Calendar::months().from_day(15).in_zone("Europe/Berlin")?;
/// assert_eq!(text, Limit::calendar(1_000, month).build()?);
///
/// let quarter: Limit = "1000/quarter".parse()?; // by UTC
/// assert_eq!(quarter, Limit::calendar(1_000, Calendar::quarters()).build()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Calendar {
    unit: Unit,
    /// The day of the month on which months begin.
    first_day: i8,
    zone: TimeZone,
    /// The name of the zone; empty for UTC.
    zone_name: Arc<str>,
    /// The latest window, so that most checks need no arithmetic on dates.
    latest: Arc<Mutex<Option<Arc<CalendarWindow>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

/// The window that contains an instant. Begin and end in seconds since the epoch.
#[derive(Debug)]
pub(super) struct CalendarWindow {
    pub(super) begin: u64,
    /// Exclusive.
    pub(super) end: u64,
    /// Identifies the window among those of its calendar: its first day.
    pub(super) first_day: String,
}

const FIRST_DAY_OF_OTHERS: LimitError =
    LimitError::Unsuitable { option: "a first day", needs: "a calendar month" };

/// The words for a period, and how many days it has at most.
const WORDS: [(Unit, [&str; 2], u64); 5] = [
    (Unit::Day, ["day", "days"], 1),
    (Unit::Week, ["week", "weeks"], 7),
    (Unit::Month, ["month", "months"], 31),
    (Unit::Quarter, ["quarter", "quarters"], 92),
    (Unit::Year, ["year", "years"], 366),
];

impl Calendar {
    /// Days.
    pub fn days() -> Self {
        Self::of(Unit::Day)
    }

    /// Weeks from Monday to Sunday.
    pub fn weeks() -> Self {
        Self::of(Unit::Week)
    }

    /// Months, from their first day unless you set [another one](Self::from_day).
    pub fn months() -> Self {
        Self::of(Unit::Month)
    }

    /// Quarters, from the first of January, April, July and October.
    pub fn quarters() -> Self {
        Self::of(Unit::Quarter)
    }

    /// Years from the first of January.
    pub fn years() -> Self {
        Self::of(Unit::Year)
    }

    fn of(unit: Unit) -> Self {
        Self { unit, first_day: 1, zone: TimeZone::UTC, zone_name: "".into(), latest: Arc::default() }
    }

    /// Uses the time zone with this name of the IANA database, such as `Europe/Berlin`, instead of UTC.
    ///
    /// The database is that of the machine; on Windows, which has none, one is compiled into your program. To compile one
    /// in on every platform, enable the feature `tzdb-bundle-always` of the crate `jiff`. `UTC` and `Etc/UTC` need no database.
    ///
    /// # Errors
    /// If the database has no such zone.
    pub fn in_zone(self, name: &str) -> Result<Self, LimitError> {
        if ["UTC", "Etc/UTC"].iter().any(|utc| name.eq_ignore_ascii_case(utc)) {
            return Ok(Self { zone_name: "".into(), zone: TimeZone::UTC, latest: Arc::default(), ..self });
        }
        let zone = TimeZone::get(name).map_err(|_| LimitError::UnknownZone)?;
        let zone_name = zone.iana_name().unwrap_or(name).into();
        Ok(Self { zone_name, zone, latest: Arc::default(), ..self })
    }

    /// Begins months on this day instead of the first, as billing periods do. In a calendar month without this day, the new
    /// period begins on the last day of that month.
    ///
    /// [`LimitBuilder::build`](crate::LimitBuilder::build) returns an error if the day is not between 1 and 31, or if it
    /// is not 1 and the period is not a month.
    #[must_use]
    pub fn from_day(self, day: u8) -> Self {
        Self { first_day: i8::try_from(day).unwrap_or(0), latest: Arc::default(), ..self }
    }

    pub(super) fn check(&self) -> Result<(), LimitError> {
        match self.first_day {
            1 => Ok(()),
            2..=31 if self.unit == Unit::Month => Ok(()),
            2..=31 => Err(FIRST_DAY_OF_OTHERS),
            _ => Err(LimitError::BadFirstDay),
        }
    }

    /// The calendar period that these parts of a text describe; `None` if they describe a period of fixed length.
    pub(super) fn named(
        word: &str,
        zone: Option<&str>,
        first_day: Option<u64>,
    ) -> Option<Result<Self, LimitError>> {
        let is_it = |spelling: &&str| word.eq_ignore_ascii_case(spelling);
        let (unit, ..) = WORDS.iter().find(|(_, spellings, _)| spellings.iter().any(is_it))?;
        if zone.is_none() && first_day.is_none() && matches!(unit, Unit::Day | Unit::Week) {
            return None;
        }
        if first_day.is_some() && *unit != Unit::Month {
            return Some(Err(FIRST_DAY_OF_OTHERS));
        }
        let day = first_day.map_or(1, |day| u8::try_from(day).unwrap_or(0));
        let calendar = Self::of(*unit).from_day(day);
        Some(zone.map_or(Ok(calendar.clone()), |zone| calendar.in_zone(zone)))
    }

    fn word(&self) -> &'static str {
        self.words().1[0]
    }

    /// The longest that a window can be if no clocks change in it.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_secs(self.words().2 * 24 * 3_600)
    }

    fn words(&self) -> &'static (Unit, [&'static str; 2], u64) {
        WORDS.iter().find(|(unit, ..)| *unit == self.unit).unwrap_or(&WORDS[0])
    }

    /// The window that contains `now`.
    pub(super) fn window(&self, now: Timestamp) -> Arc<CalendarWindow> {
        let now = now.as_nanos() / 1_000_000_000;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some(window) if window.begin <= now && now < window.end => window.clone(),
            _ => {
                let window = Arc::new(self.find(now));
                *latest = Some(window.clone());
                window
            }
        }
    }

    fn find(&self, now: u64) -> CalendarWindow {
        let seconds = i64::try_from(now).unwrap_or(i64::MAX);
        let local = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        let mut first = self.first_day_before(local.to_zoned_datetime(self.zone.clone()).date());
        let (mut begin, mut end) = (self.midnight(first), self.midnight(self.next(first)));
        // If clocks are set back across midnight, they show the last day again after the next window has begun.
        while end <= now && begin < end {
            first = self.next(first);
            (begin, end) = (end, self.midnight(self.next(first)));
        }
        CalendarWindow { begin, end, first_day: first.to_string() }
    }

    /// The first day of the window that contains `day`.
    fn first_day_before(&self, day: Date) -> Date {
        match self.unit {
            Unit::Day => day,
            Unit::Week => {
                let days = i64::from(day.weekday().to_monday_zero_offset());
                day.saturating_sub(days.days())
            }
            Unit::Month => {
                let this = self.month(day);
                if this <= day { this } else { self.month(day.first_of_month().saturating_sub(1.day())) }
            }
            Unit::Quarter => date(day.year(), (day.month() - 1) / 3 * 3 + 1, 1),
            Unit::Year => day.first_of_year(),
        }
    }

    /// The first day of the window that begins in the calendar month of `day`.
    fn month(&self, day: Date) -> Date {
        date(day.year(), day.month(), self.first_day.clamp(1, day.days_in_month()))
    }

    /// The first day of the window after the one that begins on `first`.
    fn next(&self, first: Date) -> Date {
        match self.unit {
            Unit::Day => first.saturating_add(1.day()),
            Unit::Week => first.saturating_add(7.days()),
            Unit::Month => self.month(first.first_of_month().saturating_add(1.month())),
            Unit::Quarter => first.saturating_add(3.months()),
            Unit::Year => first.saturating_add(1.year()),
        }
    }

    /// The second at which `day` begins; if clocks skip midnight, the first after it. Before the epoch, the epoch.
    fn midnight(&self, day: Date) -> u64 {
        let seconds = day.to_zoned_datetime(self.zone.clone()).map(|zoned| zoned.timestamp().as_second());
        seconds.map_or(u64::MAX, |seconds| u64::try_from(seconds).unwrap_or(0))
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, self.first_day, &self.zone_name) == (other.unit, other.first_day, &other.zone_name)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.unit, self.first_day, &self.zone_name).hash(state);
    }
}

impl fmt::Display for Calendar {
    /// Prints the period as in the text of a limit: `month in Europe/Berlin from day 15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match &*self.zone_name {
            "" if matches!(self.unit, Unit::Day | Unit::Week) => f.write_str(" in UTC")?,
            "" => {}
            name => write!(f, " in {name}")?,
        }
        if self.first_day != 1 { write!(f, " from day {}", self.first_day) } else { Ok(()) }
    }
}

#[cfg(all(test, not(miri)))] // under Miri the library of calendars knows no zones
mod tests;
