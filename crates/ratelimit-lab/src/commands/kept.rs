//! Which requests of a log are replayed.

use anyhow::Context as _;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ratelimit_core::Timestamp;

use crate::args::LogArgs;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// The requests that are replayed: those in a span of time, and not of certain paths.
pub(super) struct Kept {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// The index of the path, and the paths whose requests are left out.
    without: Option<(usize, Vec<String>)>,
    pub(super) left_out: u64,
}

impl Kept {
    /// The requests that the arguments keep. Adds the path to `wanted`, if that decides.
    ///
    /// # Errors
    /// If a time cannot be read.
    pub(super) fn new(args: &LogArgs, wanted: &mut Wanted) -> anyhow::Result<Self> {
        let time = |option: &str, text: &Option<String>| {
            let text = text.as_ref();
            let read = |text: &String| {
                time(text, args.timezone.as_ref()).with_context(|| format!("{option} {text}"))
            };
            text.map(read).transpose()
        };
        let without = &args.without_path;
        Ok(Self {
            from: time("--from", &args.from)?,
            to: time("--to", &args.to)?,
            without: (!without.is_empty()).then(|| (wanted.add(Field::Path), without.clone())),
            left_out: 0,
        })
    }

    /// Whether a request is replayed; if not, it is counted.
    pub(super) fn keeps(&mut self, record: &Record) -> bool {
        let is_in =
            self.from.is_none_or(|from| from <= record.time) && self.to.is_none_or(|to| record.time < to);
        let path = self.without.as_ref().and_then(|(index, without)| Some((record.get(*index)?, without)));
        let is_kept =
            is_in && !path.is_some_and(|(path, without)| without.iter().any(|one| matches(one, path)));
        self.left_out += u64::from(!is_kept);
        is_kept
    }
}

/// Whether a path is this one or, if this one ends with a star, begins with it.
fn matches(one: &str, path: &[u8]) -> bool {
    match one.strip_suffix('*') {
        Some(begin) => path.starts_with(begin.as_bytes()),
        None => path == one.as_bytes(),
    }
}

/// Reads a date, or a date and a time; without an offset, in this zone or in UTC.
fn time(text: &str, zone: Option<&TimeZone>) -> anyhow::Result<Timestamp> {
    let instant = match text.parse::<jiff::Timestamp>() {
        Ok(instant) => instant,
        Err(_) => {
            let local: DateTime = text
                .parse()
                .ok()
                .context("write a time as 2026-01-05, 2026-01-05T10:00 or 2026-01-05T10:00:00Z")?;
            zone.unwrap_or(&TimeZone::UTC).to_timestamp(local)?
        }
    };
    let nanos =
        u64::try_from(instant.as_nanosecond()).ok().filter(|nanos| *nanos <= Timestamp::MAX.as_nanos());
    nanos.map(Timestamp::from_nanos).context("it is out of range")
}
