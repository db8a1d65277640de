//! What collectors put around the lines of a log: containers, the journal and syslog.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

use crate::field::Field;
use crate::format::detect::of_line;
use crate::format::expected::Expected;
use crate::format::name::Format;
use crate::format::place::Places;
use crate::record::{LONGEST, Wanted};

/// What is around each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A JSON object with the line in one field: Docker's json-file, `journalctl -o json`, collectors.
    Json,
    /// `TIME stdout F LINE`, as container runtimes of Kubernetes write; `P` is a part of a line.
    Cri,
    /// `TIME HOST TAG: LINE`, or as in RFC 5424, with or without a priority: syslog and `journalctl`.
    Syslog,
    /// `NAME  | LINE`, as `docker compose logs` prints.
    Compose,
    /// `[pod/NAME/CONTAINER] LINE`, as `kubectl logs --prefix` prints.
    Kubectl,
    /// `TIME LINE`, as `docker logs --timestamps` prints.
    Timed,
    /// The line between quotes, as a string of JSON, as in CSV, or just so.
    Quotes,
}

const IN_TEXT: [Kind; 6] = [Kind::Cri, Kind::Syslog, Kind::Compose, Kind::Kubectl, Kind::Timed, Kind::Quotes];

/// Takes lines out of what is around them.
#[derive(Clone, Debug)]
pub(super) struct Wrapper {
    kind: Kind,
    /// The beginnings of lines whose rest has not come yet: of the standard output, and of the standard error.
    parts: [Vec<u8>; 2],
    line: Vec<u8>,
}

/// A line without what was around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inner<'a> {
    /// All of the line.
    Line(&'a [u8]),
    /// The beginning of one, whose rest follows.
    Part,
    /// It is as long as [`LONGEST`] or longer.
    TooLong,
    /// There is nothing around it that is known.
    Bare,
}

/// A part of a line, and whether it is its end.
struct Piece<'a> {
    text: Cow<'a, [u8]>,
    is_end: bool,
    is_error: bool,
}

impl<'a> Piece<'a> {
    fn whole(text: &'a [u8]) -> Self {
        Self { text: Cow::Borrowed(text), is_end: true, is_error: false }
    }
}

impl Wrapper {
    /// What is around most of these lines that have a request in it; `None` if they are requests themselves. If a format or a
    /// pattern is expected, the requests have to be in that.
    pub(super) fn detect(lines: &[&[u8]], wanted: &Wanted, expected: &Expected) -> Option<Self> {
        let pattern = expected.pattern.as_ref();
        let readable = lines.iter().find_map(|line| Some((line, of_line(line, wanted, pattern)?)));
        let kinds = match readable {
            Some((_, Format::Json)) => &[Kind::Json][..],
            // Otherwise the first quote would be a part of the client.
            Some((line, _)) if line.starts_with(b"\"") => &[Kind::Quotes],
            Some(_) => &[],
            // Without a pattern, such a line is an object of JSON.
            None if lines.iter().any(|line| line.starts_with(b"{")) => &[Kind::Json],
            None => &IN_TEXT,
        };
        let found = |kind: Kind| {
            let mut wrapper = Self { kind, parts: [Vec::new(), Vec::new()], line: Vec::new() };
            let requests = lines.iter().filter(|line| {
                let Inner::Line(inner) = wrapper.take(line) else { return false };
                // What is around a line has no client: otherwise it is the request.
                (kind != Kind::Json || !has_client(line, wanted))
                    && match of_line(inner, wanted, pattern) {
                        None => false,
                        Some(format) if !format.has_names() && has_names(wanted) => false,
                        format => pattern.is_some() || expected.format.is_none() || format == expected.format,
                    }
            });
            let count = requests.count();
            (count, wrapper)
        };
        let best = kinds.iter().rev().map(|kind| found(*kind)).max_by_key(|(count, _)| *count);
        let (_, wrapper) = best.filter(|(count, _)| *count > 0)?;
        Some(Self { parts: [Vec::new(), Vec::new()], ..wrapper })
    }

    /// The lines that are within these.
    pub(super) fn take_all(mut self, lines: &[&[u8]]) -> Vec<Vec<u8>> {
        let inner = lines.iter().filter_map(|line| match self.take(line) {
            Inner::Line(inner) => Some(inner.to_vec()),
            Inner::Bare | Inner::Part | Inner::TooLong => None,
        });
        inner.collect()
    }

    /// The line without what is around it.
    pub(super) fn take<'a>(&'a mut self, line: &'a [u8]) -> Inner<'a> {
        let Some(piece) = piece(self.kind, line) else { return Inner::Bare };
        let part = &mut self.parts[usize::from(piece.is_error)];
        if piece.is_end && part.is_empty() {
            return Inner::Line(match piece.text {
                Cow::Borrowed(text) => text,
                Cow::Owned(text) => {
                    self.line = text;
                    &self.line
                }
            });
        }
        if part.len() + piece.text.len() >= LONGEST {
            part.clear();
            return Inner::TooLong;
        }
        part.extend_from_slice(&piece.text);
        if !piece.is_end {
            return Inner::Part;
        }
        self.line.clear();
        self.line.append(part);
        Inner::Line(&self.line)
    }
}

/// Whether fields are wanted that only formats with names have.
fn has_names(wanted: &Wanted) -> bool {
    Places::of(wanted).is_err()
}

/// Whether a JSON object has the client's address in one of the usual fields, or in the one that is named.
fn has_client(line: &[u8], wanted: &Wanted) -> bool {
    let Ok(object) = serde_json::from_slice::<serde_json::Map<_, _>>(line) else { return false };
    wanted.names(&Field::Ip).into_iter().any(|name| {
        let within = name.split('.').try_fold(None, |at: Option<&serde_json::Value>, name| {
            Some(Some(at.map_or_else(|| object.get(name), |at| at.get(name))?))
        });
        object.get(name).or_else(|| within.flatten()).is_some_and(|value| value.is_string())
    })
}

fn piece(kind: Kind, line: &[u8]) -> Option<Piece<'_>> {
    match kind {
        Kind::Json => of_json(line),
        Kind::Cri => cri(line),
        Kind::Syslog => syslog(line).map(Piece::whole),
        Kind::Compose => compose(line).map(Piece::whole),
        Kind::Kubectl => {
            let rest = line.strip_prefix(b"[")?;
            rest.get(memchr(b']', rest)? + 1..)?.strip_prefix(b" ").map(Piece::whole)
        }
        Kind::Timed => after_time(line).map(Piece::whole),
        Kind::Quotes => quoted(line),
    }
}

/// The length of the parts in which Docker writes a longer line, in bytes. Only the last one ends with a line feed.
const DOCKER_PART: usize = 16_384;

/// The line in a field of an object. Collectors that have read it elsewhere leave out the line feed at its end.
fn of_json(line: &[u8]) -> Option<Piece<'_>> {
    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow, alias = "MESSAGE", alias = "message")]
        log: Cow<'a, str>,
        #[serde(default, borrow)]
        stream: Option<Cow<'a, str>>,
    }
    /// What the journal writes if the line is not UTF-8.
    #[derive(Deserialize)]
    struct Bytes {
        #[serde(rename = "MESSAGE")]
        bytes: Vec<u8>,
    }
    let Ok(Text { log, stream }) = serde_json::from_slice::<Text<'_>>(line) else {
        let Bytes { bytes } = serde_json::from_slice(line).ok()?;
        return Some(Piece { text: Cow::Owned(bytes), is_end: true, is_error: false });
    };
    let is_error = stream.is_some_and(|stream| stream == "stderr");
    let is_end = log.ends_with('\n') || log.len() < DOCKER_PART;
    let text = match log {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii_end().as_bytes()),
        Cow::Owned(mut text) => {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
            Cow::Owned(text.into_bytes())
        }
    };
    Some(Piece { text, is_end, is_error })
}

fn quoted(line: &[u8]) -> Option<Piece<'_>> {
    let inner = line.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let text = match serde_json::from_slice::<Cow<'_, str>>(line) {
        Ok(text) => Cow::Owned(text.into_owned().into_bytes()),
        Err(_) if is_doubled(inner) => {
            let mut is_second = false;
            let kept = inner.iter().filter(|byte| {
                is_second = **byte == b'"' && !is_second;
                !is_second
            });
            Cow::Owned(kept.copied().collect())
        }
        Err(_) => Cow::Borrowed(inner),
    };
    Some(Piece { text, is_end: true, is_error: false })
}

/// Whether each quote comes twice, as in a value of CSV.
fn is_doubled(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = memchr(b'"', rest) {
        match rest.get(at + 1..).and_then(|rest| rest.strip_prefix(b"\"")) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

fn cri(line: &[u8]) -> Option<Piece<'_>> {
    let rest = after_time(line)?;
    let (stream, rest) = word(rest)?;
    // Tags may follow the first one, after colons.
    let (tag, text) = word(rest)?;
    let is_end = match tag.first()? {
        b'F' => true,
        b'P' => false,
        _ => return None,
    };
    let is_error = stream == b"stderr";
    (is_error || stream == b"stdout").then_some(Piece { text: Cow::Borrowed(text), is_end, is_error })
}

fn compose(line: &[u8]) -> Option<&[u8]> {
    let (name, rest) = line.split_at(memchr(b'|', line)?);
    let name = name.trim_ascii_end();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let rest = rest.get(1..)?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    (!name.is_empty() && name.iter().all(is_name)).then(|| after_time(rest).unwrap_or(rest))
}

/// The text of a message as in RFC 3164 or RFC 5424, or of a line of a file of syslog or of `journalctl`, which has no
/// priority in front.
fn syslog(line: &[u8]) -> Option<&[u8]> {
    let rest = match line.strip_prefix(b"<") {
        Some(rest) => {
            let (priority, rest) = rest.split_at(memchr(b'>', rest)?);
            let is_priority = (1..=3).contains(&priority.len()) && priority.iter().all(u8::is_ascii_digit);
            is_priority.then_some(rest.get(1..)?)?
        }
        None => line,
    };
    if let Some(rest) = rest.strip_prefix(b"1 ") {
        // The time, the host, the program, its process and the kind of the message.
        let rest = (0..5).try_fold(rest, |rest, _| Some(word(rest)?.1))?;
        let rest = match rest.strip_prefix(b"- ") {
            Some(rest) => rest,
            None => rest.get(memchr::memmem::find(rest, b"] ")? + 2..)?,
        };
        return Some(rest.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rest));
    }
    let rest = after_time(rest).or_else(|| after_day(rest))?;
    // The host may be missing.
    let (host, tag) = word(rest)?;
    let (tag, rest) = if host.ends_with(b":") { (host, tag) } else { word(tag)? };
    tag.ends_with(b":").then_some(rest)
}

/// The text behind a time such as `2026-01-05T10:00:00.5Z` and a space.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let (time, rest) = word(line)?;
    let is_time = time.len() >= 20
        && time.get(10) == Some(&b'T')
        && time.get(4) == Some(&b'-')
        && time.iter().all(|byte| byte.is_ascii_digit() || b"-:.,TZ+".contains(byte));
    is_time.then_some(rest)
}

/// The text behind a time such as `Jan  5 10:00:00` and a space.
fn after_day(line: &[u8]) -> Option<&[u8]> {
    let (time, rest) = line.split_at_checked(16)?;
    let [m1, m2, m3, b' ', d1, d0, b' ', h1, h0, b':', _, _, b':', _, _, b' '] = time else { return None };
    let is_month = [m1, m2, m3].iter().all(|byte| byte.is_ascii_alphabetic());
    let is_day = (*d1 == b' ' || d1.is_ascii_digit()) && d0.is_ascii_digit();
    (is_month && is_day && h1.is_ascii_digit() && h0.is_ascii_digit()).then_some(rest)
}

/// The first word, and the text behind the space after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}
