//! The formats of log lines, and how to tell them apart.

mod clf;
mod csv;
mod detect;
mod expected;
mod json;
mod ltsv;
mod name;
mod pattern;
mod place;
mod sample;
mod servers;
mod target;
mod time;
mod w3c;
mod wrapper;

use anyhow::{Context as _, bail};

pub use expected::Expected;
pub use name::Format;
pub use pattern::Pattern;

use crate::record::{Record, Wanted};
use detect::of_line;
use place::Places;
use sample::Sample;
use time::Times;
use wrapper::{Inner, Wrapper};

/// Reads lines of one file.
#[derive(Debug)]
pub(crate) struct Parser {
    wanted: Wanted,
    /// The number of fields that are read of each line, and the lines of which all are.
    always: usize,
    sample: Sample,
    kind: Kind,
    /// What is around each line.
    wrapper: Option<Wrapper>,
    times: Times,
    found: Record,
}

#[derive(Debug)]
enum Kind {
    Clf(clf::Layout),
    /// The names of all fields, and of those that are read of each line.
    Json([json::Names; 2]),
    /// The columns; `None` until the header was read.
    Csv(Option<Box<csv::Columns>>),
    W3c(Box<w3c::Columns>),
    Ltsv(ltsv::Labels),
    Server(Format),
    Pattern(Box<pattern::Groups>),
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A request, whose fields are in the record.
    Request,
    /// An empty line, a comment or a header.
    Nothing,
    /// Anything else, and why it is not a request.
    Bad(&'static str),
}

const NO_LINE: &str = "its first lines are empty, or longer than a mebibyte";

impl Parser {
    /// A parser for the wanted fields in the format that is expected or, without one, that is detected from the first lines of
    /// a file.
    ///
    /// # Errors
    /// If the lines have no known format, if their format cannot have a field with a wanted name, or if the header of CSV lacks
    /// one or the time.
    pub(crate) fn detect(first: &[&[u8]], wanted: &Wanted, expected: &Expected) -> anyhow::Result<Self> {
        let Expected { format, pattern, time_zone } = expected;
        let times = Times::in_zone(time_zone.clone());
        if pattern.is_none() {
            if let Some(hint) = first.iter().find(|line| !is_blank(line)).and_then(|top| other_json(top)) {
                bail!(hint);
            }
            let header = first.iter().take_while(|line| is_blank(line)).find(|line| w3c::is_header(line));
            if let Some(header) = header.filter(|_| format.is_none_or(|format| format == Format::W3c)) {
                return Self::of_header(header, wanted, times);
            }
        }
        let wrapper = Wrapper::detect(first, wanted, expected);
        let inner = wrapper.clone().map(|wrapper| wrapper.take_all(first));
        let inner: Option<Vec<&[u8]>> = inner.as_ref().map(|lines| lines.iter().map(Vec::as_slice).collect());
        let first = inner.as_deref().unwrap_or(first);
        let kind = match pattern {
            Some(pattern) if !first.iter().any(|line| pattern.finds(line)) => {
                bail!("--pattern matches none of the first lines")
            }
            Some(pattern) => Kind::Pattern(Box::new(pattern.groups(wanted).map_err(anyhow::Error::msg)?)),
            None => Self::kind(first, wanted, *format)?,
        };
        Ok(Self::new(wanted, kind, wrapper, times))
    }

    /// How to read lines in this format or, with `None`, in the one that is detected.
    fn kind(first: &[&[u8]], wanted: &Wanted, format: Option<Format>) -> anyhow::Result<Kind> {
        let mut lines = first.iter().filter(|line| !is_blank(line)).peekable();
        let format = match format {
            Some(format) => format,
            None => {
                let top = lines.peek().context(NO_LINE)?;
                let is_binary = |line: &[u8]| line.contains(&0);
                let of_line = |line: &[u8]| of_line(line, wanted, None);
                // Values of CSV may look like a line of another format.
                let is_csv = of_line(top).is_none() && csv::Columns::of_header(top, wanted).is_some();
                match lines.clone().filter(|line| !is_binary(line)).find_map(|line| of_line(line)) {
                    _ if is_csv => Format::Csv,
                    Some(format) => format,
                    None if lines.clone().any(|line| is_binary(line)) => bail!(
                        "it is binary: neither text in UTF-8, or UTF-16 with a byte order mark, nor compressed by gzip or zstd; \
                         decompress it, as in `xz -dc FILE | ratelimit-lab replay -`"
                    ),
                    None => bail!("{}", unknown(wanted)),
                }
            }
        };
        Ok(match format {
            Format::Combined => {
                let places = Places::of(wanted).map_err(|name| {
                    anyhow::anyhow!(
                        "the combined log format has no field of the name {name:?}, only ip, user, method, path, status, bytes, \
                         referer and agent (without `field:`); others have the names of their places: before-1 is the first field \
                         of the line, between-1 the first one between the time and the request, after-1 the first one after the \
                         agent"
                    )
                })?;
                Kind::Clf(clf::Layout::of_lines(lines.copied(), places))
            }
            Format::Haproxy | Format::Alb | Format::Elb | Format::Envoy | Format::Squid | Format::Npm => {
                if let Some(name) = wanted.fields().iter().find_map(|field| wanted.only_name(field)) {
                    bail!(
                        "its format has no field of the name {name:?}, only ip, user, method, path, status, bytes and agent \
                         (without `field:`)"
                    );
                }
                Kind::Server(format)
            }
            Format::Ltsv => Kind::Ltsv(ltsv::Labels::of(wanted)),
            Format::Pattern => bail!("this format needs --pattern"),
            Format::Json => {
                Kind::Json([wanted.clone(), wanted.always()].map(|wanted| json::Names::of(&wanted)))
            }
            Format::W3c => bail!("it does not begin with a comment `#Fields:`, which names the columns"),
            Format::Csv => {
                let top = lines.peek().context(NO_LINE)?;
                let columns = csv::Columns::of_header(top, wanted)
                    .with_context(|| without_time_column(wanted, "set --time-field"))?;
                let mut fields = wanted.fields().iter().enumerate().filter(|(index, _)| !columns.has(*index));
                if let Some(name) = fields.find_map(|(_, field)| wanted.only_name(field)) {
                    bail!("it has no column {name:?}");
                }
                Kind::Csv(None)
            }
        })
    }

    /// A parser for the extended log format of W3C with this comment `#Fields:`.
    fn of_header(header: &[u8], wanted: &Wanted, times: Times) -> anyhow::Result<Self> {
        let columns = w3c::Columns::of_header(header, wanted).with_context(|| {
            let time = wanted.fields().first().and_then(|time| wanted.only_name(time));
            time.map_or("its #Fields do not name `date` and `time`; set --time-field".to_owned(), |name| {
                format!("its #Fields do not name {name:?}, which --time-field names")
            })
        })?;
        let mut fields = wanted.fields().iter().enumerate().filter(|(index, _)| !columns.has(*index));
        if let Some(name) = fields.find_map(|(_, field)| wanted.only_name(field)) {
            bail!("it has no column {name:?}");
        }
        Ok(Self::new(wanted, Kind::W3c(Box::new(columns)), None, times))
    }

    fn new(wanted: &Wanted, kind: Kind, wrapper: Option<Wrapper>, times: Times) -> Self {
        Self {
            wanted: wanted.clone(),
            always: wanted.always().fields().len(),
            sample: Sample::default(),
            kind,
            wrapper,
            times,
            found: Record::default(),
        }
    }

    /// The format of the lines.
    pub(crate) fn format(&self) -> Format {
        match self.kind {
            Kind::Clf(_) => Format::Combined,
            Kind::Json(_) => Format::Json,
            Kind::Csv(_) => Format::Csv,
            Kind::W3c(_) => Format::W3c,
            Kind::Ltsv(_) => Format::Ltsv,
            Kind::Pattern(_) => Format::Pattern,
            Kind::Server(format) => format,
        }
    }

    /// Reads a line into the record.
    pub(crate) fn parse(&mut self, line: &[u8], record: &mut Record) -> Line {
        let Self { wanted, always, sample, kind, wrapper, times, found } = self;
        let line = match wrapper.as_mut().map_or(Inner::Bare, |wrapper| wrapper.take(line)) {
            Inner::Line(inner) => inner,
            Inner::Bare => line,
            Inner::Part => return Line::Nothing,
            Inner::TooLong => return Line::Bad("its parts are longer than a mebibyte"),
        };
        let is_comment = is_blank(line);
        if line.trim_ascii().is_empty() || (is_comment && matches!(kind, Kind::Csv(None))) {
            return Line::Nothing;
        }
        let count = wanted.fields().len();
        record.is_whole = *always == count || sample.next();
        // What has no place is not read.
        record.clear(if record.is_whole { count } else { *always });
        record.is_end = !matches!(kind, Kind::Server(Format::Haproxy | Format::Elb | Format::Envoy));
        let read = match kind {
            Kind::Clf(layout) => clf::parse(line, wanted, layout, times, record),
            Kind::Ltsv(labels) => labels.parse(line, wanted, times, record),
            Kind::Pattern(groups) => groups.parse(line, wanted, times, record),
            Kind::Json([all, always]) => {
                let names = if record.is_whole { all } else { always };
                json::parse(line, wanted, names, times, record, found)
            }
            Kind::Server(format) => servers::parse(*format, line, wanted, times, record),
            Kind::Csv(Some(columns)) => columns.parse(line, wanted, times, record),
            // A server that starts again writes its comments again, perhaps with other columns.
            Kind::W3c(columns) if w3c::is_header(line) => match w3c::Columns::of_header(line, wanted) {
                Some(new) => {
                    **columns = new;
                    return Line::Nothing;
                }
                None => return Line::Bad("it does not name columns with the date and the time"),
            },
            Kind::W3c(columns) => columns.parse(line, wanted, times, record),
            Kind::Csv(columns @ None) => {
                *columns = csv::Columns::of_header(line, wanted).map(Box::new);
                match columns {
                    Some(_) => return Line::Nothing,
                    None => Err("it does not name a column with the time"),
                }
            }
        };
        match read {
            Ok(()) => Line::Request,
            Err(_) if is_comment => Line::Nothing,
            Err(reason) => Line::Bad(reason),
        }
    }
}

/// What is wrong if no line shows a format, and what to do.
fn unknown(wanted: &Wanted) -> String {
    format!(
        "cannot tell its format: none of the first lines is of a format that --help names, and {}. Otherwise say where the \
         fields of a line are, as in\n  \
         --pattern '^(?<ip>\\S+) \\[(?<time>[^]]+)\\] (?<method>\\S+) (?<path>\\S+) (?<status>\\d+)'\n\
         or write JSON, as in\n  \
         jq -c '{{time: .at, ip: .peer, path: .url}}' FILE | ratelimit-lab replay -",
        without_time_column(wanted, "set --format or --time-field")
    )
}

/// What is wrong if the first line is no header of CSV that has the time, and what to do unless its name is wrong.
fn without_time_column(wanted: &Wanted, otherwise: &str) -> String {
    match wanted.only_name(&wanted.fields()[Wanted::TIME]) {
        Some(name) => format!("the first line has no CSV column {name:?}, which --time-field names"),
        None => format!("the first line does not name a CSV column with the time; {otherwise}"),
    }
}

/// What to do with JSON that is not one object on each line, if this is its first line.
fn other_json(top: &[u8]) -> Option<&'static str> {
    match top.trim_ascii() {
        b"{" => Some(
            "an object of JSON has to be on one line: write each on one, as with `jq -c . FILE | ratelimit-lab replay -`",
        ),
        [b'[', rest @ ..] if matches!(rest.trim_ascii_start(), [] | [b'{' | b']', ..]) => Some(
            "it is an array of JSON: write each of its objects on a line, as with `jq -c '.[]' FILE | ratelimit-lab replay -`",
        ),
        _ => None,
    }
}

/// Whether a line before all requests says nothing: it is empty, or a comment other than the names of columns.
pub(crate) fn says_nothing(line: &[u8]) -> bool {
    is_blank(line) && !w3c::is_header(line)
}

/// Whether a line is empty or, unless it can be read as a request, a comment.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start(), [] | [b'#', ..])
}

#[cfg(test)]
mod tests;
