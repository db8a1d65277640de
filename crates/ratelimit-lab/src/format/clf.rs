//! The common and combined log formats of Apache and nginx, with or without the virtual host in front.

use std::collections::BTreeSet;

use memchr::memchr;
use ratelimit_core::Timestamp;

use super::place::Places;
use super::target::{path, set_column, split_request};
use super::time::{NO_OFFSET, Times};
use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// Where the fields of the lines of a file are.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    order: Order,
    /// The number of fields between the time and the request.
    between: usize,
    places: Places,
}

/// The most fields between the time and the request.
const MOST_BETWEEN: usize = 4;

impl Layout {
    /// One of each kind that a single line can be read with.
    pub(super) fn each() -> impl Iterator<Item = Self> {
        (0..=MOST_BETWEEN).map(|between| Self { between, ..Self::default() })
    }

    /// The one of a file with these lines, and with fields in these places.
    pub(super) fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, places: Places) -> Self {
        let mut times = Times::in_utc();
        let mut count = |between: usize| {
            lines
                .clone()
                .filter(|line| split_at_time(line, between, &mut times).is_ok_and(has_status))
                .count()
        };
        // The fewest of those with which most lines are requests.
        let between = (0..=MOST_BETWEEN).rev().max_by_key(|between| count(*between)).unwrap_or_default();
        Self { order: Order::of_lines(lines, between), between, places }
    }
}

/// Whether a request and its status are next.
fn has_status(parts: LineParts<'_>) -> bool {
    let mut rest = parts.rest;
    rest.quoted().is_some() && is_status(rest.word())
}

fn is_status(word: &[u8]) -> bool {
    word == b"-" || (word.len() == 3 && word.iter().all(u8::is_ascii_digit))
}

/// Reads a line `host ident user [time] "request" status bytes "referer" "agent"`. The last three may be missing, and
/// more fields may follow.
pub(super) fn parse(
    line: &[u8],
    wanted: &Wanted,
    layout: &Layout,
    times: &mut Times,
    record: &mut Record,
) -> Result<(), &'static str> {
    let Layout { order, between, places } = layout;
    let LineParts { before, time, between, mut rest } = split_at_time(line, *between, times)?;
    record.time = time;
    let front = Front::of(before, *order).ok_or("there is no `host ident user` before the time")?;
    let request = rest.quoted().ok_or("there is no \"request\" after the time")?;
    let (status, bytes) = (rest.word(), rest.word());
    if !is_status(status) {
        return Err("there is no status after the request");
    }
    for (number, index) in &places.before {
        let value = fields(before).nth(*number).unwrap_or_default();
        set_column(record, wanted, *index, value.strip_suffix(b",").unwrap_or(value));
    }
    if !places.between.is_empty() {
        set_places(&places.between, between, wanted, record);
    }
    // The referer, the agent and what follows are looked for only where they are wanted.
    let mut ends = None;
    let mut ends = || *ends.get_or_insert_with(|| (rest.quoted(), rest.quoted(), rest.0));
    if !places.after.is_empty() {
        set_places(&places.after, Rest(ends().2), wanted, record);
    }
    for (index, field) in wanted.fields().iter().enumerate().take(record.len()) {
        let value = match field {
            Field::Ip => front.host,
            Field::User => front.user,
            Field::Method => split_request(request).0,
            Field::Path => path(split_request(request).1),
            Field::Status => status,
            Field::Bytes => bytes,
            Field::Referer => ends().0.unwrap_or_default(),
            Field::Agent => ends().1.unwrap_or_default(),
            Field::Time | Field::Duration | Field::Named(_) => continue,
        };
        record.set(index, value);
    }
    Ok(())
}

/// Sets the fields in these places of a text; to nothing where it has fewer.
fn set_places(places: &[(usize, usize)], mut rest: Rest<'_>, wanted: &Wanted, record: &mut Record) {
    let mut number = 0;
    while let Some(value) = rest.field() {
        let indices = places.iter().filter(|(place, _)| *place == number);
        indices.for_each(|(_, index)| set_column(record, wanted, *index, value));
        number += 1;
    }
    places.iter().for_each(|(_, index)| record.set(*index, b""));
}

/// The fields before the time. A list of addresses is one.
fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text.trim_ascii();
    std::iter::from_fn(move || {
        let (field, after) = entry(rest).unwrap_or((rest, b""));
        rest = after.trim_ascii_start();
        (!field.is_empty()).then_some(field)
    })
}

/// The parts of a line.
struct LineParts<'a> {
    before: &'a [u8],
    time: Timestamp,
    /// What is between the time and the request.
    between: Rest<'a>,
    /// The request, and what follows.
    rest: Rest<'a>,
}

/// Splits a line at `[time]`, which is followed by this number of fields and a quote. The name of a user may contain a `[` or
/// even a time in brackets, but only the time of the request has a quote there, since servers escape the quotes in a
/// name.
fn split_at_time<'a>(
    line: &'a [u8],
    between: usize,
    times: &mut Times,
) -> Result<LineParts<'a>, &'static str> {
    let mut reason = "there is no [time]";
    let mut close = 0;
    for open in memchr::memchr_iter(b'[', line) {
        // Searched for again only behind the last one, since a name may have many `[`.
        if close < open {
            let Some(at) = memchr(b']', line.get(open..).unwrap_or_default()) else {
                reason = "there is no ] after the time";
                break;
            };
            close = open + at;
        }
        let after = line.get(close + 1..).unwrap_or_default();
        let text = line.get(open + 1..close).unwrap_or_default();
        match times.in_brackets(text) {
            Some(time) => {
                let mut rest = Rest(after);
                let are_there = (0..between).all(|_| rest.field().is_some());
                rest.0 = rest.0.trim_ascii_start();
                if are_there && rest.0.starts_with(b"\"") {
                    let between = Rest(&after[..after.len() - rest.0.len()]);
                    return Ok(LineParts {
                        before: line.get(..open).unwrap_or_default(),
                        time,
                        between,
                        rest,
                    });
                }
                reason = "there is no \"request\" after the time";
            }
            None if text.len() > 10 && times.reason(text) == NO_OFFSET => reason = NO_OFFSET,
            None => reason = "the time is not like 10/Oct/2000:13:55:36 -0700",
        }
    }
    Err(reason)
}

/// Which of two names before the user is the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Each line tells: the second one, if it is an address or the first one has a port.
    #[default]
    Unknown,
    /// The second one; the first is the virtual host, `%v %h %l %u`.
    HostFirst,
    /// The first one; the second is the host that the request is for, `$remote_addr $host - $remote_user` or, as lighttpd
    /// writes, `%h %V %u`.
    ClientFirst,
}

impl Order {
    /// The order in a file with these lines. The host comes first if it has a name anywhere, and the client's address is behind
    /// it. The client comes first if that is always an address, and the other is not, or there are fewer of those, or the user
    /// is next to it anywhere.
    fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]>, between: usize) -> Self {
        let (mut clients, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        let (mut has_three, mut has_names) = (false, false);
        let mut times = Times::in_utc();
        for line in lines {
            let Ok(parts) = split_at_time(line, between, &mut times) else { continue };
            let Some((first, rest)) = entry(parts.before.trim_ascii()) else { continue };
            let Some((second, third)) = entry(rest) else { continue };
            let is_user = memchr(b' ', third).is_none();
            if second == b"-" || !(is_user || third.starts_with(b"- ")) {
                continue;
            }
            if first.split(|byte| *byte == b',').any(|one| address(one.trim_ascii()).is_some()) {
                has_three |= is_user;
                clients.insert(first);
                hosts.insert(second);
            } else if is_address(second) && !is_user {
                return Self::HostFirst;
            } else {
                has_names = true;
            }
        }
        let is_named = hosts.iter().any(|host| address(host).is_none());
        let is_client_first =
            !hosts.is_empty() && !has_names && (has_three || is_named || hosts.len() < clients.len());
        if is_client_first { Self::ClientFirst } else { Self::Unknown }
    }
}

/// The fields before the time that are used.
struct Front<'a> {
    host: &'a [u8],
    user: &'a [u8],
}

impl<'a> Front<'a> {
    fn of(text: &'a [u8], order: Order) -> Option<Self> {
        let text = text.trim_ascii();
        let (first, rest) = entry(text)?;
        let (second, third) = entry(rest)?;
        if order == Order::ClientFirst && second != b"-" {
            return Some(Self { host: first, user: third.strip_prefix(b"- ").unwrap_or(third) });
        }
        // `%v:%p %h %l %u`, which Debian's Apache calls vhost_combined, or `%v %h %l %u`. In `%h %l %u`, the second field is
        // almost always `-`, and a name in the third may have spaces.
        if second != b"-"
            && let Some((_, user)) = split(third)
            && (has_port(first)
                || is_address(second)
                || (order == Order::HostFirst && third.starts_with(b"- ")))
        {
            return Some(Self { host: second, user });
        }
        // Otherwise there is something before the line.
        let is_front = !third.is_empty() && (second == b"-" || is_address(first));
        is_front.then_some(Self { host: first, user: third })
    }
}

/// Whether a field is a host with a port.
fn has_port(field: &[u8]) -> bool {
    field.iter().rposition(|byte| *byte == b':').is_some_and(|at| {
        let (host, port) = (&field[..at], &field[at + 1..]);
        let is_host = memchr(b':', host).is_none() || (host.starts_with(b"[") && host.ends_with(b"]"));
        is_host && !port.is_empty() && port.iter().all(u8::is_ascii_digit)
    })
}

/// Whether a field is an address, or a list whose first element is one.
fn is_address(field: &[u8]) -> bool {
    address(field.split(|byte| *byte == b',').next().unwrap_or_default()).is_some()
}

/// The first field, which may be a list with a space after each comma, as proxies write `X-Forwarded-For`; and the text
/// behind the space after it.
fn entry(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut spaces = memchr::memchr_iter(b' ', text);
    let end = spaces.find(|at| at.checked_sub(1).and_then(|before| text.get(before)) != Some(&b','))?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The text after the time that is not read yet.
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    /// The text between the next two quotes; `None` if the next word does not begin with a quote. Quotes within it are
    /// escaped by a backslash.
    pub(super) fn quoted(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start().strip_prefix(b"\"")?;
        let mut from = 0;
        loop {
            let at = from + memchr(b'"', text.get(from..)?)?;
            let content = text.get(..at)?;
            let slashes = content.iter().rev().take_while(|byte| **byte == b'\\').count();
            if slashes % 2 == 0 {
                self.0 = text.get(at + 1..)?;
                return Some(content);
            }
            from = at + 1;
        }
    }

    /// The next text between quotes, or word; `None` at the end.
    pub(super) fn field(&mut self) -> Option<&'a [u8]> {
        self.quoted().or_else(|| Some(self.word()).filter(|word| !word.is_empty()))
    }

    /// The next word; empty at the end.
    pub(super) fn word(&mut self) -> &'a [u8] {
        let text = self.0.trim_ascii_start();
        let end = memchr(b' ', text).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        word
    }
}
