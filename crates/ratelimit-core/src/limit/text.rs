//! Parses and prints limits as text.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use super::calendar::Calendar;
use super::duration::{self, Text};
use super::parse_error::{Expected, WhichLimit};
use super::{Algorithm, Alignment, DEFAULT_LEASE, Limit, LimitBuilder, ParseLimitError, hints};
use crate::LimitError;

impl fmt::Display for Limit {
    /// Prints a short text that parses back as this limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        if let Some(calendar) = &spec.calendar {
            write!(f, "{}/{calendar}", spec.quota)?;
            return spec.name.as_ref().map_or(Ok(()), |name| write!(f, " name {name}"));
        }
        match spec.algorithm {
            Algorithm::Concurrency => write!(f, "{} at once", spec.quota)?,
            Algorithm::Total => write!(f, "{} in total", spec.quota)?,
            Algorithm::Ban { duration, .. } => {
                write!(f, "ban {} after {} in {}", Text(duration), spec.quota, Text(spec.period))?;
            }
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SegmentedWindow { .. }
            | Algorithm::SlidingLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue => write!(f, "{}/{}", spec.quota, Text(spec.period).as_period())?,
        }
        match spec.algorithm {
            Algorithm::FixedWindow if spec.alignment == Alignment::FirstRequest => {}
            Algorithm::FixedWindow => f.write_str(" fixed")?,
            Algorithm::SlidingWindow | Algorithm::Total => {}
            Algorithm::SegmentedWindow { precision, strict } => {
                write!(f, " precision {}", Text(precision))?;
                f.write_str(if strict { " strict" } else { "" })?;
            }
            Algorithm::SlidingLog => f.write_str(" log")?,
            Algorithm::TokenBucket if spec.burst.is_none() && spec.step.is_none() => {
                f.write_str(" bucket")?;
            }
            Algorithm::TokenBucket => {}
            Algorithm::LeakyBucket => f.write_str(" leaky")?,
            Algorithm::LeakyQueue => f.write_str(" queue")?,
            Algorithm::Concurrency if spec.period == DEFAULT_LEASE => {}
            Algorithm::Concurrency => write!(f, " lease {}", Text(spec.period))?,
            Algorithm::Ban { factor: 1, duration, longest } if longest == duration => {}
            Algorithm::Ban { factor, longest, .. } => write!(f, " growing {factor} up to {}", Text(longest))?,
        }
        if let Some(burst) = spec.burst {
            write!(f, " burst {burst}")?;
        }
        if let Some(immediate) = spec.immediate {
            write!(f, " immediate {immediate}")?;
        }
        if let Some(step) = spec.step {
            write!(f, " step {}", Text(step))?;
        }
        match spec.alignment {
            Alignment::FirstRequest => f.write_str(" from first request")?,
            Alignment::Epoch | Alignment::Calendar => {}
            Alignment::Offset(offset) => write!(f, " offset {}", Text(offset))?,
            Alignment::Staggered => f.write_str(" staggered")?,
        }
        if let Some(name) = &spec.name {
            write!(f, " name {name}")?;
        }
        Ok(())
    }
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text, 0..text.len(), WhichLimit::Alone)
    }
}

/// Parses the limit in this part of `text`.
pub(super) fn read(text: &str, part: Range<usize>, place: WhichLimit) -> Result<Limit, ParseLimitError> {
    let Range { start, end } = part;
    let mut reader = Reader { text: &text[..end], position: start };
    reader.skip_space();
    let start = reader.position;
    if start == end && end == text.len() && matches!(place, WhichLimit::Nth(1..)) {
        let expected = Expected::Text("another limit after the ';', or no ';',");
        return Err(ParseLimitError { text: text.to_owned(), end, position: start, place, expected });
    }
    let built = reader.limit().and_then(|builder| builder.build().map_err(|error| (start, error.into())));
    built.map_err(|(position, expected)| ParseLimitError {
        text: text.to_owned(),
        end,
        position,
        place,
        expected,
    })
}

impl From<LimitError> for Expected {
    fn from(error: LimitError) -> Self {
        Self::Valid(error)
    }
}

type Stopped = (usize, Expected);

const OPTIONS: &str = "fixed, sliding, log, bucket, gcra, leaky, queue, burst NUMBER, immediate NUMBER, step DURATION, \
     precision DURATION, strict, staggered, offset DURATION, name WORD, lease DURATION, in ZONE, from day NUMBER or from first request";

/// Periods without a fixed length.
const OF_CALENDAR: [&str; 6] = ["month", "months", "quarter", "quarters", "year", "years"];

struct Reader<'a> {
    text: &'a str,
    position: usize,
}

/// The options after the rate, in any order.
#[derive(Default)]
struct Options {
    algorithm: Option<Algorithm>,
    burst: Option<u64>,
    immediate: Option<u64>,
    step: Option<Duration>,
    precision: Option<Duration>,
    lease: Option<Duration>,
    strict: bool,
    alignment: Option<Alignment>,
    name: Option<String>,
    zone: Option<String>,
    first_day: Option<u64>,
}

/// What follows the `/`: a word, and its length if it has one.
struct Period<'a> {
    word: &'a str,
    length: Option<Duration>,
}

impl<'a> Reader<'a> {
    fn limit(&mut self) -> Result<LimitBuilder, Stopped> {
        let start = self.position;
        if self.word_if("ban").is_some() {
            return self.ban();
        }
        let quota = self.number("a number of units")?;
        self.skip_space();
        let mut options = Options::default();
        let period = if self.word_if("at").is_some() {
            self.word_if("once").ok_or_else(|| self.expected("'once'"))?;
            options.algorithm = Some(Algorithm::Concurrency);
            Period { word: "", length: Some(DEFAULT_LEASE) }
        } else if self.word_if("in").is_some() {
            self.word_if("total").ok_or_else(|| self.expected("'total'"))?;
            options.algorithm = Some(Algorithm::Total);
            Period { word: "", length: Some(Duration::ZERO) }
        } else if self.take("/") || self.word_if("per").is_some() {
            self.period()?
        } else {
            let hint = hints::after_quota(self.rest());
            return Err(self.expected(hint.unwrap_or("'/', 'per', 'at once' or 'in total'")));
        };
        while let Some((at, word)) = self.word() {
            self.option(word, &mut options).map_err(|stopped| {
                let (before, hint) = hints::option(word).unwrap_or((0, OPTIONS));
                stopped.unwrap_or((at + before, Expected::Text(hint)))
            })?;
        }
        options.builder(quota, &period).map_err(|error| (start, error.into()))
    }

    /// Parses a ban, after its first word.
    fn ban(&mut self) -> Result<LimitBuilder, Stopped> {
        let duration = self.duration()?;
        self.word_if("after").ok_or_else(|| self.expected("'after' and a number of refusals"))?;
        let refusals = self.number_alone("a number of refusals")?;
        self.word_if("in").ok_or_else(|| self.expected("'in' and a length of time"))?;
        let mut builder = Limit::ban(refusals, self.duration()?, duration);
        if self.word_if("growing").is_some() {
            let at = self.position;
            let factor = self.number_alone("a factor")?;
            let factor = u32::try_from(factor).map_err(|_| (at, Expected::Text("a smaller factor")))?;
            let up_to = self.word_if("up").and_then(|()| self.word_if("to"));
            up_to.ok_or_else(|| self.expected("'up to' and a length of time"))?;
            builder = builder.growing(factor, self.duration()?);
        }
        if self.word_if("name").is_some() {
            let (_, name) = self.word().ok_or_else(|| self.expected("a name"))?;
            builder = builder.name(name);
        }
        match self.word() {
            None => Ok(builder),
            Some((at, _)) => Err((at, Expected::Text("growing NUMBER up to DURATION, or name WORD"))),
        }
    }

    /// Parses one option. The error `None` means that `word` is not an option, or was given before.
    fn option(&mut self, word: &str, options: &mut Options) -> Result<(), Option<Stopped>> {
        fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Option<Stopped>> {
            if place.is_some() {
                return Err(None);
            }
            *place = Some(value);
            Ok(())
        }
        match &*word.to_ascii_lowercase() {
            "fixed" => once(&mut options.algorithm, Algorithm::FixedWindow),
            "sliding" => once(&mut options.algorithm, Algorithm::SlidingWindow),
            "log" => once(&mut options.algorithm, Algorithm::SlidingLog),
            "bucket" | "gcra" => once(&mut options.algorithm, Algorithm::TokenBucket),
            "leaky" => once(&mut options.algorithm, Algorithm::LeakyBucket),
            "queue" => once(&mut options.algorithm, Algorithm::LeakyQueue),
            "burst" => once(&mut options.burst, self.number_alone("a number of units")?),
            "immediate" => once(&mut options.immediate, self.number_alone("a number of units")?),
            "step" => once(&mut options.step, self.duration()?),
            "lease" => once(&mut options.lease, self.duration()?),
            "precision" => once(&mut options.precision, self.duration()?),
            "offset" => once(&mut options.alignment, Alignment::Offset(self.duration()?)),
            "staggered" => once(&mut options.alignment, Alignment::Staggered),
            "strict" if !options.strict => {
                options.strict = true;
                Ok(())
            }
            "in" => {
                let (_, zone) =
                    self.word().ok_or_else(|| self.expected("a time zone, such as Europe/Berlin"))?;
                once(&mut options.zone, zone.to_owned())
            }
            "from" => {
                if self.word_if("first").is_some() {
                    self.word_if("request").ok_or_else(|| self.expected("'request'"))?;
                    return once(&mut options.alignment, Alignment::FirstRequest);
                }
                self.word_if("day")
                    .ok_or_else(|| self.expected("'day' and its number, or 'first request'"))?;
                once(&mut options.first_day, self.number_alone("the number of a day of the month")?)
            }
            "name" => {
                let (_, name) = self.word().ok_or_else(|| self.expected("a name"))?;
                once(&mut options.name, name.to_owned())
            }
            _ => Err(None),
        }
    }

    /// Parses a unit of time, with or without a number in front, or a period of the calendar.
    fn period(&mut self) -> Result<Period<'a>, Stopped> {
        self.skip_space();
        if self.rest().starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(Period { word: "", length: Some(self.duration()?) });
        }
        let start = self.position;
        let word = self.letters();
        if OF_CALENDAR.iter().any(|it| word.eq_ignore_ascii_case(it)) {
            let needs = "another unit of time: months, quarters and years need the feature `calendar` of ratelimit-core";
            return match cfg!(feature = "calendar") {
                true => Ok(Period { word, length: None }),
                false => Err((start, Expected::Text(needs))),
            };
        }
        self.position = start;
        Ok(Period { word, length: Some(Duration::from_nanos(self.unit()?)) })
    }

    /// The letters that follow.
    fn letters(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    fn duration(&mut self) -> Result<Duration, Stopped> {
        let count = self.number("a length of time, such as 15min")?;
        let start = self.position;
        let unit = self.unit()?;
        let nanos = count.checked_mul(unit).ok_or((start, Expected::Text("a shorter time")))?;
        Ok(Duration::from_nanos(nanos))
    }

    fn unit(&mut self) -> Result<u64, Stopped> {
        self.skip_space();
        let start = self.position;
        let word = self.letters();
        let expected = match OF_CALENDAR.iter().any(|it| word.eq_ignore_ascii_case(it)) {
            true => "a unit of time; month, quarter and year stand without a number",
            false => hints::unit(word).unwrap_or("a unit of time: ns, us, ms, s, min, h, d or w"),
        };
        duration::unit(word).ok_or((start, Expected::Text(expected)))
    }

    /// Parses a number that is a word of its own.
    fn number_alone(&mut self, what: &'static str) -> Result<u64, Stopped> {
        let number = self.number(what)?;
        let next = self.rest().chars().next().filter(|next| !next.is_whitespace());
        match next {
            Some(',') => Err(self.expected(hints::BETWEEN_LIMITS)),
            Some(_) => Err(self.expected("a space or the end")),
            None => Ok(number),
        }
    }

    /// Parses digits. After the first one, `_` is ignored.
    fn number(&mut self, what: &'static str) -> Result<u64, Stopped> {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len());
        if !rest.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(self.expected(what));
        }
        let digits = rest[..end].replace('_', "");
        let number = digits.parse().map_err(|_| self.expected("a number below 2^64"))?;
        self.position += end;
        Ok(number)
    }

    /// The next run of characters that are not spaces, and where it begins.
    fn word(&mut self) -> Option<(usize, &'a str)> {
        self.skip_space();
        let start = self.position;
        let rest = &self.text[start..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.position += end;
        (end > 0).then(|| (start, &rest[..end]))
    }

    fn word_if(&mut self, wanted: &str) -> Option<()> {
        let start = self.position;
        if self.word().is_some_and(|(_, word)| word.eq_ignore_ascii_case(wanted)) {
            return Some(());
        }
        self.position = start;
        None
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.position += token.len();
        }
        found
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn expected(&self, what: &'static str) -> Stopped {
        (self.position, Expected::Text(what))
    }
}

impl Options {
    fn builder(self, quota: u64, period: &Period<'_>) -> Result<LimitBuilder, LimitError> {
        let calendar = Calendar::named(period.word, self.zone.as_deref(), self.first_day).transpose()?;
        if let Some(calendar) = calendar {
            return self.builder_of_calendar(quota, calendar);
        }
        let Some(period) = period.length.filter(|_| self.zone.is_none() && self.first_day.is_none()) else {
            let option = if self.zone.is_some() { "a time zone" } else { "a first day" };
            return Err(LimitError::Unsuitable { option, needs: "a day, week, month, quarter or year" });
        };
        let algorithm = match (self.algorithm, self.precision) {
            (None | Some(Algorithm::SlidingWindow), Some(precision)) => {
                Algorithm::SegmentedWindow { precision, strict: self.strict }
            }
            (Some(algorithm), _) => algorithm,
            (None, None) if self.burst.is_some() || self.step.is_some() => Algorithm::TokenBucket,
            (None, None) if self.alignment == Some(Alignment::FirstRequest) => Algorithm::FixedWindow,
            (None, None) => Algorithm::SlidingWindow,
        };
        let is_segmented = matches!(algorithm, Algorithm::SegmentedWindow { .. });
        let is_lease = algorithm == Algorithm::Concurrency;
        LimitError::check_suitable([
            (self.precision.is_some() && !is_segmented, "precision", "a sliding window"),
            (self.strict && !is_segmented, "strict", "a window with a precision"),
            (self.lease.is_some() && !is_lease, "a lease", "units at once, as in `20 at once`"),
        ])?;
        let mut builder = LimitBuilder::new(quota, self.lease.unwrap_or(period), algorithm);
        builder.spec.burst = self.burst;
        builder.spec.immediate = self.immediate;
        builder.spec.step = self.step;
        builder.spec.alignment = self.alignment.unwrap_or_default();
        builder.spec.name = self.name.map(String::into_boxed_str);
        Ok(builder)
    }

    fn builder_of_calendar(self, quota: u64, calendar: Calendar) -> Result<LimitBuilder, LimitError> {
        let needs = "a window of fixed length, not to a period of the calendar";
        let is_other = self.algorithm.is_some_and(|algorithm| algorithm != Algorithm::FixedWindow);
        LimitError::check_suitable([
            (is_other, "another algorithm than a fixed window", needs),
            (self.precision.is_some() || self.strict, "a precision", needs),
            (self.lease.is_some(), "a lease", needs),
            (self.alignment.is_some(), "an alignment", needs),
            (self.step.is_some(), "step", needs),
            (self.immediate.is_some(), "immediate", needs),
        ])?;
        let mut builder = LimitBuilder::of_calendar(quota, calendar);
        builder.spec.burst = self.burst;
        builder.spec.name = self.name.map(String::into_boxed_str);
        Ok(builder)
    }
}

#[cfg(test)]
mod tests;
